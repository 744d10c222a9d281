"""A run in memory: it goes on, and can be saved and restored at any moment between two compiled calls."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import jax
import numpy as np

from valuedice.explore import Explorer
from valuedice.learner import Learner
from valuedice.machine import versions
from valuedice.rollouts import Collector
from valuedice.types import Metrics

# Batches that are drawn at once offline.
OFFLINE_BLOCK = 200


@dataclass
class Training:
    """A run in memory: all that a checkpoint holds."""

    learner: Learner
    explorer: Explorer | Collector | None
    done: int = 0
    """Environment steps, offline updates."""
    metrics: list[Metrics] = field(default_factory=list)
    seconds: float = 0.0
    """Spent before the run was last resumed."""
    _block_rng: Any = None

    @property
    def stride(self) -> int:
        """Environment steps that are made at once."""
        return 1 if self.explorer is None else self.explorer.stride

    def advance(self, total: int, eval_every: int) -> Iterator[int]:
        """Trains, and yields after each step of the environments, or offline after each compiled call."""
        learner, pace = self.learner, self.learner.algorithm.pace
        if self.explorer is None:
            # Calls end where evaluations are due. Blocks are drawn whole, however short the calls: when one
            # evaluates must not change what is learned.
            call = math.gcd(total, eval_every, OFFLINE_BLOCK)
            while self.done < total:
                start = self.done // OFFLINE_BLOCK * OFFLINE_BLOCK
                self._block_rng = learner.rng.bit_generator.state
                block = learner.draw(OFFLINE_BLOCK)
                while self.done < min(start + OFFLINE_BLOCK, total):
                    stop = (self.done // call + 1) * call
                    learner.learn(jax.tree.map(itemgetter(slice(self.done - start, stop - start)), block))
                    self.done = stop
                    yield self.done
            return
        assert pace is not None
        while self.done < total:
            self.explorer.step(lambda: learner.policy)
            self.done += self.explorer.stride
            if self.done >= pace.training_starts and self.done % pace.update_every == 0:
                learner.learn(learner.draw(pace.updates_per_step))
            yield self.done

    def save(self, seconds: float) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts of everything but the replay buffer."""
        arrays, learner = self.learner.save()
        arrays = {f"learner/{name}": array for name, array in arrays.items()}
        if self.explorer is None and self.done % OFFLINE_BLOCK:
            # The open block is drawn again.
            learner["rng"] = self._block_rng
        facts: dict[str, Any] = {"done": self.done, "metrics": self.metrics, "seconds": seconds, "learner": learner}
        if self.explorer is not None:
            more, facts["explorer"] = self.explorer.save()
            arrays |= {f"explorer/{name}": array for name, array in more.items()}
        return arrays, facts | {"versions": versions()}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Goes on where another one was saved; the replay buffer is filled already."""
        self.done, self.metrics, self.seconds = facts["done"], facts["metrics"], facts["seconds"]
        self.learner.restore(part(arrays, "learner/"), facts["learner"])
        if self.explorer is not None:
            self.explorer.restore(part(arrays, "explorer/"), facts["explorer"])
        changed = [f"{n} was {old}" for n, old in facts["versions"].items() if versions().get(n) != old]
        if changed:
            warnings.warn(
                f"other versions than at the start ({', '.join(changed)}): the run goes on, but not bit for bit",
                stacklevel=2,
            )


def part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Those whose name begins so, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
