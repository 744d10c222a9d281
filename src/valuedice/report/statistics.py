"""Means, interquartile means and probabilities of improvement, with stratified bootstrap intervals.

The definitions are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(2021) and of their package rliable, with which the tests compare. Here tasks may have different numbers of runs;
each task then counts alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from valuedice.report.records import Group, Metric, Regime, Run, contestants_of, groups_of, regimes_of

Scores = NDArray[np.float64]
Strata = Sequence[Scores]
"""The scores of each task's runs."""
RESAMPLES = 2000
LEVEL = 95.0
"""Per cent of the resamples inside an interval."""
SEED = 0


class Estimate(NamedTuple):
    """A number with the bounds of its interval. There is no interval if no task has two runs."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class GroupStatistics:
    """A group's finished runs, at their last evaluation."""

    group: Group
    runs: int
    mean: float | None
    std: float | None
    """Sample standard deviation over runs; None of one run."""
    late: float | None
    """Mean over the last quarter of the evaluations."""
    normalized_mean: float | None
    normalized_std: float | None
    normalized_late: float | None
    expert: float | None
    kl_estimate: float | None
    distance: float | None


@dataclass(frozen=True)
class Aggregate:
    """Normalised returns of a contestant over its tasks."""

    regime: Regime
    contestant: str
    mean: Estimate
    iqm: Estimate
    tasks: int
    of_tasks: int
    """Tasks of the regime."""
    runs: int


@dataclass(frozen=True)
class Improvement:
    """How likely a run of the contestant is better than one of the other, on a task that both have."""

    regime: Regime
    contestant: str
    other: str
    probability: Estimate
    tasks: int
    runs: int
    other_runs: int


def last_values(runs: Sequence[Run], metric: Metric) -> Scores:
    """The last evaluation of each run, if it has the metric."""
    found = [getattr(run.rows[-1], metric) for run in runs if run.rows]
    return np.array([value for value in found if value is not None], np.float64)


def late_values(runs: Sequence[Run], metric: Metric) -> Scores:
    """Of each run, the mean over the last quarter of its evaluations."""
    means: list[float] = []
    for run in runs:
        found = [getattr(row, metric) for row in run.rows[-max(1, len(run.rows) // 4) :]]
        measured = [value for value in found if value is not None]
        if measured:
            means.append(float(np.mean(measured)))
    return np.array(means, np.float64)


def mean_of(values: Scores) -> float | None:
    """None of nothing."""
    return float(values.mean()) if values.size else None


def std_of(values: Scores) -> float | None:
    """The sample standard deviation; None of fewer than two values."""
    return float(values.std(ddof=1)) if values.size > 1 else None


def group_statistics(runs: Sequence[Run]) -> list[GroupStatistics]:
    """Of each group with a finished run."""
    found: list[GroupStatistics] = []
    for group, members in groups_of(runs).items():
        done = [run for run in members if run.status == "finished"]
        if not done:
            continue
        returns, normalized = last_values(done, "return_mean"), last_values(done, "normalized_return")
        expert = [run.rows[-1].expert_return for run in done]
        found.append(
            GroupStatistics(
                group,
                len(done),
                mean_of(returns),
                std_of(returns),
                mean_of(late_values(done, "return_mean")),
                mean_of(normalized),
                std_of(normalized),
                mean_of(late_values(done, "normalized_return")),
                mean_of(np.array([value for value in expert if value is not None], np.float64)),
                mean_of(last_values(done, "kl_estimate")),
                mean_of(last_values(done, "distance")),
            )
        )
    order = list(contestants_of(runs))
    return sorted(found, key=lambda s: (s.group.regime.order(), s.group.task, order.index(s.group.contestant)))


def scores_by_task(runs: Sequence[Run], regime: Regime, contestant: str) -> dict[str, Scores]:
    """Normalised returns of the finished runs at their last evaluation."""
    found: dict[str, Scores] = {}
    for group, members in groups_of(runs).items():
        if group.regime == regime and group.contestant == contestant:
            scores = last_values([run for run in members if run.status == "finished"], "normalized_return")
            if scores.size:
                found[group.task] = scores
    return dict(sorted(found.items()))


def task_mean(scores: Scores, weights: Scores) -> Scores:
    """The mean of the tasks' means. The last axis holds the runs of all tasks."""
    return scores @ weights


def interquartile_mean(scores: Scores, weights: Scores) -> Scores:
    """The mean without the lowest and the highest quarter. Runs are dropped whole, as rliable does: as many as fit
    into a quarter of the weight."""
    order = np.argsort(scores, axis=-1, kind="stable")
    ranked, weight = np.take_along_axis(scores, order, -1), weights[order]
    # Rounding in the sum must not keep a run that just fits.
    below = np.cumsum(weight, -1) <= 0.25 + 1e-9
    above = np.cumsum(weight[..., ::-1], -1)[..., ::-1] <= 0.25 + 1e-9
    kept = np.where(below | above, 0.0, weight)
    return (kept * ranked).sum(-1) / kept.sum(-1)


def resampled(strata: Strata, generator: np.random.Generator) -> list[Scores]:
    """For each task, as many of its runs as it has, drawn with replacement, in each resample."""
    return [scores[generator.integers(scores.size, size=(RESAMPLES, scores.size))] for scores in strata]


def weights_of(strata: Strata) -> Scores:
    """Each task weighs alike, and so does each run of a task."""
    return np.concatenate([np.full(scores.size, 1 / scores.size / len(strata)) for scores in strata])


def interval(resamples: Scores, strata: Strata) -> tuple[float | None, float | None]:
    """Percentiles of the resamples."""
    if all(scores.size < 2 for scores in strata):
        return None, None
    low, high = np.percentile(resamples, [50 - LEVEL / 2, 50 + LEVEL / 2])
    return float(low), float(high)


def estimate(strata: Strata, statistic: Callable[[Scores, Scores], Scores]) -> Estimate:
    """A statistic over tasks with its interval."""
    weights = weights_of(strata)
    drawn = np.concatenate(resampled(strata, np.random.default_rng(SEED)), axis=-1)
    value = statistic(np.concatenate(list(strata)), weights)
    return Estimate(float(value), *interval(statistic(drawn, weights), strata))


def improvement(ours: Strata, theirs: Strata) -> Estimate:
    """P(X > Y) + ½ P(X = Y), the mean over tasks."""

    def probability(xs: Strata, ys: Strata) -> Scores:
        pairs = [(x[..., :, None], y[..., None, :]) for x, y in zip(xs, ys, strict=True)]
        return np.mean([((x > y) + 0.5 * (x == y)).mean((-2, -1)) for x, y in pairs], axis=0)

    generator = np.random.default_rng(SEED)
    drawn = probability(resampled(ours, generator), resampled(theirs, generator))
    return Estimate(float(probability(ours, theirs)), *interval(drawn, [*ours, *theirs]))


def aggregates(runs: Sequence[Run]) -> list[Aggregate]:
    """Of each regime and contestant that has normalised returns."""
    found: list[Aggregate] = []
    for regime, scores in by_contestant(runs).items():
        tasks = {task for strata in scores.values() for task in strata}
        for contestant, by_task in scores.items():
            strata = list(by_task.values())
            mean, iqm = estimate(strata, task_mean), estimate(strata, interquartile_mean)
            count = sum(values.size for values in strata)
            found.append(Aggregate(regime, contestant, mean, iqm, len(strata), len(tasks), count))
    return found


def improvements(runs: Sequence[Run]) -> list[Improvement]:
    """Of each ordered pair of contestants of a regime that share a task."""
    found: list[Improvement] = []
    for regime, scores in by_contestant(runs).items():
        for ours, x in scores.items():
            for theirs, y in scores.items():
                shared = [task for task in x if task in y]
                if ours == theirs or not shared:
                    continue
                xs, ys = [x[task] for task in shared], [y[task] for task in shared]
                counts = [sum(values.size for values in strata) for strata in (xs, ys)]
                found.append(Improvement(regime, ours, theirs, improvement(xs, ys), len(shared), *counts))
    return found


def by_contestant(runs: Sequence[Run]) -> dict[Regime, Mapping[str, Mapping[str, Scores]]]:
    """Scores by regime, contestant and task."""
    return {
        regime: {name: scores for name in contestants_of(runs) if (scores := scores_by_task(runs, regime, name))}
        for regime in regimes_of(runs)
    }
