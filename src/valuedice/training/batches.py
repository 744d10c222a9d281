"""Batches for updates, drawn from demonstrations, replay data and rollouts."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from valuedice.demos.rows import ExpertRows
from valuedice.replay import Replay, Rollouts
from valuedice.training.checkpoint import Arrays, Facts
from valuedice.types import Batch, Data, Spec, Transition

# Replay rows of a diagnosis: one shape whatever the buffer holds, so it compiles once.
DIAGNOSED_ROWS = 4_096


class Batches:
    """The sources that an algorithm asked for, and one generator that decides everything that is drawn."""

    def __init__(
        self,
        data: Data,
        spec: Spec,
        seed: int | list[int],
        *,
        expert: ExpertRows | None = None,
        held_out: ExpertRows | None = None,
        replay: Replay | None = None,
        rollouts: Rollouts | None = None,
        ahead: int = 0,
    ) -> None:
        """`ahead` batches are drawn at once where nothing adds to the data: offline."""
        self.data, self.spec, self.ahead = data, spec, ahead
        self.expert, self.held_out, self.replay, self.rollouts = expert, held_out, replay, rollouts
        self.rng = np.random.default_rng([seed, 1] if isinstance(seed, int) else seed)
        self._block: Batch | None = None
        self._block_rng: Any = None
        """State of the generator before the open block was drawn."""
        self._taken = 0
        """Batches taken from the open block."""

    def take(self, count: int) -> tuple[Batch, int, int]:
        """Stacked batches, and which of them are the next `count`: from the first to before the second number.

        Offline, blocks are drawn whole, however few batches are taken at a time: how often a run is evaluated must
        not change what is learned.
        """
        if not self.ahead:
            return self.draw(count), 0, count
        if self._block is None:
            self._block_rng = self.rng.bit_generator.state
            self._block = self.draw(self.ahead)
        start, stop = self._taken, self._taken + count
        assert stop <= self.ahead, "a round of the loop ends with its block"
        block = self._block
        self._taken, self._block = (0, None) if stop == self.ahead else (stop, block)
        return block, start, stop

    def draw(self, count: int) -> Batch:
        """`count` stacked batches."""
        shape = (count, self.data.batch_size)
        expert, initial = (None, None) if self.expert is None else self.expert.draw(self.rng, shape)
        held_out = None if self.held_out is None else self.held_out.draw(self.rng, shape)[0]
        replay = self._draw_replay(self.rng, shape)
        rollout = None
        if self.rollouts is not None:
            assert count == 1, "a rollout is learned from once"
            rollout = jax.tree.map(lambda part: part[None], self.rollouts.newest())
        return Batch.of(self.spec, (count,), expert, initial, replay, held_out, rollout)

    @property
    def ready(self) -> bool:
        """Whether there is all data that the algorithm cannot do without: before the first step, no replay data."""
        acted = self.rollouts is None or self.rollouts.count > 0
        return acted and (self.data.replay != "required" or bool(self.replay))

    def diagnosis(self, updates: int) -> Batch:
        """All rows of the expert with their weights, a sample of the replay data, and the newest rollout."""
        # A generator of its own: measuring must not change what is learned.
        replay = self._draw_replay(np.random.default_rng([updates, 2]), (DIAGNOSED_ROWS,))
        expert = None if self.expert is None else self.expert.all()
        initial = None if self.expert is None else self.expert.initial()
        held_out = None if self.held_out is None else self.held_out.all()
        rollout = None if self.rollouts is None else self.rollouts.newest()
        return Batch.of(self.spec, (), expert, initial, replay, held_out, rollout)

    def _draw_replay(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Transition | None:
        if not self.replay or self.data.replay == "unused":
            return None
        return self.replay.draw(rng, shape, self.data.sampling)

    def save(self) -> tuple[Arrays, Facts]:
        """The generator; an open block is drawn again."""
        rng = self.rng.bit_generator.state if self._block is None else self._block_rng
        return {}, {"rng": rng, "taken": self._taken}

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Continues from what `save` returned; the replay buffer is filled already."""
        self.rng.bit_generator.state = facts["rng"]
        self._taken = facts["taken"]
