"""Table and learning curves of run folders: `python benchmarks/curves.py results/online results/offline`.

In each folder given, the runs `NAME-seedN` with the same NAME are one experiment. Writes `table.csv` and
`curves.png` beside them. Every seed is shown, and what counts is the last evaluation.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def read(run: Path) -> dict[str, np.ndarray]:
    """Columns of a run's metrics. What an expert in the making is measured by is its target."""
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
    target = json.loads((run / "config.json").read_text()).get("target_return")
    return columns if target is None else columns | {"target": np.full(len(rows), target)}


def experiments(folder: Path) -> dict[str, list[dict[str, np.ndarray]]]:
    """Runs by experiment, in the order of their seeds."""
    groups: dict[str, list[dict[str, np.ndarray]]] = defaultdict(list)
    for run in sorted(path.parent for path in folder.glob("*-seed*/metrics.csv")):
        groups[run.name.rpartition("-seed")[0]].append(read(run))
    return groups


def write_table(groups: dict[str, list[dict[str, np.ndarray]]], path: Path) -> None:
    """The last evaluation of every seed, and their mean; `last_quarter` is the mean of all late evaluations."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            ["experiment", "seeds", "expert_return", "return_mean", "normalized_mean", "normalized", "last_quarter"]
        )
        for name, runs in groups.items():
            last = np.array([run["return_mean"][-1] for run in runs])
            normalized = np.array([run["normalized_return"][-1] for run in runs])
            row = [name, len(runs), f"{runs[0]['expert_return'][-1]:.0f}", f"{last.mean():.0f}"]
            row += [f"{normalized.mean():.3f}", " ".join(f"{value:.3f}" for value in normalized)]
            late = [run["normalized_return"][-(len(run["step"]) // 4) :].mean() for run in runs]
            row.append(f"{np.mean(late):.3f}")
            row = [name, *("" if "nan" in str(entry) else entry for entry in row[1:])]
            table.writerow(row)
            print(*row, sep=", ")


def draw(groups: dict[str, list[dict[str, np.ndarray]]], path: Path) -> None:
    """A panel for each experiment: every seed thin, their mean thick, the expert dashed."""
    figure = Figure(figsize=(3.6 * len(groups), 3.0), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, runs) in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups.items(), strict=True):
        clock = "step" if runs[0]["step"].any() else "updates"
        for run in runs:
            axes.plot(run[clock], run["return_mean"], color="tab:blue", alpha=0.35, linewidth=1)
        mean = np.mean([run["return_mean"] for run in runs], axis=0)
        label = f"mean of {len(runs)}" if len(runs) > 1 else "one run"
        axes.plot(runs[0][clock], mean, color="tab:blue", linewidth=2, label=label)
        goal = "target" if "target" in runs[0] else "expert"
        level = runs[0].get("target", runs[0]["expert_return"])[-1]
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label=goal)
        axes.set_title(name, fontsize=10)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda count, _: f"{count / 1000:,g}")
        axes.set_xlabel(f"thousand {'environment steps' if clock == 'step' else 'updates'}")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("return of the mean action")
    figure.axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        found = experiments(folder)
        write_table(found, folder / "table.csv")
        draw(found, folder / "curves.png")
