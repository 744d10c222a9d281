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
    from valuedice.training import acting, batches, evaluation, learner, run, run_folder

    places: list[tuple[str, Any, str]] = [
        ("compiled update", learner, "run_updates"),
        ("drawing batches", batches.Batches, "take"),
        ("evaluation: 10 episodes", evaluation.Evaluation, "returns"),
        ("evaluation: divergence and diagnostics", learner.Learner, "measure"),
        ("run folder", run_folder.RunFolder, "log"),
        ("run folder", run_folder.RunFolder, "__init__"),
        ("checkpoints", run_folder.RunFolder, "save"),
        ("start: environments", run, "Evaluator"),
        ("start: networks", learner, "start"),
        ("acting", acting, "explore"),
    ]
    for part, place, name in places:
        setattr(place, name, clocked(part, getattr(place, name)))
    begin = time.perf_counter()
    demos = load_demos(options.demos, 1, 0)
    with tempfile.TemporaryDirectory() as folder:
        run.train(ValueDICE(), demos, "HalfCheetah-v5", steps=options.steps, seed=0, out=Path(folder) / "run")
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
