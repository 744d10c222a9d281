"""Seconds until one demonstration is imitated: `python benchmarks/time_to_result.py DEMOS OUT`.

Trains ValueDICE on HalfCheetah-v5 from one episode, with the paper's settings and with one setting changed at a
time, seeds 0 to 2, until an evaluation of 10 episodes reaches 0.9 of the expert. Each run is a process of its own,
and its clock includes imports and compilation. With one thread the table shows processor seconds, which other
programs on the machine do not change. Runs that OUT already holds are skipped.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LEVELS = (0.8, 0.9)
SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "actor-lr-3e-5": {"actor_lr": 3e-5},
    "1-update-a-step-actor-lr-4e-5": {"updates_per_step": 1, "actor_lr": 4e-5},
    "8-updates-a-step": {"updates_per_step": 8},
    "batch-64": {"batch_size": 64},
}


def one_run(demos: Path, setting: str, seed: int, begin: float) -> dict[str, Any]:
    """Rows of (seconds, step, normalised return, processor seconds)."""
    import valuedice as vd
    from valuedice.system.machine import keep_compiled, threads

    keep_compiled()
    rows: list[tuple[float, int, float, float]] = []

    def note(progress: Any) -> bool:
        clocks = round(time.time() - begin, 1), round(time.process_time(), 1)
        rows.append((clocks[0], progress.step, round(progress.metrics["normalized_return"], 4), clocks[1]))
        return rows[-1][2] >= LEVELS[-1]

    options: dict[str, Any] = {
        "steps": 8_000,
        "eval_every": 250,
        "seed": seed,
        "quiet": True,
        "on_evaluation": note,
    }
    episodes = vd.load_demos(demos, episodes=1, seed=seed)
    vd.train(vd.ValueDICE(**SETTINGS[setting]), episodes, "HalfCheetah-v5", **options)
    return {"setting": setting, "seed": seed, "threads": threads(), "rows": rows}


def first(run: dict[str, Any], level: float) -> float:
    """Seconds to the first evaluation at that level: of the processor with one thread, else of the clock."""
    clock = -1 if run["threads"] == 1 else 0
    return next((row[clock] for row in run["rows"] if row[2] >= level), np.inf)


def tabulate(out: Path) -> None:
    """A line for each setting: every seed, and their median."""
    with (out / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["setting", "threads", "level", "median_seconds", "seconds_of_each_seed"])
        for setting in SETTINGS:
            runs = [json.loads(path.read_text()) for path in sorted(out.glob(f"{setting}-threads*-seed*.json"))]
            for threads in sorted({run["threads"] for run in runs}):
                for level in LEVELS:
                    times = [first(run, level) for run in runs if run["threads"] == threads]
                    each = " ".join("never" if spent == np.inf else str(spent) for spent in times)
                    table.writerow([setting, threads, level, np.median(times), each])


def main() -> None:
    """Starts the runs one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demos", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        setting, seed, begin = options.one
        print(json.dumps(one_run(options.demos, setting, int(seed), float(begin))))
        return
    from valuedice.system.machine import threads

    options.out.mkdir(parents=True, exist_ok=True)
    for setting in SETTINGS:
        for seed in range(3):
            path = options.out / f"{setting}-threads{threads()}-seed{seed}.json"
            if not path.exists():
                command = [sys.executable, __file__, str(options.demos), str(options.out)]
                command += ["--one", setting, str(seed), str(time.time())]
                path.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
                print(path, flush=True)
    tabulate(options.out)


if __name__ == "__main__":
    main()
