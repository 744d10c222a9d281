"""Table and figure of the runs of `comparison.py`: `python benchmarks/comparison_figure.py results/comparison`.

A panel for each task, a line for each algorithm: the mean of the seeds, and a band from the lowest to the highest.
Cloning takes no steps; its last policies are shown at the right. Writes `table.csv` and `comparison.png`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from comparison import TASKS
from curves import Run, experiments, write_table
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

LOOKS = {
    "value-dice": ("ValueDICE", "#1f5fbf", "-"),
    "dac": ("DAC", "#d95f02", "-"),
    "dac-paper": ("DAC, paper's settings", "#d95f02", "--"),
    "dual-dice": ("DualDICE", "#1b9e77", "-"),
    "gail": ("GAIL", "#7570b3", "-"),
    "bc": ("cloning", "#666666", "-"),
    "bc-paper": ("cloning, paper's settings", "#666666", "--"),
}
CLONING = {"bc": (21.0, "o", "#666666"), "bc-paper": (21.8, "s", "white")}
"""Place, marker and fill of the two that take no steps."""


def draw(axes: Any, task: str, groups: dict[str, list[Run]]) -> None:
    """One task."""
    for name, (label, color, dashes) in LOOKS.items():
        runs = groups[f"{task}-{name}"]
        returns = np.array([run["normalized_return"] for run in runs])
        mean, low, high = returns.mean(0), returns.min(0), returns.max(0)
        if name in CLONING:
            place, marker, fill = CLONING[name]
            bar = [[mean[-1] - low[-1]], [high[-1] - mean[-1]]]
            look: dict[str, Any] = {"color": color, "linestyle": "none", "marker": marker, "markerfacecolor": fill}
            axes.errorbar([place], [mean[-1]], bar, capsize=2, label=label, **look)
        else:
            steps = runs[0]["step"] / 1000
            axes.plot(steps, mean, color=color, linestyle=dashes, linewidth=1.8, label=label)
            axes.fill_between(steps, low, high, color=color, alpha=0.1, linewidth=0)
    axes.axhline(1, color="black", linestyle=":", linewidth=1)
    axes.text(0.2, 1.02, "expert", va="bottom", fontsize=8)
    axes.set_title(task, fontsize=10)
    axes.set_xlabel("thousand environment steps")
    axes.set_xlim(0, 22.6)
    axes.set_xticks(range(0, 21, 5))
    axes.set_ylim(-0.25, 1.15)
    axes.spines[["top", "right"]].set_visible(False)


def main(folder: Path) -> None:
    """The tasks side by side, with one legend."""
    groups = experiments(folder)
    write_table(groups, folder / "table.csv")
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(TASKS), sharey=True)
    for axes, task in zip(panels, TASKS, strict=True):
        draw(axes, task, groups)
    panels[0].set_ylabel("normalised return")
    about = "mean of 3 seeds, shaded from the lowest to the highest; cloning takes no steps: at the right"
    figure.supxlabel(about, fontsize=8, color="#444444")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(folder / "comparison.png", dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
