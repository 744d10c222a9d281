"""Which settings serve behavioural cloning: `python benchmarks/bc_settings.py DEMOS_FOLDER OUT.csv`.

One episode of each of the four tasks, 10,000 updates, the last policy over 10 episodes; one thing changed at a
time. The seeds, 100 and 101, are none of those that results are reported with. A row is added as soon as it is
known, and rows that OUT already holds are not repeated.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import valuedice as vd

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5")
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lr 1e-4": {"lr": 1e-4},
    "clip 1e-6": {"action_clip": 1e-6},
    "clip 1e-1": {"action_clip": 1e-1},
    "decay 1e-1": {"weight_decay": 1e-1},
    "decay 1": {"weight_decay": 1.0},
    "orthogonal 1e-3": {"orthogonal_penalty": 1e-3},
    "orthogonal 1e-1": {"orthogonal_penalty": 1e-1},
}
PLAIN: dict[str, Any] = {"lr": 1e-3, "action_clip": 1e-2, "weight_decay": 0.0, "orthogonal_penalty": 0.0}
UPDATES = 10_000


def main() -> None:
    """Seed by seed, so that an interrupted sweep is still a fair one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demos", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", nargs="*", type=int, default=[100, 101])
    options = parser.parse_args()
    known: dict[tuple[str, str, int], float] = {}
    if options.out.exists():
        with options.out.open() as file:
            rows = list(csv.DictReader(file))
        known = {(r["setting"], r["task"], int(r["seed"])): float(r["normalized_return"]) for r in rows}
    else:
        options.out.write_text("setting,task,seed,normalized_return\n")
    for seed in options.seeds:
        for setting, changes in SETTINGS.items():
            for task in TASKS:
                if (setting, task, seed) in known:
                    continue
                demos = vd.load_demos(options.demos / f"{task}.npz", episodes=1, seed=seed)
                algorithm = vd.BC(**(PLAIN | changes))
                run = vd.train(algorithm, demos, task, updates=UPDATES, eval_every=UPDATES, seed=seed, quiet=True)
                known[setting, task, seed] = run.metrics[-1]["normalized_return"]
                with options.out.open("a") as file:
                    file.write(f"{setting},{task},{seed},{known[setting, task, seed]:.4f}\n")
    means: dict[str, list[float]] = defaultdict(list)
    for (setting, _, _), value in known.items():
        means[setting].append(value)
    for setting, values in sorted(means.items(), key=lambda item: -np.mean(item[1])):
        print(f"{setting:16} mean {np.mean(values):.3f}, least {min(values):.3f}, of {len(values)}")


if __name__ == "__main__":
    main()
