"""Seconds of wall time until one demonstration is imitated: `python benchmarks/time_to_result.py DEMOS OUT`.

Trains ValueDICE on HalfCheetah-v5 from one episode of DEMOS, with the paper's settings and with one thing changed
at a time, seeds 0 to 2, until an evaluation of 10 episodes reaches 0.9 of the expert. Every run is a process of its
own, and the clock starts with it, so that imports and compilation count. Processor time is noted too: with one
thread it is what the run takes on a core of its own, whatever else the machine does. Beside the policy itself, the
running mean of its weights is evaluated, off the clock. Runs that OUT already holds are not repeated.
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

ENV = "HalfCheetah-v5"
LEVELS = (0.8, 0.9)
EVERY = 250
STEPS = 8_000
SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "actor-lr-3e-5": {"actor_lr": 3e-5},
    "1-update-a-step-actor-lr-4e-5": {"updates_per_step": 1, "actor_lr": 4e-5},
    "8-updates-a-step": {"updates_per_step": 8},
    "batch-64": {"batch_size": 64},
}
MEAN_OVER = 100
"""Environment steps that the averaged actor remembers."""


def one_run(demos: Path, setting: str, seed: int, begin: float) -> dict[str, Any]:
    """Rows of (seconds, step, normalised return, that of the averaged actor, processor seconds)."""
    from valuedice.algorithms import ValueDICE
    from valuedice.demos import load_demos
    from valuedice.demos.rows import ExpertRows
    from valuedice.explore import Explorer
    from valuedice.learner import Learner
    from valuedice.machine import keep_compiled, threads
    from valuedice.policy import Policy
    from valuedice.replay import Replay
    from valuedice.task import Task
    from valuedice.training import Training

    keep_compiled()
    algorithm = ValueDICE(**SETTINGS[setting])
    episodes = load_demos(demos, 1, seed)
    task = Task.open(episodes, None, ENV, ENV, 10)
    normalizer = episodes.normalizer()
    expert = ExpertRows(episodes, task.spec, normalizer, algorithm.rows)
    replay = Replay(task.spec, STEPS)
    learner = Learner(algorithm, expert, replay, normalizer, task.spec, seed)
    exploration = {"random_steps": algorithm.random_steps, "noise": algorithm.exploration_noise, "seed": seed}
    training = Training(learner, Explorer(task.envs[0], replay, task.spec, normalizer, **exploration))
    mean = learner.policy.layers
    rows: list[tuple[float, int, float, float, float]] = []
    unclocked = 0.0
    for step in training.advance(STEPS, EVERY):
        pairs = zip(mean, learner.policy.layers, strict=True)
        mean = tuple((k + (kernel - k) / MEAN_OVER, b + (bias - b) / MEAN_OVER) for (k, b), (kernel, bias) in pairs)
        if step % EVERY or step <= algorithm.training_starts:
            continue
        result = task.returns(learner.policy, [seed, step])["normalized_return"]
        now, used = time.time(), time.process_time()
        averaged = task.returns(Policy(mean, normalizer, task.spec), [seed, step])["normalized_return"]
        clocks = round(now - begin, 1), round(used - unclocked, 1)
        begin, unclocked = begin + time.time() - now, unclocked + time.process_time() - used
        rows.append((clocks[0], step, round(result, 4), round(averaged, 4), clocks[1]))
        if all(any(row[column] >= LEVELS[-1] for row in rows) for column in (2, 3)):
            break
    return {"setting": setting, "seed": seed, "threads": threads(), "updates": learner.updates, "rows": rows}


def first(rows: list[list[float]], level: float, column: int, threads: int) -> float | None:
    """Seconds at the first evaluation that reached the level: of the clock, or with one thread of the processor."""
    return next((row[-1] if threads == 1 else row[0] for row in rows if row[column] >= level), None)


def tabulate(out: Path) -> None:
    """A line for each setting: every seed, and their median."""
    with (out / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["setting", "threads", "policy", "level", "median_seconds", "seconds_of_each_seed"])
        for setting in SETTINGS:
            runs = [json.loads(path.read_text()) for path in sorted(out.glob(f"{setting}-threads*-seed*.json"))]
            for threads in sorted({run["threads"] for run in runs}):
                group = [run["rows"] for run in runs if run["threads"] == threads]
                for column, policy in ((2, "last"), (3, "averaged")):
                    for level in LEVELS:
                        times = [first(rows, level, column, threads) for rows in group]
                        known = [np.inf if seconds is None else seconds for seconds in times]
                        row = [setting, threads, policy, level, np.median(known)]
                        table.writerow([*row, " ".join("never" if t is None else str(t) for t in times)])
                        print(*row, times)


def main() -> None:
    """Starts the runs one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demos", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one_run(options.demos, options.settings[0], options.seeds[0], options.one)))
        return
    from valuedice.machine import threads

    options.out.mkdir(parents=True, exist_ok=True)
    for setting in options.settings:
        for seed in options.seeds:
            path = options.out / f"{setting}-threads{threads()}-seed{seed}.json"
            if not path.exists():
                command = [sys.executable, __file__, str(options.demos), str(options.out), "--settings", setting]
                command += ["--seeds", str(seed), "--one", str(time.time())]
                path.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
                print(path, flush=True)
    tabulate(options.out)


if __name__ == "__main__":
    main()
