"""Runs the algorithms side by side: `python benchmarks/comparison.py DEMOS_FOLDER RUNS [NAME ...]`.

One trajectory, 20,000 environment steps, seeds 0 to 2, one thread a run. Cloning takes no steps: it makes 20,000
updates, with the paper's settings 80,000. Finished runs are skipped and interrupted ones resumed, so it can be
started again at any time. To use several cores, start it once for each with different NAMEs.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

CONTESTANTS = {
    "value-dice": "value-dice --steps 20000",
    "dac": "dac --steps 20000",
    "dac-paper": "dac --preset paper --steps 20000",
    "dual-dice": "dual-dice --steps 20000",
    "bc": "bc --updates 20000",
    "bc-paper": "bc --preset paper --updates 80000 --eval-every 4000",
    "gail": "gail --steps 20000",
}
TASKS = ("HalfCheetah-v5", "Hopper-v5")


def main(demos: Path, runs: Path, *names: str) -> None:
    """One run after the other."""
    for seed, task, name in product((0, 1, 2), TASKS, names or CONTESTANTS):
        out = runs / f"{task}-{name}-seed{seed}"
        if (out / "summary.json").exists():
            continue
        words = [*CONTESTANTS[name].split(), "--env", task, "--demos", str(demos / f"{task}.npz")]
        words += ["--episodes", "1", "--seed", str(seed), "--threads", "1", "--out", str(out)]
        if (out / "config.json").exists():
            words = ["--resume", str(out)]
        print(*words, flush=True)
        # A run that diverges says so in its folder; the others still run.
        subprocess.run([sys.executable, "-m", "valuedice.cli", "train", *words], check=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
