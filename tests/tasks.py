"""A task in which every step is known, and a policy for any task."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from valuedice.policy import Policy
from valuedice.types import Normalizer, Spec


class Countdown(gym.Env[Any, Any]):
    """Counts down to 0, then ends. The reward is the action, plus `noise` that the seed decides. It draws the
    count, and writes all observations into one array."""

    def __init__(
        self,
        start: int = 3,
        *,
        truncates: bool = False,
        noise: float = 0.0,
        observations: spaces.Space[Any] | None = None,
        actions: spaces.Space[Any] | None = None,
    ) -> None:
        self.start, self.truncates, self.noise, self.closed = start, truncates, noise, False
        self.observation_space, self.action_space = (
            spaces.Box(-1, 1, (1,)) if space is None else space for space in (observations, actions)
        )
        self.count = np.zeros(1, np.float32)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**how)
        self.count[:] = self.start
        return self.count, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.count > 0, "stepped after its end"
        self.count -= 1
        over, reward = self.count.item() == 0, action[0] + self.noise * self.np_random.normal()
        return self.count, float(reward), over and not self.truncates, over and self.truncates, {}

    def render(self) -> Any:
        return np.full((20, 30, 3), self.count[0], np.uint8)

    def close(self) -> None:
        self.closed = True


def linear_policy(spec: Spec, slope: float = 0.0) -> Policy:
    """The mean of the first action is tanh(slope · first feature), that of the others 0."""
    outputs = spec.action_size * (1 if spec.discrete else 2)
    kernel = np.zeros((spec.obs_size, outputs), np.float32)
    kernel[0, 0] = slope
    return Policy(((kernel, np.zeros(outputs, np.float32)),), Normalizer.none(spec.obs_size), spec)


def box(obs_size: int, action_size: int, low: float = -1.0, high: float = 1.0) -> Spec:
    """The shape of a task with continuous actions."""
    return Spec(obs_size, action_size, low=(low,) * action_size, high=(high,) * action_size)
