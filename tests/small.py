"""Algorithms that are small enough to train in a moment, and what tests ask of a run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from valuedice.algorithms import ALGORITHMS, REWARD_LEARNERS, AnyAlgorithm
from valuedice.algorithms.settings import with_settings
from valuedice.policy import Policy
from valuedice.training.run import Run
from valuedice.types import Metrics

SMALL: dict[str, Any] = {
    "hidden": (16,),
    "policy_hidden": (16,),
    "discriminator_hidden": (16,),
    "ratio_hidden": (16,),
    "batch_size": 16,
    "updates_per_step": 2,
    "random_steps": 6,
    "training_starts": 5,
    "warm_start": 3,
    "actor_lr": 1e-3,
    "discriminator_batch": 4,
    "rollout": 4,
    "environments": 2,
    "minibatch": 2,
    # Not those that the demonstrations choose: most tests were made with these.
    "units": "relu",
    "bounds": "tanh",
}


def small(name: str = "value-dice", **changes: Any) -> AnyAlgorithm:
    """A shipped algorithm with the small settings and these changes, as far as it has them."""
    return with_settings((ALGORITHMS | REWARD_LEARNERS)[name](), SMALL | changes)


def without_clock(rows: list[Metrics]) -> list[Metrics]:
    """Metrics that two equal runs share."""
    return [{name: value for name, value in row.items() if name != "wall_seconds"} for row in rows]


def same(ours: Policy, theirs: Policy) -> bool:
    """Whether two policies agree in every bit."""
    pairs = zip(ours.layers, theirs.layers, strict=True)
    return all(np.array_equal(x, y) for mine, other in pairs for x, y in zip(mine, other, strict=True))


def all_finite(run: Run) -> bool:
    """Whether all metrics and the whole state of a run are finite."""
    numbers = [value for row in run.metrics for value in row.values() if value is not None]
    leaves = [leaf for leaf in jax.tree.leaves(run.state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return bool(np.isfinite(numbers).all() and all(jnp.isfinite(leaf).all() for leaf in leaves))
