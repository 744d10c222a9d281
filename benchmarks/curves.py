"""Tables and learning curves of run folders: `python benchmarks/curves.py results/online results/offline`.

In each folder, the runs `NAME-seedN` of one NAME are one experiment. Writes `table.csv` and `curves.png` into it.
The table counts the last evaluation of every seed, never the best one.
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

Run = dict[str, np.ndarray]
HEADER = ["experiment", "seeds", "expert_return", "return_mean", "normalized_mean", "normalized", "last_quarter"]


def read(run: Path) -> Run:
    """Columns of `metrics.csv`. An expert's run also has its target return as a column."""
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
    target = json.loads((run / "config.json").read_text()).get("target_return")
    return columns if target is None else columns | {"target": np.full(len(rows), target)}


def experiments(folder: Path) -> dict[str, list[Run]]:
    """The runs of each experiment, ordered by seed."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(path.parent for path in folder.glob("*-seed*/metrics.csv")):
        groups[run.name.rpartition("-seed")[0]].append(read(run))
    return groups


def write_table(groups: dict[str, list[Run]], path: Path) -> None:
    """Last evaluation of every seed, and their mean; `last_quarter` is the mean over the last quarter of them."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(HEADER)
        for name, runs in groups.items():
            returns = np.mean([run["return_mean"][-1] for run in runs])
            scores = np.array([run["normalized_return"][-1] for run in runs])
            late = np.mean([run["normalized_return"][-(len(run["step"]) // 4) :].mean() for run in runs])
            row = [f"{runs[0]['expert_return'][-1]:.0f}", f"{returns:.0f}", f"{scores.mean():.3f}"]
            row += [" ".join(f"{score:.3f}" for score in scores), f"{late:.3f}"]
            table.writerow([name, len(runs), *("" if "nan" in entry else entry for entry in row)])


def draw(groups: dict[str, list[Run]], path: Path) -> None:
    """A panel for each experiment: each seed thin, their mean thick, the expert or the target dashed."""
    figure = Figure(figsize=(3.6 * len(groups), 3.0), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, runs) in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups.items(), strict=True):
        clock, unit = ("step", "environment steps") if runs[0]["step"].any() else ("updates", "updates")
        for run in runs:
            axes.plot(run[clock], run["return_mean"], color="tab:blue", alpha=0.35, linewidth=1)
        mean = np.mean([run["return_mean"] for run in runs], axis=0)
        label = f"mean of {len(runs)}" if len(runs) > 1 else "one run"
        axes.plot(runs[0][clock], mean, color="tab:blue", linewidth=2, label=label)
        goal, column = ("target", "target") if "target" in runs[0] else ("expert", "expert_return")
        axes.axhline(runs[0][column][-1], color="black", linestyle="--", linewidth=1, label=goal)
        axes.set_title(name, fontsize=10)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda count, _: f"{count / 1000:,g}")
        axes.set_xlabel(f"thousand {unit}")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("return of the mean action")
    figure.axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        found = experiments(folder)
        write_table(found, folder / "table.csv")
        draw(found, folder / "curves.png")
