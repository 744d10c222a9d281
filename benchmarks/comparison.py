"""The algorithms side by side: `python benchmarks/comparison.py DEMOS_FOLDER RUNS [--only NAME ...]`.

One trajectory, 20,000 environment steps, seeds 0 to 2, one thread a run. Behavioural cloning takes no steps: it has
20,000 updates, with the paper's small step 80,000, about as many as ValueDICE makes. A run that is finished is left
alone, one that was interrupted goes on, so this can be started again at any time; start it once for each core, with
another part of the work. `python benchmarks/comparison_figure.py RUNS` makes table and figure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

CONTESTANTS: dict[str, list[str]] = {
    "value-dice": ["value-dice"],
    "dac": ["dac"],
    "dac-paper": ["dac", "--preset", "paper"],
    "dual-dice": ["dual-dice"],
    "bc": ["bc"],
    "bc-paper": ["bc", "--preset", "paper"],
    "gail": ["gail"],
}
BUDGETS = {
    "bc": ["--updates", "20000"],
    "bc-paper": ["--updates", "80000", "--eval-every", "4000"],
}
STEPS = ["--steps", "20000"]
TASKS = ("HalfCheetah-v5", "Hopper-v5")
SEEDS = (0, 1, 2)


def main() -> None:
    """One run after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demos", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--only", nargs="*", default=list(CONTESTANTS))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    options = parser.parse_args()
    command = [sys.executable, "-m", "valuedice.cli", "train"]
    for seed in options.seeds:
        for task in options.tasks:
            for name in options.only:
                out = options.runs / f"{task}-{name}-seed{seed}"
                if (out / "summary.json").exists():
                    continue
                if (out / "config.json").exists():
                    words = ["--resume", str(out)]
                else:
                    words = [*CONTESTANTS[name], "--env", task, "--demos", str(options.demos / f"{task}.npz")]
                    words += ["--episodes", "1", *BUDGETS.get(name, STEPS), "--seed", str(seed)]
                    words += ["--threads", "1", "--out", str(out)]
                print(*words, flush=True)
                # One that diverges has said so in its folder, and the others are not kept waiting.
                subprocess.run([*command, *words], check=False)


if __name__ == "__main__":
    main()
