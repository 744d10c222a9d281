"""Learning curves: the mean of a group's runs and its spread, over environment steps or updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from valuedice.report.records import (
    METRICS,
    Metric,
    Regime,
    Run,
    contestants_of,
    counted,
    groups_of,
    regimes_of,
    tasks_of,
)
from valuedice.report.statistics import Scores, last_values, mean_of, std_of

Axis = Literal["step", "updates"]
AXIS_TITLES: dict[Axis, str] = {"step": "environment steps", "updates": "updates"}
METRIC_TITLES: dict[Metric, str] = {
    "return_mean": "return",
    "normalized_return": "normalised return",
    "kl_estimate": "KL estimate",
    "distance": "distance to the expert",
}
Points = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The mean of some runs, where all of them have been."""

    x: Points
    mean: Points
    std: Points | None
    """Sample standard deviation over runs; None of one run."""
    runs: int


@dataclass(frozen=True)
class Line:
    """One contestant in a panel: a curve for each metric, or a level if it takes no steps where others do."""

    contestant: str
    runs: tuple[Run, ...]
    finished: bool
    curves: dict[Metric, Curve]
    levels: dict[Metric, tuple[float, float | None]]
    """Mean and standard deviation of the last evaluation."""


@dataclass(frozen=True)
class Panel:
    """The contestants of one task and regime."""

    task: str
    regime: Regime
    axis: Axis
    expert: float | None
    lines: tuple[Line, ...]

    @property
    def finished(self) -> bool:
        """Whether no line shows runs that are under way."""
        return all(line.finished for line in self.lines)


def panels_of(runs: Sequence[Run]) -> list[Panel]:
    """A panel for each task and regime that has evaluations."""
    groups = groups_of(runs)
    order = list(contestants_of(runs))
    panels: list[Panel] = []
    for regime in regimes_of(runs):
        for task in tasks_of(runs):
            here = {g.contestant: counted(m) for g, m in groups.items() if (g.task, g.regime) == (task, regime)}
            here = {contestant: here[contestant] for contestant in order if here.get(contestant)}
            axis: Axis = "step" if any(takes_steps(members) for members in here.values()) else "updates"
            experts = [row.expert_return for members in here.values() for run in members for row in run.rows[-1:]]
            known = np.array([value for value in experts if value is not None], np.float64)
            if here:
                lines = tuple(line_of(contestant, members, axis) for contestant, members in here.items())
                panels.append(Panel(task, regime, axis, mean_of(known), lines))
    return panels


def takes_steps(runs: Sequence[Run]) -> bool:
    """Whether runs act in an environment."""
    return any(run.rows[-1].step > 0 for run in runs)


def line_of(contestant: str, runs: Sequence[Run], axis: Axis) -> Line:
    """How a contestant is drawn."""
    flat = axis == "step" and not takes_steps(runs)
    ends: dict[Metric, Scores] = {metric: last_values(runs, metric) for metric in METRICS}
    levels: dict[Metric, tuple[float, float | None]] = {
        metric: (float(values.mean()), std_of(values)) for metric, values in ends.items() if flat and values.size
    }
    drawn: dict[Metric, Curve | None] = {metric: curve(runs, metric, axis) for metric in METRICS if not flat}
    curves: dict[Metric, Curve] = {metric: made for metric, made in drawn.items() if made is not None}
    return Line(contestant, tuple(runs), runs[0].status == "finished", curves, levels)


def points(run: Run, metric: Metric, axis: Axis) -> tuple[Points, Points]:
    """Where a run was measured, and what."""
    pairs = [(getattr(row, axis), value) for row in run.rows if (value := getattr(row, metric)) is not None]
    table = np.array(pairs, np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def curve(runs: Sequence[Run], metric: Metric, axis: Axis) -> Curve | None:
    """The mean curve, as far as the shortest run. Runs that were measured at other moments are interpolated: a mean
    over changing sets of runs would jump."""
    measured = [pair for run in runs if (pair := points(run, metric, axis))[0].size]
    if not measured:
        return None
    first, last = max(x[0] for x, _ in measured), min(x[-1] for x, _ in measured)
    x = np.unique(np.concatenate([x for x, _ in measured]))
    x = x[(x >= first) & (x <= last)]
    values = np.array([np.interp(x, *pair) for pair in measured])
    if not x.size:
        return None
    return Curve(x, values.mean(0), values.std(0, ddof=1) if len(values) > 1 else None, len(values))
