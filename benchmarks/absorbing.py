"""What the exact weight of the absorbing state changes: `python benchmarks/absorbing.py results/absorbing`.

An expert whose every episode ends in the task, and ValueDICE with the weights that the flow equation asks for
(`exact`) or one ordinary row for the absorbing state (`single`), offline and online, each with every seed.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import valuedice as vd

ENV = "MountainCarContinuous-v0"
SEEDS = (0, 1, 2)
QUICK: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128, "actor_lr": 3e-4}
ONLINE: dict[str, Any] = {"random_steps": 500, "training_starts": 500, "updates_per_step": 2}


def main(out: Path) -> None:
    """One row for each run."""
    demos = vd.collect_demos("valuedice.scripted:mountain_car", ENV, episodes=3, seed=0, noise=0.3)
    lengths = [len(episode) for episode in demos.episodes]
    print(f"expert: {demos.expert_return:.1f}, lengths {lengths}, all terminated")
    out.mkdir(parents=True, exist_ok=True)
    with (out / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["mode", "absorbing", "seed", "expert_return", "return_mean", "kl_estimate"])
        for mode in ("offline", "online"):
            for absorbing in ("exact", "single"):
                for seed in SEEDS:
                    last = train(mode, absorbing, seed, demos).metrics[-1]
                    numbers = [f"{last[name]:.3f}" for name in ("expert_return", "return_mean", "kl_estimate")]
                    table.writerow([mode, absorbing, seed, *numbers])
                    file.flush()
                    print(mode, absorbing, seed, *numbers)


def train(mode: str, absorbing, seed: int, demos: vd.Demos) -> vd.Run:
    """One run."""
    if mode == "offline":
        algorithm = vd.ValueDICE(**QUICK, absorbing=absorbing)
        return vd.train(
            algorithm, demos, None, updates=4_000, eval_env=ENV, eval_every=4_000, seed=seed, quiet=True
        )
    algorithm = vd.ValueDICE(**QUICK, **ONLINE, absorbing=absorbing)
    return vd.train(algorithm, demos, ENV, steps=2_500, eval_every=2_500, seed=seed, quiet=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
