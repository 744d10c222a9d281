"""Runs of the command line as processes of their own, and ways to end them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from small import names_of

from valuedice.algorithms import ALGORITHMS, SAC
from valuedice.checkpoint import SLOTS, read_slot
from valuedice.machine import THREADS

SMALL: dict[str, Any] = {"hidden": 16, "batch_size": 16, "updates_per_step": 2, "random_steps": 50}
SMALL |= {"training_starts": 40, "actor_lr": 1e-3, "discriminator_hidden": 16, "ratio_hidden": 16}
SMALL |= {"rollout": 40, "environments": 2, "minibatch": 20, "discriminator_batch": 16}
EVERY: dict[str, Any] = {"episodes": 1, "eval_episodes": 1, "checkpoint_seconds": 0.05, "threads": 1, "quiet": True}
TASKS: dict[str, dict[str, Any]] = {
    "quick": {"env": "Pendulum-v1", "demos": "pendulum", "steps": 300, "eval_every": 50},
    "quick-offline": {
        "eval_env": "Pendulum-v1",
        "demos": "pendulum",
        "offline": True,
        "updates": 1600,
        "eval_every": 200,
    },
    "online": {"env": "Pendulum-v1", "demos": "pendulum", "steps": 1500, "eval_every": 50},
    "offline": {
        "eval_env": "Pendulum-v1",
        "demos": "pendulum",
        "offline": True,
        "updates": 6000,
        "eval_every": 200,
    },
    "discrete": {"env": "CartPole-v1", "demos": "cartpole", "steps": 1500, "eval_every": 50},
}
TASKS["cloning"] = TASKS["offline"] | {"updates": 60000, "eval_every": 1000}
"""Its updates are so quick that a shorter run is over before it can be killed."""
TASKS["expert"] = {"env": "Pendulum-v1", "target_return": 1e9, "max_steps": 1500, "eval_every": 50}
KNOWN_TO_EXPERTS = {*EVERY, *TASKS["expert"]} - {"episodes"}
PATIENCE = 300.0
"""Seconds after which a process that does not do what is waited for is at fault."""


def flags(options: dict[str, Any]) -> list[str]:
    """As on the command line."""
    return [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
    ]


def options(algorithm: str, task: str, **changes: Any) -> list[str]:
    """A small run of a task; an algorithm is given only the settings that it has."""
    if algorithm == "sac":
        known, name = names_of(SAC()) | KNOWN_TO_EXPERTS, []
    else:
        known, name = names_of(ALGORITHMS[algorithm]()) | {*EVERY, *TASKS[task]}, [algorithm]
        if ALGORITHMS[algorithm].pace is None:
            known -= {"steps"}
    settings = {key: value for key, value in (EVERY | SMALL | TASKS[task]).items() if key in known}
    return [*name, *flags(settings | changes)]


def command(algorithm: str) -> str:
    """That learns by it."""
    return "expert" if algorithm == "sac" else "train"


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said on the error stream."""

    code: int
    said: str

    @property
    def lines(self) -> list[str]:
        return self.said.splitlines()

    def is_one_line(self) -> bool:
        """Bad input as the user should meet it."""
        return self.code == 2 and len(self.lines) == 1 and self.said.startswith("valuedice: error: ")


class Launcher:
    """Starts processes that share a place for compiled code, and lets none of them outlive a test."""

    def __init__(self, cache: Path) -> None:
        dropped = {*THREADS, "JAX_COMPILATION_CACHE_DIR"}
        self.env = {name: value for name, value in os.environ.items() if name not in dropped}
        self.env["XDG_CACHE_HOME"] = str(cache)
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *args: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "valuedice.cli", *map(str, args)]
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=self.env, cwd=cwd, **pipes)
        self._started.append(process)
        return process

    def run(self, *args: str | Path, cwd: Path | None = None) -> Ended:
        return end_of(self.start(*args, cwd=cwd))

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def end_of(process: subprocess.Popen[str]) -> Ended:
    """Waits until it has ended."""
    _, said = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, said)


def killed(process: subprocess.Popen[str]) -> Ended:
    """By `kill -9`, which no process can answer."""
    process.kill()
    return end_of(process)


def signalled(process: subprocess.Popen[str], *signums: signal.Signals, pause: float = 0.002) -> Ended:
    for signum in signums:
        process.send_signal(signum)
        time.sleep(pause)
    return end_of(process)


def wait_until(process: subprocess.Popen[str], condition: Callable[[], bool], pause: float = 0.001) -> bool:
    """Whether it came true while the process lived."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None:
            return condition()
        assert time.monotonic() < limit, "the process neither ended nor did what was waited for"
        time.sleep(pause)
    return True


def rows(out: Path) -> int:
    """Evaluations in `metrics.csv`."""
    with suppress(FileNotFoundError):
        return max(0, (out / "metrics.csv").read_text().count("\n") - 1)
    return 0


def partial(out: Path) -> set[tuple[str, int]]:
    """Checkpoints that are being written, or were when a process ended: the slot, and when."""
    found = set()
    for slot in SLOTS:
        with suppress(FileNotFoundError):
            found.add((slot, (out / "checkpoint" / slot / ".state.partial").stat().st_mtime_ns))
    return found


def saved(out: Path) -> int | None:
    """Steps (offline: updates) of the newest checkpoint; a damaged slot is an error."""
    found = [slot for name in SLOTS if (slot := read_slot(out / "checkpoint" / name)) is not None]
    return max(found, key=lambda slot: slot.number).facts["done"] if found else None


def result(out: Path) -> tuple[bytes, list[list[str]]]:
    """Policy and metrics, without the clock."""
    table = [line.split(",") for line in (out / "metrics.csv").read_text().splitlines()]
    clock = table[0].index("wall_seconds")
    return (out / "policy.safetensors").read_bytes(), [row[:clock] + row[clock + 1 :] for row in table]


def same(left: Path, right: Path) -> bool:
    return result(left) == result(right)


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Of the processes among which pytest-xdist divides the tests."""
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
