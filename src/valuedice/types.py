"""What the layers pass to each other: rows, batches, the shape of a task, and what an algorithm asks for.

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


Units = Literal["relu", "tanh"]
"""What hidden units do."""
Bounds = Literal["tanh", "clip"]
"""What keeps continuous actions inside their bounds."""


class Form(NamedTuple):
    """How a policy network computes."""

    units: Units
    bounds: Bounds


SQUASHED = Form("relu", "tanh")
"""The usual form in reinforcement learning, where actions are squashed."""
CLIPPED = Form("tanh", "clip")
"""The usual form where the environment clips the actions of a Gaussian policy."""


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


class Transition(NamedTuple):
    """Rows (s, a, s′, r). Observations are normalised and end in the mark of the absorbing state (0 or 1). Actions
    are scaled to [-1, 1], or one-hot if they are discrete. Only reinforcement learning reads rewards."""

    obs: Array
    action: Array
    next_obs: Array
    reward: Array
    weight: Array | None = None
    """Probability of each row; None if the rows count alike."""

    @property
    def size(self) -> int:
        """Rows in one batch."""
        return self.obs.shape[-2]

    @classmethod
    def none(cls, spec: Spec, shape: tuple[int, ...] = ()) -> Transition:
        """No rows; `shape` are the axes before the rows."""
        obs, action = (np.zeros((*shape, 0, size), np.float32) for size in (spec.obs_size + 1, spec.action_size))
        return cls(obs, action, obs, obs[..., 0])


class InitialStates(NamedTuple):
    """Observations s0 at which a virtual trajectory begins."""

    obs: Array
    weight: Array | None = None
    """Probability of each state; None if they count alike."""


class Rollout(NamedTuple):
    """Steps of the current policy in several environments. The axes are time, environment, and the features of
    `Transition`. A terminating s′ is the absorbing state; at a time limit s′ is the true last observation."""

    obs: Array
    action: Array
    next_obs: Array
    reward: Array
    """The environment's reward of each row; only reinforcement learning reads it."""
    ended: Array
    """Whether the row is the last of its episode, for either reason."""

    @classmethod
    def none(cls, spec: Spec, shape: tuple[int, ...] = ()) -> Rollout:
        """No rows; `shape` are the axes before time."""
        empty = Transition.none(spec, (*shape, 0))
        return cls(empty.obs, empty.action, empty.next_obs, empty.reward, np.zeros((*shape, 0, 0), bool))


class Batch(NamedTuple):
    """What one update sees. A source that the algorithm did not ask for, or that holds nothing yet, has no rows."""

    expert: Transition
    initial: InitialStates
    """Initial states of the expert."""
    replay: Transition
    held_out: Transition
    """Rows of the expert's episodes that are held out for early stopping."""
    rollout: Rollout
    """The newest steps of the policy, for algorithms that learn on policy."""

    @classmethod
    def of(
        cls,
        spec: Spec,
        shape: tuple[int, ...] = (),
        expert: Transition | None = None,
        initial: InitialStates | None = None,
        replay: Transition | None = None,
        held_out: Transition | None = None,
        rollout: Rollout | None = None,
    ) -> Batch:
        """A batch of some sources; the others have no rows. `shape` are the axes before the rows."""
        empty = Transition.none(spec, shape)
        return cls(
            expert=expert or empty,
            initial=initial or InitialStates(empty.obs),
            replay=replay or empty,
            held_out=held_out or empty,
            rollout=rollout or Rollout.none(spec, shape),
        )

    def without_replay(self) -> Batch:
        """The same batch with no replay rows."""
        return self._replace(replay=Transition(*(None if part is None else part[:0] for part in self.replay)))


@dataclass(frozen=True)
class Pace:
    """When an algorithm acts in its environment, and when it learns."""

    updates_per_step: int
    """Updates at each environment step that has any."""
    update_every: int
    """Environment steps from one such step to the next."""
    random_steps: int
    """First environment steps, taken with uniformly random actions."""
    training_starts: int
    """Environment steps before the first update."""
    noise: float | None
    """Standard deviation of the noise on the mean action while collecting; None samples from the policy."""
    rollout: tuple[int, int] | None = None
    """Length in time and number of environments of a rollout, for an algorithm that learns on policy."""
    warm_start: int = 0
    """Updates of behavioural cloning before the first step."""

    @property
    def environments(self) -> int:
        """Environments that step side by side."""
        return 1 if self.rollout is None else self.rollout[1]

    def updates_at(self, step: int) -> int:
        """Updates that are due after this many environment steps."""
        due = step >= self.training_starts and step % self.update_every == 0
        return self.updates_per_step if due else 0


@dataclass(frozen=True)
class Sampling:
    """How rows are drawn (Section 5.3 of the paper)."""

    discount: float = 0.99
    initial_states: Literal["all", "starts"] = "all"
    scheme: Literal["uniform", "geometric"] = "uniform"
    absorbing: Literal["exact", "single", "none"] = "exact"


@dataclass(frozen=True)
class Data:
    """What an algorithm learns from."""

    batch_size: int
    """Rows of each source in one update."""
    sampling: Sampling = Sampling()
    """How rows are drawn."""
    demos: bool = True
    """Whether it learns from demonstrations; if not, it learns from the environment's rewards."""
    replay: Literal["unused", "optional", "required"] = "unused"
    """Whether it uses replay data, and whether it can learn without any."""
    held_out: float = 0.0
    """Fraction of episodes held out for early stopping (at least one; none if there is only one episode)."""


@dataclass(frozen=True)
class Normalizer:
    """Shifts and scales observations to mean 0 and standard deviation 1 on the demonstrations, then clips."""

    mean: np.ndarray
    std: np.ndarray
    clip: float = 10.0

    @classmethod
    def none(cls, size: int) -> Normalizer:
        """Leaves observations as they are, up to values that only a failed simulation shows."""
        return cls(np.zeros(size, np.float32), np.ones(size, np.float32), clip=1e3)

    @classmethod
    def fit(cls, observations: np.ndarray) -> Normalizer:
        """From rows of observations. Dividing by the tiny deviation of a feature that (almost) never moves in the
        demonstrations would make any movement at test time enormous. So a constant feature keeps its own units,
        and no scale is below a thousandth of the feature's own size."""
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
