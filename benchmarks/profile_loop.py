"""Where the time of an online run goes: `python benchmarks/profile_loop.py DEMOS OUT.json [--steps N]`.

A run of HalfCheetah-v5 as `valuedice train` makes it, in a folder, with a clock around each part. The clocks are
read a few times an environment step, which costs microseconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from valuedice import ValueDICE, load_demos
from valuedice.system.machine import hardware, keep_compiled, threads, versions

seconds: dict[str, float] = defaultdict(float)


def clocked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its time added up; the compiled update is waited for, as the loop itself does."""

    def wrapper(*args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        result = function(*args, **options)
        if part == "compiled update":
            jax.block_until_ready(result)
        seconds[part] += time.perf_counter() - begin
        return result

    return wrapper


def main() -> None:
    """Trains once, and writes the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demos")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    keep_compiled()
    from valuedice import explore, keeper, learner, runs, task, train

    begin = time.perf_counter()
    learner.run_updates = clocked("compiled update", learner.run_updates)
    learner.Learner.draw = clocked("drawing batches", learner.Learner.draw)
    task.Task.returns = clocked("evaluation: 10 episodes", task.Task.returns)
    learner.Learner.measure = clocked("evaluation: divergence and diagnostics", learner.Learner.measure)
    runs.RunFolder.log = clocked("run folder", runs.RunFolder.log)
    runs.RunFolder.save_policy = clocked("run folder", runs.RunFolder.save_policy)
    runs.RunFolder.__init__ = clocked("run folder", runs.RunFolder.__init__)
    keeper.Keeper.save = clocked("checkpoints", keeper.Keeper.save)
    task.Task.open = clocked("start: environments", task.Task.open)
    learner.start = clocked("start: networks", learner.start)
    explore.explore = clocked("acting (and copying the policy)", explore.explore)
    demos = load_demos(options.demos, 1, 0)
    with tempfile.TemporaryDirectory() as folder:
        train(ValueDICE(), demos, "HalfCheetah-v5", steps=options.steps, seed=0, out=Path(folder) / "run")
    total = time.perf_counter() - begin
    seconds["environment steps, replay, the rest"] = total - sum(seconds.values())
    parts = {
        name: {"seconds": round(value, 2), "share": round(value / total, 4)} for name, value in seconds.items()
    }
    about = {"steps": options.steps, "threads": threads(), "seconds": round(total, 1)}
    report = about | {"parts": parts, "hardware": hardware(), "versions": versions()}
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    for name, part in sorted(parts.items(), key=lambda item: -item[1]["seconds"]):
        print(f"{name:42} {part['seconds']:8.2f} s {part['share']:7.2%}")


if __name__ == "__main__":
    main()
