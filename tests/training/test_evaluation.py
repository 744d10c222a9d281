"""The rows of `metrics.csv`: returns beside those of the expert and of random actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from resuming import train

import valuedice as vd
from valuedice.demos import Demos
from valuedice.envs.episodes import Evaluator


class Indifferent(gym.Env[Any, Any]):
    """Five steps in the shape of Pendulum-v1, whatever is done, and no reward."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(-10, 10, (3,)), spaces.Box(-2, 2, (1,))
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.np_random.normal(size=3).astype(np.float32), 0.0, False, self.steps == 5, {}


def test_a_normalised_return_is_one_at_the_expert_and_zero_at_random_actions(finished):
    with Evaluator("Pendulum-v1", 10) as evaluator:
        random, expert = evaluator.random().mean, vd.load_demos("pendulum").expert_return
    assert expert is not None
    for row in finished.metrics:
        assert row["expert_return"] == expert
        assert row["normalized_return"] == pytest.approx((row["return_mean"] - random) / (expert - random))


def test_without_rewards_the_normalised_return_is_empty(pendulum):
    bare = Demos.from_episodes([replace(episode, rewards=None) for episode in pendulum.episodes], "bare")
    (row,) = train(bare, updates=2, eval_env="Pendulum-v1").metrics
    assert (row["expert_return"], row["normalized_return"]) == (None, None)
    assert row["return_mean"] < 0


def test_if_random_actions_do_as_well_as_the_expert_the_normalised_return_is_empty(pendulum):
    episode = pendulum.episodes[0]
    demos = Demos.from_episodes([replace(episode, rewards=np.zeros(len(episode)))], "no better than random")
    (row,) = train(demos, updates=2, eval_env=Indifferent).metrics
    assert (row["expert_return"], row["return_mean"], row["normalized_return"]) == (0, 0, None)
