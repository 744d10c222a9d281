"""The runs of `comparison.py` in a table and a figure: `python benchmarks/comparison_figure.py results/comparison`.

A panel for each task, a line for each algorithm: the mean of its seeds, and a band from the least to the most.
Behavioural cloning takes no steps in the environment: at the right edge, the mean of its last policies, and their
range. Writes `table.csv` and `comparison.png` beside the runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from comparison import CONTESTANTS, TASKS
from curves import experiments, write_table
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

LOOKS: dict[str, tuple[str, str, str]] = {
    "value-dice": ("ValueDICE", "#1f5fbf", "-"),
    "dac": ("DAC", "#d95f02", "-"),
    "dac-paper": ("DAC, paper's settings", "#d95f02", "--"),
    "dual-dice": ("DualDICE", "#1b9e77", "-"),
    "gail": ("GAIL", "#7570b3", "-"),
    "bc": ("cloning", "#666666", "-"),
    "bc-paper": ("cloning, paper's settings", "#666666", "--"),
}
assert LOOKS.keys() == CONTESTANTS.keys()


def draw(axes: Any, task: str, groups: dict[str, list[dict[str, np.ndarray]]]) -> None:
    """One task."""
    for name, (label, color, dashes) in LOOKS.items():
        runs = groups.get(f"{task}-{name}")
        if runs is None:
            continue
        returns = np.array([run["normalized_return"] for run in runs])
        if not runs[0]["step"].any():
            last, place = returns[:, -1], 21.0 if name == "bc" else 21.8
            span = [[last.mean() - last.min()], [last.max() - last.mean()]]
            marker = {
                "marker": "o" if dashes == "-" else "s",
                "markerfacecolor": color if dashes == "-" else "white",
            }
            axes.errorbar(
                [place], [last.mean()], span, color=color, linestyle="none", capsize=2, label=label, **marker
            )
            continue
        steps = runs[0]["step"] / 1000
        axes.plot(steps, returns.mean(0), color=color, linestyle=dashes, linewidth=1.8, label=label)
        axes.fill_between(steps, returns.min(0), returns.max(0), color=color, alpha=0.1, linewidth=0)
    axes.axhline(1, color="black", linestyle=":", linewidth=1)
    axes.text(0.2, 1.02, "expert", va="bottom", fontsize=8)
    axes.set_title(task, fontsize=10)
    axes.set_xlabel("thousand environment steps")
    axes.set_xlim(0, 22.6)
    axes.set_xticks(range(0, 21, 5))
    axes.set_ylim(-0.25, 1.15)
    axes.spines[["top", "right"]].set_visible(False)


def main(folder: Path) -> None:
    """Both tasks side by side, with one legend."""
    groups = experiments(folder)
    write_table(groups, folder / "table.csv")
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(TASKS), sharey=True)
    for axes, task in zip(panels, TASKS, strict=True):
        draw(axes, task, groups)
    panels[0].set_ylabel("normalised return")
    seeds = sorted({len(runs) for name, runs in groups.items() if name.partition("-v5-")[2] in LOOKS})
    counted = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    about = f"mean of {counted} seeds, shaded from the least to the most; cloning takes no steps: at the right"
    figure.supxlabel(about, fontsize=8, color="#444444")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(folder / "comparison.png", dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
