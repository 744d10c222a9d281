"""The energy distance between two recordings: how alike two behaviours are, measured without rewards.

    D(X, Y) = 2 E|X-Y| - E|X-X'| - E|Y-Y'|                                    (Székely & Rizzo, 2013)

X and Y are rows x = [s, a, mark] of a recording and of the reference. Each mean runs over all pairs of rows, a row
with itself included. D is then never negative, and zero only if both are the same weighted rows. It needs no
density, no training and no kernel width.

- **Scale.** The reference standardises observations and continuous actions, so that units do not matter. Nothing is
  clipped: a clip would make different distributions look equal. Discrete actions are one-hot.
- **Horizon.** The longest reference episode has H steps, and only the first H steps of any episode count.
- **Absorbing state.** An episode that terminated after T < H steps is filled up to H with the row of zeros and mark
  `ABSORBING_MARK`. Otherwise a policy that falls early would only have fewer rows, and no mean would show it. A
  truncated episode is not filled: a time limit ends the recording, not the task.
- **Weights.** A step counts once. A kept step of a subsampled episode counts for those left out (see `demos.rows`).
- **Rows.** At most `ROWS` ordinary rows of each recording are compared, chosen by a fixed seed.

Distances come from a matrix product in float64: float32 would lose small ones. Rows that differ by less than about
1e-7 of their norm count as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from valuedice.demos import Demos, Episode
from valuedice.errors import InputError
from valuedice.types import Normalizer

ABSORBING_MARK = 5.0
"""The mark of the absorbing row: far from the reference's mean in units of its standard deviation."""
ROWS = 2_000
"""Most ordinary rows of a recording that are compared."""
BLOCK = 128
"""Rows whose distances are computed together: they stay in the processor's cache."""
SPLITS, BLOCKS, FEWEST_ROWS = 5, 11, 22
"""For the noise floor: splits into halves, blocks of a single episode, and the fewest rows that have a floor."""
ROUNDING = 2e-15
"""Error of |x-y|² relative to |x|² + |y|², with a margin."""
SEED = 0


class WeightedRows(NamedTuple):
    """Ordinary rows of a recording as they were recorded, and the weight of the absorbing row beside them."""

    observations: np.ndarray
    actions: np.ndarray
    weights: np.ndarray
    absorbing: float = 0.0

    def take(self, rows: np.ndarray) -> WeightedRows:
        """Some of the ordinary rows, without the absorbing one."""
        return WeightedRows(self.observations[rows], self.actions[rows], self.weights[rows])

    def chosen(self) -> WeightedRows:
        """At most `ROWS` ordinary rows, with the total weight of all."""
        if len(self.weights) <= ROWS:
            return self
        rows = np.random.default_rng(SEED).choice(len(self.weights), size=ROWS, replace=False)
        some = self.take(np.sort(rows))
        weights = some.weights * (self.weights.sum() / some.weights.sum())
        return some._replace(weights=weights, absorbing=self.absorbing)

    @property
    def finite(self) -> bool:
        """Whether no row holds NaN or infinity."""
        return bool(np.isfinite(self.observations).all() and np.isfinite(self.actions).all())


class Sample(NamedTuple):
    """Rows whose distances count, in float64, and their weights, which sum to 1."""

    rows: np.ndarray
    weights: np.ndarray


class Reference:
    """Demonstrations that other recordings are measured against; prepared once."""

    def __init__(self, demos: Demos) -> None:
        self.demos = demos
        self.horizon = max(_steps(episode) for episode in demos.episodes)
        """Steps of an episode that count."""
        with np.errstate(all="ignore"):  # NaN may be in demonstrations that were loaded unchecked
            self._obs_scale = demos.normalizer()
            actions = np.concatenate([episode.actions for episode in demos.episodes])
            self._action_scale = None if demos.discrete else Normalizer.fit(actions)
            self._sample = self._standardised(weighted_rows(demos.episodes, self.horizon))
            self._spread = _mean_distance(self._sample, self._sample)

    def distance(self, recording: Demos | Sequence[Episode]) -> float:
        """D(recording, reference); infinite if the recording is not finite. Reads `observations`, `actions`,
        `terminated` and `part` of each episode."""
        named = isinstance(recording, Demos)
        name, episodes = (recording.source, recording.episodes) if named else ("the recording", tuple(recording))
        self._check(name, episodes)
        rows = weighted_rows(episodes, self.horizon)
        if len(rows.weights) == 0:
            raise InputError(f"{name}: no row is among the first {self.horizon} steps; record whole episodes")
        if not rows.finite:
            return float("inf")
        with np.errstate(all="ignore"):  # a simulation that blew up
            return _energy(self._standardised(rows), self._sample, self._spread)

    @cached_property
    def floor(self) -> float | None:
        """The noise floor: about the distance of two recordings of the same behaviour; None for fewer than 22 rows.

        The mean over a few random splits of the episodes into halves. A single episode is cut into eleven blocks.
        The first, which holds the start, and the absorbing row are left out; of the others, even ones are compared
        with odd ones. Below about this value nothing is left to gain. This is a scale, not a test. It tends to be
        too high, because halves are half as large as what is compared.
        """
        episodes, horizon = self.demos.episodes, self.horizon
        if self.demos.rows < FEWEST_ROWS:
            return None
        with np.errstate(all="ignore"):
            if len(episodes) == 1:
                rows = weighted_rows(episodes, horizon)
                blocks = np.array_split(np.arange(len(rows.weights)), BLOCKS)[1:]
                even, odd = (rows.take(np.concatenate(blocks[first::2])) for first in (0, 1))
                return self._between(even, odd)
            found: list[float] = []
            rng = np.random.default_rng(SEED)
            for _ in range(SPLITS):
                halves = np.array_split(rng.permutation(len(episodes)), 2)
                one, other = (weighted_rows([episodes[i] for i in half], horizon) for half in halves)
                found.append(self._between(one, other))
            return float(np.mean(found))

    def _between(self, one: WeightedRows, other: WeightedRows) -> float:
        """The distance of two parts of the reference."""
        x, y = self._standardised(one), self._standardised(other)
        return _energy(x, y, _mean_distance(y, y))

    def _standardised(self, rows: WeightedRows) -> Sample:
        """The rows [mark, s, a]. One-hot actions are last, because another recording may have more of them."""
        rows = rows.chosen()
        obs = _scaled(rows.observations, self._obs_scale)
        if self._action_scale is None:
            actions = (rows.actions[:, None] == np.arange(rows.actions.max() + 1)).astype(np.float64)
        else:
            actions = _scaled(rows.actions, self._action_scale)
        matrix, weights = np.hstack([np.zeros((len(obs), 1)), obs, actions]), rows.weights
        if rows.absorbing:
            absorbing = np.zeros((1, matrix.shape[1]))
            absorbing[0, 0] = ABSORBING_MARK
            matrix, weights = np.vstack([matrix, absorbing]), np.append(weights, rows.absorbing)
        return Sample(matrix, weights / weights.sum())

    def _check(self, name: str, episodes: Sequence[Episode]) -> None:
        """Refuses recordings of another task."""
        if not episodes:
            raise InputError(f"{name}: holds no episodes; record at least one")
        first, source, advice = self.demos.episodes[0], self.demos.source, "compare recordings of one task"
        for episode in episodes:
            sizes = [each.observations.shape[1] for each in (episode, first)]
            if sizes[0] != sizes[1]:
                raise InputError(
                    f"{name}: observations have {sizes[0]} features, those of {source} {sizes[1]}; {advice}"
                )
            if episode.actions.shape[1:] != first.actions.shape[1:]:
                kinds = [
                    "discrete" if each.actions.ndim == 1 else f"of {each.actions.shape[1]} dimensions"
                    for each in (episode, first)
                ]
                raise InputError(f"{name}: actions are {kinds[0]}, those of {source} are {kinds[1]}; {advice}")


def distance(a: Demos, b: Demos) -> float:
    """The energy distance of one recording from another: 0 if they are alike. `b` is the reference, which sets the
    scale and the horizon. `Reference(b)` measures several recordings faster."""
    return Reference(b).distance(a)


def weighted_rows(episodes: Sequence[Episode], horizon: int) -> WeightedRows:
    """The rows of the first `horizon` steps of all episodes, each with the steps that it stands for, and the steps
    that terminated episodes spend in the absorbing state."""
    counted = [_times(episode) < horizon for episode in episodes]
    return WeightedRows(
        np.concatenate([episode.observations[rows] for episode, rows in zip(episodes, counted, strict=True)]),
        np.concatenate([episode.actions[rows] for episode, rows in zip(episodes, counted, strict=True)]),
        np.concatenate([_stands_for(episode)[rows] for episode, rows in zip(episodes, counted, strict=True)]),
        float(sum(max(0, horizon - _steps(episode)) for episode in episodes if episode.terminated)),
    )


def _steps(episode: Episode) -> int:
    return len(episode.observations) if episode.part is None else episode.part.length


def _times(episode: Episode) -> np.ndarray:
    return np.arange(len(episode.observations)) if episode.part is None else episode.part.times


def _stands_for(episode: Episode) -> np.ndarray:
    weights = np.full(len(episode.observations), 1.0 if episode.part is None else float(episode.part.every))
    if episode.terminated:
        weights[-1:] = 1  # the last step of a task that ended is always kept
    return weights


def _scaled(array: np.ndarray, scale: Normalizer) -> np.ndarray:
    """In float64 and without the clip."""
    return (array.astype(np.float64) - scale.mean) / np.where(scale.std == 0, 1, scale.std)


def _energy(x: Sample, y: Sample, y_spread: float) -> float:
    """D, given E|Y-Y'|."""
    value = 2 * _mean_distance(x, y) - _mean_distance(x, x) - y_spread
    return max(value, 0.0) if np.isfinite(value) else float("inf")


def _mean_distance(x: Sample, y: Sample) -> float:
    """The weighted mean of |x-y| over all pairs, by |x-y|² = |x|² - 2xy + |y|²; with itself if `y` is `x`."""
    same, width = y is x, max(x.rows.shape[1], y.rows.shape[1])
    a, b = (np.pad(each.rows, ((0, 0), (0, width - each.rows.shape[1]))) for each in (x, y))
    a_squares, b_squares = (np.einsum("ij,ij->i", rows, rows) for rows in (a, b))
    total = 0.0
    for start in range(0, len(a), BLOCK):
        block = slice(start, start + BLOCK)
        lengths = (-2 * a[block]) @ b.T
        squares = a_squares[block, None] + b_squares
        lengths += squares
        squares *= ROUNDING
        lengths[lengths < squares] = 0  # equal rows, up to rounding; also what rounding made negative
        np.sqrt(lengths, out=lengths)
        if same:
            rows = np.arange(len(lengths))
            lengths[rows, start + rows] = 0
        total += float(x.weights[block] @ (lengths @ y.weights))
    return total
