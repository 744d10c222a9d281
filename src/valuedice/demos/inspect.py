"""Statistics of demonstrations, and what is wrong with them, for `valuedice demos inspect`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from valuedice.demos.arrays import describe, first_nonfinite, gaps
from valuedice.demos.episodes import Demos, Episode
from valuedice.types import Spec

AT_BOUND = 1e-6
"""An action within this distance of a bound counts as being at the bound."""
LINES = 30
"""Dimensions with a line of their own; the rest share one line."""


@dataclass(frozen=True)
class Stats:
    """Summary of the finite entries of some numbers; NaN if there are none."""

    min: float
    mean: float
    max: float
    std: float

    @classmethod
    def of(cls, values: Any) -> Stats:
        """From one dimension of numbers."""
        array = np.asarray(values, np.float64)
        array = array[np.isfinite(array)]
        if not array.size:
            return cls(np.nan, np.nan, np.nan, np.nan)
        return cls(*(float(f(array)) for f in (np.min, np.mean, np.max, np.std)))

    @property
    def constant(self) -> bool:
        """Whether the numbers are constant up to rounding."""
        return bool(self.std <= 1e-6 * (1 + abs(self.mean)))


@dataclass(frozen=True)
class Report:
    """Statistics of demonstrations, and findings: problems in the data."""

    source: str
    episodes: int
    rows: int
    lengths: Stats
    returns: Stats | None
    """None if rewards were not recorded."""
    terminated: int
    """Episodes that ended in the task."""
    time_limit: int
    """Episodes that a time limit or the end of the recording cut."""
    observations: tuple[Stats, ...]
    """One for each feature."""
    constant: tuple[int, ...]
    """Features that never change."""
    actions: tuple[Stats, ...]
    """One for each dimension; empty if actions are discrete."""
    action_counts: tuple[int, ...]
    """How often each discrete action was taken; empty if actions are continuous."""
    at_bound: float | None
    """Share of action entries at a bound; None if actions are discrete."""
    bounds: str
    """Which bounds these are."""
    findings: list[str]
    """One line each."""


def inspect(demos: Demos, spec: Spec | None = None) -> Report:
    """Examines demonstrations. Load them with `check=False`, so that NaN is reported rather than refused.

    The share of actions at the bound needs bounds: those of the task `spec` if its actions have the same shape,
    else [-1, 1], or the range of the data if it is wider. `envs.fit` tells whether the demonstrations fit the task.
    """
    lengths = [len(episode) for episode in demos.episodes]
    totals = [total for episode in demos.episodes if (total := episode.total_reward) is not None]
    observations = np.concatenate([episode.observations for episode in demos.episodes])
    actions = np.concatenate([episode.actions for episode in demos.episodes])
    observation_stats = tuple(Stats.of(column) for column in observations.T)
    action_stats = () if demos.discrete else tuple(Stats.of(column) for column in actions.T)
    share, bounds = (None, "") if demos.discrete else _at_bound(actions, action_stats, spec)
    terminated = sum(episode.terminated for episode in demos.episodes)
    return Report(
        source=demos.source,
        episodes=len(demos),
        rows=demos.rows,
        lengths=Stats.of(lengths),
        returns=Stats.of(totals) if totals else None,
        terminated=terminated,
        time_limit=len(demos) - terminated,
        observations=observation_stats,
        constant=tuple(i for i, stats in enumerate(observation_stats) if stats.constant),
        actions=action_stats,
        action_counts=tuple(np.bincount(actions).tolist()) if demos.discrete else (),
        at_bound=share,
        bounds=bounds,
        findings=[*_nonfinite(demos), *_gaps(demos)],
    )


def _at_bound(actions: np.ndarray, stats: tuple[Stats, ...], spec: Spec | None) -> tuple[float, str]:
    """The share of entries at a bound, and which bounds these are."""
    if spec is not None and not spec.discrete and spec.action_size == len(stats):
        low, high, name = np.array(spec.low), np.array(spec.high), "the environment's"
    elif all(s.min >= -1 and s.max <= 1 for s in stats):
        low, high, name = np.array(-1.0), np.array(1.0), "[-1, 1]"
    else:
        low, high, name = np.array([s.min for s in stats]), np.array([s.max for s in stats]), "the data's own range"
    on_bound = (np.abs(actions - low) <= AT_BOUND) | (np.abs(actions - high) <= AT_BOUND)
    return float(on_bound.mean()), name


def _nonfinite(demos: Demos) -> Iterator[str]:
    for name in ("observations", "actions", "next_observations", "rewards"):
        arrays = [getattr(episode, name) for episode in demos.episodes]
        bad = [None if array is None else first_nonfinite(array) for array in arrays]
        first = next((i for i, index in enumerate(bad) if index is not None), None)
        if first is not None and (index := bad[first]) is not None:
            count = sum(int((~np.isfinite(array)).sum()) for array in arrays if array is not None)
            entries = "entry" if count == 1 else "entries"
            place = f"{describe(arrays[first], index)} of episode {first}"
            yield f"{name}: {count} non-finite {entries}, first {place}"


def _gaps(demos: Demos) -> Iterator[str]:
    # Non-finite entries are reported above.
    pairs = [(episode.next_observations[:-1], episode.observations[1:]) for episode in demos.episodes]
    known = [np.isfinite(after).all(1) & np.isfinite(before).all(1) for after, before in pairs]
    broken = [
        gaps(episode.observations, episode.next_observations) & rows & _consecutive(episode)
        for episode, rows in zip(demos.episodes, known, strict=True)
    ]
    count = sum(int(rows.sum()) for rows in broken)
    if count:
        first = next(i for i, rows in enumerate(broken) if rows.any())
        sizes = [
            np.abs(after[rows] - before[rows]).ravel() for (after, before), rows in zip(pairs, broken, strict=True)
        ]
        largest = np.concatenate(sizes).max()
        yield (
            f"gaps: s′ differs from the next s after {count} row{'s' * (count > 1)} inside episodes, first "
            f"row {int(np.argmax(broken[first]))} of episode {first}; the largest difference is {largest:.3g}"
        )


def _consecutive(episode: Episode) -> np.ndarray | bool:
    """For each row but the last, whether the next row is the next step; steps left out on purpose are no gap."""
    return True if episode.part is None else np.diff(episode.part.times) == 1


def format_report(report: Report) -> str:
    """The report as plain text, at most 100 columns wide except for the name of the file."""
    lengths, returns = report.lengths, report.returns
    lines = [
        report.source,
        f"episodes      {report.episodes} ({report.terminated} terminated, "
        f"{report.time_limit} cut by a time limit or the end of the recording)",
        f"rows          {report.rows}",
        f"lengths       min {lengths.min:g}, mean {lengths.mean:g}, max {lengths.max:g}",
        "returns       not recorded"
        if returns is None
        else f"returns       mean {returns.mean:.6g}, std {returns.std:.4g}, "
        f"min {returns.min:.6g}, max {returns.max:.6g}",
        _wrap(
            f"constant      {len(report.constant)} of {len(report.observations)} features"
            + (f": {_ranges(report.constant)}" if report.constant else "")
        ),
    ]
    if report.at_bound is not None:
        lines.append(f"at the bound  {report.at_bound:.1%} of action entries (bounds: {report.bounds})")
    lines += ["", *_table("observations", report.observations)]
    if report.actions:
        lines += ["", *_table("actions", report.actions)]
    else:
        lines += ["", "actions (discrete): times taken"]
        lines += [f"{i:>12}  {count}" for i, count in enumerate(report.action_counts[:LINES])]
        if rest := report.action_counts[LINES:]:
            lines.append(f"  {LINES} to {LINES + len(rest) - 1} together: {sum(rest)}")
    lines += ["", "findings" if report.findings else "findings: none"]
    lines += [_wrap(f"  - {finding}", indent=4) for finding in report.findings]
    return "\n".join(lines)


def _table(title: str, stats: tuple[Stats, ...]) -> Iterator[str]:
    yield f"{title:<14}{'min':>12}{'mean':>12}{'max':>12}{'std':>12}"
    for i, s in enumerate(stats[:LINES]):
        note = "  constant" if s.constant else ""
        yield f"{i:>12}  {s.min:>12.4g}{s.mean:>12.4g}{s.max:>12.4g}{s.std:>12.4g}{note}"
    if rest := stats[LINES:]:
        lowest, highest = Stats.of([s.min for s in rest]).min, Stats.of([s.max for s in rest]).max
        means, stds = Stats.of([s.mean for s in rest]), Stats.of([s.std for s in rest])
        yield (
            f"  {LINES} to {LINES + len(rest) - 1} together: values {lowest:.4g} to {highest:.4g}, "
            f"means {means.min:.4g} to {means.max:.4g}, std {stds.min:.4g} to {stds.max:.4g}"
        )


def _wrap(line: str, indent: int = 14) -> str:
    return textwrap.fill(line, 100, subsequent_indent=" " * indent)


def _ranges(indices: tuple[int, ...]) -> str:
    """Sorted indices with runs shortened: 1, 3-5, 9."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def format_shipped(shipped: dict[str, Demos]) -> str:
    """One line for each of the shipped demonstrations."""
    lines = [f"{'name':18} {'episodes':>8} {'steps':>7} {'return':>15} {'observations':>13} {'actions':>12}"]
    for name, demos in shipped.items():
        returns = Stats.of([episode.total_reward for episode in demos.episodes])
        total = f"{returns.mean:.0f} ± {returns.std:.0f}"
        actions = f"{demos.action_size} {'discrete' if demos.discrete else 'numbers'}"
        lines.append(f"{name:18} {len(demos):8} {demos.rows:7} {total:>15} {demos.obs_size:13} {actions:>12}")
    return "\n".join([*lines, "more about one: valuedice demos inspect NAME"])
