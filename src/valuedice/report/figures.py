"""Draws the figures of a report, as PNG or PDF files in memory."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from valuedice.report.curves import AXIS_TITLES, METRIC_TITLES, Line, Panel, panels_of
from valuedice.report.palette import Look, looks_of
from valuedice.report.records import Metric, Run, contestants_of
from valuedice.report.statistics import Aggregate, Estimate, aggregates

INK, QUIET, GRID = "#1f2933", "#7b8794", "#e6eaee"
COLUMNS = 4
"""Panels in a row."""
LEVEL_DASHES = (0, (5, 1.5, 1, 1.5))
"""The line of a contestant that takes no steps."""
UNDATED: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
"""Equal numbers make equal files."""


def figures(runs: Sequence[Run], kinds: Sequence[str], *, normalized: bool) -> dict[str, bytes]:
    """The files by name. A figure without anything to show is left out."""
    panels = panels_of(runs)
    titles = {name: plain(title) for name, title in contestants_of(runs).items()}
    looks = looks_of(titles)
    metrics: dict[str, Metric] = {
        "curves": "normalized_return" if normalized else "return_mean",
        "kl": "kl_estimate",
        "distance": "distance",
    }
    drawn = {name: draw_curves(panels, metric, titles, looks) for name, metric in metrics.items()}
    drawn["aggregate"] = draw_aggregates(aggregates(runs), titles, looks)
    return {f"{name}.{kind}": saved(figure, kind) for name, figure in drawn.items() if figure for kind in kinds}


def plain(text: str) -> str:
    """Text that matplotlib draws as it is: it reads dollars as mathematics, and hides labels that begin with _."""
    text = text.encode(errors="replace").decode().replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def saved(figure: Figure, kind: str) -> bytes:
    """The figure as a file."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=150, metadata=UNDATED[kind])
    return file.getvalue()


def draw_curves(
    panels: Sequence[Panel], metric: Metric, titles: dict[str, str], looks: dict[str, Look]
) -> Figure | None:
    """A panel for each task, as in the paper: means over seeds, half a standard deviation shaded. Each regime
    begins a row."""
    shown = [panel for panel in panels if any(metric in {*line.curves, *line.levels} for line in panel.lines)]
    places: dict[tuple[int, int], Panel] = {}
    row = column = -1
    for place, panel in enumerate(shown):
        fresh = place == 0 or panel.regime != shown[place - 1].regime or column + 1 == COLUMNS
        row, column = (row + 1, 0) if fresh else (row, column + 1)
        places[row, column] = panel
    if not places:
        return None
    columns = max(column for _, column in places) + 1
    names = [name for name in titles if any(name == line.contestant for panel in shown for line in panel.lines)]
    width = max(3.3 * columns, 4.6)
    # A letter of the legend is about this wide, and its line about this long, in inches.
    fitting = max(1, int(width / (0.075 * max(len(titles[name]) for name in names) + 0.6)))
    height = 2.5 * (row + 1) + 0.2 * -(-(len(names) + 1) // fitting) + 0.1
    figure = Figure(figsize=(width, height), layout="constrained")
    several = len({panel.regime for panel in shown}) > 1
    handles: dict[str, Any] = {}
    for (row_here, column_here), panel in places.items():
        axes = figure.add_subplot(row + 1, columns, row_here * columns + column_here + 1)
        handles |= draw_panel(axes, panel, metric, titles, looks)
        subtitle = f"\n{panel.regime.title}" if several and panel.regime.episodes else ""
        subtitle += "" if panel.finished else " (under way)"
        axes.set_title(plain(panel.task + subtitle), fontsize=10.5, color=INK)
        if column_here == 0:
            axes.set_ylabel(METRIC_TITLES[metric], color=INK)
    order = [title for title in [*titles.values(), "expert"] if title in handles]
    figure.legend(
        [handles[title] for title in order],
        order,
        loc="outside lower center",
        ncols=-(-len(order) // -(-len(order) // fitting)),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=2.6,
    )
    return figure


def draw_panel(
    axes: Axes, panel: Panel, metric: Metric, titles: dict[str, str], looks: dict[str, Look]
) -> dict[str, Any]:
    """The lines of a panel; gives back those for the legend by title."""
    style(axes)
    expert = {"return_mean": panel.expert, "normalized_return": 1.0 if panel.expert is not None else None}.get(
        metric
    )
    handles: dict[str, Any] = {}
    if expert is not None:
        handles["expert"] = axes.axhline(expert, color=INK, linestyle=(0, (1.5, 2)), linewidth=1.3)
    for line in panel.lines:
        if metric in line.curves or metric in line.levels:
            handles[titles[line.contestant]] = draw_line(axes, line, metric, looks[line.contestant])
    values = [curve.mean for line in panel.lines for name, curve in line.curves.items() if name == metric]
    least, most = (f(np.concatenate(values)) if values else 1.0 for f in (np.min, np.max))
    if metric not in ("return_mean", "normalized_return") and least > 0 and most / least > 1e3:
        axes.set_yscale("log")
    axes.set_xlabel(AXIS_TITLES[panel.axis], color=INK)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    return handles


def thousands(count: float, _: int | None = None) -> str:
    """A number on the axis."""
    return f"{count / 1e6:,g}M" if abs(count) >= 1e6 else f"{count / 1e3:,g}k" if count else "0"


def draw_line(axes: Axes, line: Line, metric: Metric, look: Look) -> Any:
    """A curve with its band, or the level of a contestant that takes no steps."""
    if metric in line.levels:
        return axes.axhline(line.levels[metric][0], color=look.light, linestyle=LEVEL_DASHES, linewidth=1.5)
    curve = line.curves[metric]
    dashes: Any = (0, look.dashes) if look.dashes else "-"
    marker = "o" if curve.x.size == 1 else ""
    (drawn,) = axes.plot(curve.x, curve.mean, color=look.light, linestyle=dashes, linewidth=1.7, marker=marker)
    if curve.std is not None:
        low, high = curve.mean - curve.std / 2, curve.mean + curve.std / 2
        axes.fill_between(curve.x, low, high, color=look.light, alpha=0.18, linewidth=0)
    return drawn


def style(axes: Axes) -> None:
    """Quiet axes."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8.5, color=QUIET)


def draw_aggregates(found: Sequence[Aggregate], titles: dict[str, str], looks: dict[str, Look]) -> Figure | None:
    """Interquartile mean and mean of normalised returns with their intervals; a row of panels for each regime."""
    if not found:
        return None
    regimes = list(dict.fromkeys(entry.regime for entry in found))
    blocks = [[entry for entry in found if entry.regime == regime] for regime in regimes]
    heights = [len(block) + 2.2 for block in blocks]
    ends = [end for entry in found for end in (*entry.iqm, *entry.mean) if end is not None]
    limits = min(0.0, *ends) - 0.03, max(1.0, *ends) + 0.03
    figure = Figure(figsize=(8.2, 0.3 * sum(heights) + 0.3), layout="constrained")
    grid = figure.add_gridspec(len(blocks), 2, height_ratios=heights)
    for row, block in enumerate(blocks):
        for column, name in enumerate(("IQM", "mean")):
            axes = figure.add_subplot(grid[row, column])
            style(axes)
            for place, entry in enumerate(block):
                draw_estimate(axes, place, entry.iqm if name == "IQM" else entry.mean, looks[entry.contestant])
            axes.set_ylim(len(block) - 0.5, -0.5)
            axes.set_yticks(range(len(block)), [titles[entry.contestant] for entry in block] if not column else [])
            axes.tick_params(axis="y", length=0)
            axes.spines["left"].set_visible(False)
            axes.grid(visible=False, axis="y")
            what = f"{block[0].regime.title}: {name}" if len(blocks) > 1 else name
            axes.set_title(f"{what} of normalised returns", fontsize=10, color=INK)
            axes.axvline(1, color=INK, linestyle=(0, (1.5, 2)), linewidth=1.1)
            axes.set_xlim(*limits)
    return figure


def draw_estimate(axes: Axes, place: int, estimate: Estimate, look: Look) -> None:
    """A bar over the interval, with the number in it."""
    if estimate.low is not None and estimate.high is not None:
        axes.barh(place, estimate.high - estimate.low, left=estimate.low, height=0.62, color=look.light, alpha=0.3)
    axes.vlines(estimate.value, place - 0.31, place + 0.31, color=look.light, linewidth=2.5)
