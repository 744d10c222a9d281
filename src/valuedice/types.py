"""What the layers pass to each other: rows, batches, and the shape of a task.

Numpy only, so that a policy can be loaded and called without JAX. A `NamedTuple` is a JAX pytree as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

Array = Any
"""A numpy array outside the compiled update, a JAX array inside."""
Metrics = dict[str, Any]
"""Names to scalars."""


LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
"""Bounds of a Gaussian policy's log standard deviation."""


class Transition(NamedTuple):
    """Rows (s, a, s′, r). Observations are normalised and end in the mark of the absorbing state (0 or 1);
    actions are scaled to [-1, 1], or one-hot where they are discrete. Only reinforcement learning
    looks at rewards."""

    obs: Array
    action: Array
    next_obs: Array
    reward: Array | None = None


class Rollout(NamedTuple):
    """Steps of the policy of the moment in several environments: axes are time, environment, and features as in
    `Transition`. A terminating s′ is the absorbing state; at a time limit it is the true last observation."""

    obs: Array
    action: Array
    next_obs: Array
    ended: Array
    """Whether the row is the last of its episode, for either reason."""


class Batch(NamedTuple):
    """What one update sees. Weights are None where rows were already drawn in proportion to them."""

    expert: Transition | None
    """None where a reward is all there is to learn from."""
    initial: Array | None
    """Observations s0, of the expert's too."""
    replay: Transition | None
    """Rows of the replay buffer; None where there is no data but the expert's."""
    expert_weight: Array | None = None
    initial_weight: Array | None = None
    held_out: Transition | None = None
    """Rows of the expert's episodes that are not learned from, but stopped by."""
    rollout: Rollout | None = None
    """For algorithms that learn on policy."""


@dataclass(frozen=True)
class Spec:
    """The shape of a task, and how its actions are written for the networks."""

    obs_size: int
    """Features of an observation, without the absorbing mark."""
    action_size: int
    """Dimensions of an action, or the number of discrete actions."""
    discrete: bool = False
    low: tuple[float, ...] = ()
    """Lower bounds of continuous actions, in the units of the environment."""
    high: tuple[float, ...] = ()
    first_action: int = 0
    """The smallest discrete action."""

    def encode(self, actions: np.ndarray) -> np.ndarray:
        """The environment's actions as the networks see them: in [-1, 1], or one-hot."""
        if self.discrete:
            return np.eye(self.action_size, dtype=np.float32)[np.asarray(actions) - self.first_action]
        low, high = np.asarray(self.low), np.asarray(self.high)
        # Bounds may coincide in a dimension that the task does not use.
        return np.asarray(2 * (actions - low) / np.where(high > low, high - low, 1.0) - 1, np.float32)

    def decode(self, actions: np.ndarray) -> np.ndarray:
        """Actions in [-1, 1], or indices of discrete actions, as the environment takes them."""
        if self.discrete:
            return np.asarray(actions) + self.first_action
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        # Rounding must not carry an action over the bound.
        return np.clip(low + (np.asarray(actions, np.float32) + 1) * (high - low) / 2, low, high)


@dataclass(frozen=True)
class Pace:
    """When an algorithm acts in its environment, and when it learns."""

    updates_per_step: int
    """For each environment step in which there are any."""
    update_every: int
    """Environment steps from one such step to the next."""
    random_steps: int
    """First environment steps, taken with uniformly random actions."""
    training_starts: int
    """Environment steps before the first update."""
    noise: float | None
    """Standard deviation on the mean action while collecting; None for samples of the policy."""
    rollout: tuple[int, int] | None = None
    """Times and environments of a rollout, where it learns on policy: from that alone, and once."""

    @property
    def environments(self) -> int:
        """That are stepped side by side."""
        return 1 if self.rollout is None else self.rollout[1]


@dataclass(frozen=True)
class Sampling:
    """How an algorithm wants its rows drawn (Section 5.3 of the paper)."""

    discount: float = 0.99
    initial_states: Literal["all", "starts"] = "all"
    scheme: Literal["uniform", "geometric"] = "uniform"
    absorbing: Literal["exact", "single", "none"] = "exact"


@dataclass(frozen=True)
class Normalizer:
    """Shifts and scales observations to mean 0 and standard deviation 1 on the demonstrations, then clips."""

    mean: np.ndarray
    std: np.ndarray
    clip: float = 10.0

    @classmethod
    def none(cls, size: int) -> Normalizer:
        """Leaves observations as they are, but for what only a simulation gone wrong shows."""
        return cls(np.zeros(size, np.float32), np.ones(size, np.float32), clip=1e3)

    @classmethod
    def fit(cls, observations: np.ndarray) -> Normalizer:
        """From rows of observations. A feature that (almost) never moves in the demonstrations says nothing
        about its scale, and dividing by its tiny deviation would make any movement at test time enormous:
        a constant feature keeps its own units, and no scale is below a thousandth of the feature's own size."""
        mean, std = observations.mean(0, dtype=np.float64), observations.std(0, dtype=np.float64)
        size = np.abs(observations).max(0).astype(np.float64)
        # Rounding in float32 moves a constant by this much.
        constant = std <= 1e-6 * size
        std = np.where(constant, 1.0, np.maximum(std, 1e-3 * size))
        return cls(mean.astype(np.float32), std.astype(np.float32))

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Normalised float32 copies of one observation or of rows."""
        scaled = (np.asarray(observations, np.float32) - self.mean) / self.std
        return np.clip(scaled, -self.clip, self.clip)
