"""Demonstrations in memory: episodes of an expert, with rewards if they were recorded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from valuedice.demos.arrays import as_actions, as_matrix, as_vector, check_rows, describe, first_nonfinite
from valuedice.errors import InputError
from valuedice.types import Normalizer

DonesAre = Literal["truncated", "terminated"]
"""What the end of an episode means in a file that does not say."""


CLIPPED_SHARE = 0.02
"""Share of entries at a bound above which actions count as clipped."""


@dataclass(frozen=True, eq=False)
class Part:
    """Which steps of a recorded episode were kept, if not all."""

    every: int
    """One step in so many."""
    times: np.ndarray
    """The step of each kept row, counted from 0."""
    length: int
    """Steps of the whole episode."""
    start: np.ndarray
    """The first observation of the whole episode."""


@dataclass(frozen=True, eq=False)
class Episode:
    """Steps (s, a, s′) of one episode: consecutive ones, or those of a `part`."""

    observations: np.ndarray
    """(steps, features), float32."""
    actions: np.ndarray
    """(steps, dimensions), float32; or (steps,), int64, if actions are discrete."""
    next_observations: np.ndarray
    rewards: np.ndarray | None = None
    """(steps,), float32; None if they were not recorded."""
    terminated: bool = False
    """Whether the task ended; False if a time limit or the end of the recording cut the episode."""
    part: Part | None = None
    """None if the episode is whole."""

    def __len__(self) -> int:
        return len(self.observations)

    @property
    def total_reward(self) -> float | None:
        """The undiscounted return; None if rewards were not recorded or steps were left out."""
        if self.rewards is None or self.part is not None:
            return None
        with np.errstate(invalid="ignore"):  # infinities of both signs pass with check=False
            return float(self.rewards.sum(dtype=np.float64))

    def every_nth(self, every: int, offset: int) -> Episode:
        """Every Nth step, from the step `offset` on.

        The last step is kept too if the task ended there: what is known of the absorbing state must not depend on
        chance. `demos.rows` weights it as one step, and each other one as N.
        """
        times = np.arange(offset, len(self), every)
        if self.terminated:
            times = np.union1d(times, len(self) - 1)
        rewards = None if self.rewards is None else self.rewards[times]
        part = Part(every, times, len(self), self.observations[0])
        arrays = (self.observations[times], self.actions[times], self.next_observations[times])
        return Episode(*arrays, rewards, self.terminated, part)


@dataclass(frozen=True)
class Origin:
    """How demonstrations were loaded, so that a run can load them again."""

    ref: str
    """The name of shipped demonstrations, or an absolute path."""
    dones_are: DonesAre | None = None
    episodes: int | None = None
    """How many episodes were selected; None for all."""
    seed: int = 0
    """The seed that chose them, and the steps that were kept of each."""
    subsample: int = 1
    """One step in so many was kept."""


@dataclass(frozen=True, eq=False)
class Demos:
    """Episodes of one expert on one task. `load_demos` and `from_episodes` build and check them."""

    episodes: tuple[Episode, ...]
    source: str
    """Where they came from, for messages."""
    expert_return: float | None = None
    """Mean return of all loaded episodes; a selection keeps it."""
    action_count: int = 0
    """Number of discrete actions in all loaded episodes; a selection may lack some of them."""
    origin: Origin | None = None
    """None if they were not loaded from a file."""

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode], source: str, check: bool = True) -> Demos:
        """Checks and casts episodes. `check=False` accepts NaN and infinity, for `inspect` to report."""
        clean = tuple(_clean(episode, f"{source}: episode {i}", check) for i, episode in enumerate(episodes))
        if not clean:
            raise InputError(f"{source}: holds no episodes; record at least one")
        for i, episode in enumerate(clean):
            _check_alike(clean[0], episode, f"{source}: episode {i}")
        returns = [total for episode in clean if (total := episode.total_reward) is not None]
        with np.errstate(invalid="ignore"):  # infinities pass with check=False
            expert_return = float(np.mean(returns)) if returns else None
        demos = cls(clean, source, expert_return)
        return replace(demos, action_count=demos.action_size) if demos.discrete else demos

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def rows(self) -> int:
        """Steps of all episodes together."""
        return sum(map(len, self.episodes))

    @property
    def every(self) -> int:
        """One step in so many was kept; 1 if episodes are whole."""
        return max(1 if episode.part is None else episode.part.every for episode in self.episodes)

    @property
    def discrete(self) -> bool:
        """Whether actions are discrete rather than vectors."""
        return self.episodes[0].actions.ndim == 1

    @property
    def obs_size(self) -> int:
        """Features of an observation."""
        return self.episodes[0].observations.shape[1]

    @property
    def action_size(self) -> int:
        """Dimensions of an action; if actions are discrete, their number (the largest action + 1)."""
        if not self.discrete:
            return self.episodes[0].actions.shape[1]
        return max(self.action_count, *(int(episode.actions.max()) + 1 for episode in self.episodes))

    @property
    def clipped(self) -> bool:
        """Whether the expert's actions seem to have been clipped: one entry in fifty repeats the smallest or
        the largest value of its dimension."""
        if self.discrete:
            return False
        actions = np.concatenate([episode.actions for episode in self.episodes])
        low, high = actions.min(0), actions.max(0)
        # Every dimension has a smallest and a largest entry: those are no repetitions.
        repeated = np.sum((actions == low) | (actions == high), 0) - 2
        moving = high > low
        return bool(moving.any() and np.mean(repeated[moving]) >= CLIPPED_SHARE * len(actions))

    def fingerprint(self) -> str:
        """A hash of the episodes, which does not depend on where they are stored."""
        digest = hashlib.sha256()
        for episode in self.episodes:
            for array in (episode.observations, episode.actions, episode.next_observations, episode.rewards):
                digest.update(b"none" if array is None else f"{array.shape}".encode() + array.tobytes())
            digest.update(b"terminated" if episode.terminated else b"truncated")
            if (part := episode.part) is not None:
                digest.update(f"{part.every} {part.times.tolist()} {part.length}".encode() + part.start.tobytes())
        return digest.hexdigest()[:16]

    def select(self, count: int, seed: int) -> Demos:
        """`count` different episodes chosen by `seed`, in the order of the file."""
        if not 1 <= count <= len(self):
            raise InputError(f"`episodes` is {count}; it must be 1 to {len(self)}, the episodes of {self.source}")
        _check_seed(seed)
        chosen = np.random.default_rng(seed).choice(len(self), size=count, replace=False)
        old = self.origin
        lost = old is None or old.episodes is not None or old.subsample > 1
        origin = None if lost or old is None else replace(old, episodes=count, seed=seed)
        return replace(self, episodes=tuple(self.episodes[i] for i in np.sort(chosen)), origin=origin)

    def subsample(self, every: int, seed: int) -> Demos:
        """Every Nth step of each episode, from an offset of its own that `seed` chooses (see `Episode.every_nth`).

        The start of each episode stays known as an initial state. The expert's return is that of whole episodes.
        """
        if every == 1:
            return self
        if self.every > 1:
            raise InputError(
                f"{self.source} was subsampled already, to 1 step in {self.every}; load it again to `subsample` it "
                f"by {every}"
            )
        shortest = min(map(len, self.episodes))
        # The remainder of NaN and of infinity is NaN, which is not 0 either.
        if every % 1 or not 1 <= every <= shortest:
            raise InputError(
                f"`subsample` is {every}; it must be a whole number from 1 to {shortest}, the steps of the "
                f"shortest episode of {self.source}"
            )
        _check_seed(seed)
        every, old = int(every), self.origin
        offsets = np.random.default_rng([seed, 5]).integers(every, size=len(self)).tolist()
        episodes = tuple(e.every_nth(every, offset) for e, offset in zip(self.episodes, offsets, strict=True))
        # An origin has one seed: if another one chose the episodes, they cannot be loaded again.
        lost = old is None or (old.episodes is not None and old.seed != seed)
        origin = None if lost or old is None else replace(old, subsample=every, seed=seed)
        return replace(self, episodes=episodes, origin=origin)

    def split(self, share: float, seed: int) -> tuple[Demos, Demos | None]:
        """The episodes to learn from, and a share held out (at least one), chosen by `seed`. None is held out of a
        single episode or with a share of zero."""
        if len(self) == 1 or share == 0:
            return self, None
        count = min(max(round(share * len(self)), 1), len(self) - 1)
        chosen = set(np.random.default_rng([seed, 4]).choice(len(self), size=count, replace=False).tolist())
        kept = tuple(episode for number, episode in enumerate(self.episodes) if number not in chosen)
        aside = tuple(episode for number, episode in enumerate(self.episodes) if number in chosen)
        return replace(self, episodes=kept), replace(self, episodes=aside)

    def normalizer(self) -> Normalizer:
        """The normaliser fitted to the observations of these episodes."""
        return Normalizer.fit(np.concatenate([episode.observations for episode in self.episodes]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an .npz in Gymnasium's format, whole or not at all."""
        from valuedice.demos import npz  # npz imports this module

        npz.write(path, self)


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise InputError(f"`seed` is {seed}; it must be at least 0")


def _clean(episode: Episode, where: str, check: bool) -> Episode:
    """The episode in its documented types; raises an error if an array cannot be used."""
    raw = {
        "observations": np.asarray(episode.observations),
        "actions": np.asarray(episode.actions),
        "next_observations": np.asarray(episode.next_observations),
    }
    if episode.rewards is not None:
        raw["rewards"] = np.asarray(episode.rewards)
    check_rows(where, raw)
    cast = {"actions": as_actions, "rewards": as_vector}
    arrays = {name: cast.get(name, as_matrix)(f"{where}: {name}", array) for name, array in raw.items()}
    for name, array in arrays.items():
        if check and (bad := first_nonfinite(array)) is not None:
            raise InputError(f"{where}: {name} holds {describe(array, bad)}; repair or drop that step")
    return Episode(**arrays, terminated=bool(episode.terminated), part=episode.part)


def _check_alike(first: Episode, episode: Episode, where: str) -> None:
    """Refuses an episode of another task than the first one."""
    width = first.observations.shape[1]
    for name, array in (
        ("observations", episode.observations),
        ("next_observations", episode.next_observations),
    ):
        if array.shape[1] != width:
            raise InputError(
                f"{where}: {name} has {array.shape[1]} columns, but the observations of episode 0 have {width}; "
                "store one task per file"
            )
    if episode.actions.shape[1:] != first.actions.shape[1:]:
        kinds = [
            "discrete" if a.ndim == 1 else f"of {a.shape[1]} dimensions" for a in (episode.actions, first.actions)
        ]
        raise InputError(
            f"{where}: actions are {kinds[0]}, those of episode 0 are {kinds[1]}; store one task per file"
        )
    if (episode.rewards is None) != (first.rewards is None):
        raise InputError(f"{where}: only some episodes have rewards; give them for all episodes or for none")
