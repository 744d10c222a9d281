"""Where the time of an online run goes: `python benchmarks/profile_loop.py DEMOS OUT.json [--steps N]`.

A run of HalfCheetah-v5 as `valuedice train` makes it, in a folder, with a clock around each part. The clocks are
read a few times an environment step, which costs microseconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from valuedice import ValueDICE, load_demos
from valuedice.machine import hardware, keep_compiled, threads, versions

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
    import valuedice.train as loaded  # noqa: F401
    from valuedice import evaluate, explore, runs  # noqa: F401

    loop: Any = sys.modules["valuedice.train"]
    steps: Any = sys.modules["valuedice.explore"]
    begin = time.perf_counter()
    loop.run_updates = clocked("compiled update", loop.run_updates)
    loop.Learner.draw = clocked("drawing batches", loop.Learner.draw)
    loop.Task.returns = clocked("evaluation: 10 episodes", loop.Task.returns)
    loop.Learner.measure = clocked("evaluation: divergence and diagnostics", loop.Learner.measure)
    loop.RunFolder.log = clocked("run folder", loop.RunFolder.log)
    loop.RunFolder.save_policy = clocked("run folder", loop.RunFolder.save_policy)
    loop.Task.open = clocked("start: environments", loop.Task.open)
    loop.start = clocked("start: networks", loop.start)
    steps.noisy_action = clocked("acting (and copying the policy)", steps.noisy_action)
    demos = load_demos(options.demos, 1, 0)
    with tempfile.TemporaryDirectory() as folder:
        loop.train(ValueDICE(), demos, "HalfCheetah-v5", steps=options.steps, seed=0, out=Path(folder) / "run")
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
