"""Times an update against the matrix products that it needs, and against PyTorch.

Machines are noisy, so measurements alternate: within a process the update, the products and PyTorch, and between
processes one core and all cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from valuedice.errors import InputError
from valuedice.system.machine import THREADS, hardware, versions


@dataclass(frozen=True)
class Worker:
    """A process that is limited to some cores."""

    cores: int
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, cores: int, variables: dict[str, str] | None = None) -> Worker:
        """Starts a process; both its environment and its CPU affinity limit the threads."""
        allowed = sorted(os.sched_getaffinity(0))[-cores:]
        env = os.environ | dict.fromkeys(THREADS, str(cores)) | (variables or {})
        process = subprocess.Popen(
            [sys.executable, "-m", "valuedice.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        # Set before the process has threads. A preexec_fn would fork this process, in which JAX may be running.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, allowed)
        return cls(cores, process)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measures one round."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise InputError("a process of the benchmark ended early; fix the error above and try again")
        return json.loads(answer)

    def stop(self) -> None:
        """Ends the process."""
        self.process.communicate()


def measure(request: dict[str, Any], cores: list[int], rounds: int) -> dict[str, dict[str, Any]]:
    """Runs alternating rounds; returns a summary for each number of cores."""
    workers = [Worker.start(count) for count in cores]
    times: dict[int, dict[str, list[float]]] = {count: {} for count in cores}
    gflop = 0.0
    try:
        for _ in range(rounds):
            for worker in workers:
                answer = worker.ask(request)
                gflop = answer["gflop"]
                for name, values in answer["times"].items():
                    times[worker.cores].setdefault(name, []).extend(values)
    finally:
        for worker in workers:
            worker.stop()
    return {str(count): summary(times[count]) | {"gflop": gflop} for count in cores}


def summary(times: dict[str, list[float]]) -> dict[str, Any]:
    """Best and median times; `spread` is the interquartile range of the update's times over their median."""
    update, limit = np.array(times["update"]), np.array(times["limit"])
    torch = times.get("torch")
    low, middle, high = np.percentile(update, [25, 50, 75])
    result = {
        "update_ms": update.min(),
        "limit_ms": limit.min(),
        "ratio_to_limit": update.min() / limit.min(),
        "torch_ms": None if torch is None else min(torch),
        "spread": (high - low) / middle,
        "update_ms_median": middle,
        "limit_ms_median": np.median(limit),
        "ratio_to_limit_median": middle / np.median(limit),
        "torch_ms_median": None if torch is None else np.median(torch),
    }
    return {name: None if value is None else round(float(value), 4) for name, value in result.items()}


BASE: dict[str, Any] = {"name": "value-dice", "obs_size": 17, "action_size": 6, "overrides": {}}
VARIATIONS: list[tuple[str, dict[str, Any]]] = [
    *[(f"batch {rows}", {"overrides": {"batch_size": rows}}) for rows in (64, 128, 256, 512, 1024)],
    *[(f"width {width}", {"overrides": {"hidden": [width, width]}}) for width in (64, 128, 256, 512)],
    *[(f"observations {size}", {"obs_size": size}) for size in (17, 111, 376)],
]


def growth(rounds: int) -> list[dict[str, Any]]:
    """Times on one core as one size grows; `predicted_ms` is the base time times the ratio of the arithmetic."""
    rows: list[dict[str, Any]] = []
    for what, change in VARIATIONS:
        row = measure(BASE | change, [1], rounds)["1"]
        rows.append(
            {"setting": what, "gflop": round(row["gflop"], 3)} | {k: row[k] for k in ("update_ms", "limit_ms")}
        )
    base = next(row for row in rows if row["setting"] == "batch 256")
    for row in rows:
        row["predicted_ms"] = round(base["update_ms"] * row["gflop"] / base["gflop"], 2)
    return rows


def machine() -> str:
    """Hardware and versions, on one line."""
    about = hardware() | versions()
    return ", ".join(f"{name} {value}" for name, value in about.items())
