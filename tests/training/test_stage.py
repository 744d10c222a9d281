"""An environment with its open episode: how episodes begin, and saving them in the middle."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from valuedice.training.stage import Stage


class Forgetful(gym.Env[Any, Any]):
    """Its observations come from a generator that no seed reaches."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(-10, 10, (3,)), spaces.Box(-2, 2, (1,))
        self.hidden = np.random.default_rng()
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        return self.hidden.normal(size=3).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.hidden.normal(size=3).astype(np.float32), 0.0, False, bool(action[0] > 1), {}


def test_only_the_first_episode_is_seeded():
    env = Forgetful()
    stage = Stage(env, seed=7)
    for action in (0.0, 2.0, 2.0, 0.0):
        stage.begin()
        stage.step(np.array([action]))
    assert env.seeds == [7, None, None]


# Random actions end an episode of CartPole and Hopper after some twenty steps, one of Pendulum after 200.
@pytest.mark.parametrize("name", ["CartPole-v1", "Hopper-v5", "Pendulum-v1"])
@pytest.mark.parametrize("steps", [0, 1, 23, 40])
def test_a_saved_episode_continues_bit_for_bit(name, steps):
    first, second = (Stage(gym.make(name), seed=5) for _ in range(2))
    first.env.action_space.seed(0)

    def step(stage: Stage, action: Any) -> tuple[np.ndarray, ...]:
        return stage.begin(), *(np.asarray(part) for part in stage.step(action))

    for _ in range(steps):
        step(first, first.env.action_space.sample())
    assert second.restore(*first.save(), otherwise=[0])
    for _ in range(60):
        action = first.env.action_space.sample()
        for one, other in zip(step(first, action), step(second, action), strict=True):
            assert_array_equal(one, other)


def test_an_environment_that_does_not_repeat_itself_warns_and_begins_a_new_episode():
    first, env = Stage(Forgetful(), seed=7), Forgetful()
    first.begin()
    first.step(np.array([0.0]))
    second = Stage(env, seed=7)
    with pytest.warns(UserWarning, match="does not repeat an episode"):
        assert not second.restore(*first.save(), otherwise=[1])
    second.begin()
    assert env.seeds[0] == 7
    assert len(env.seeds) == 2
    assert env.seeds[1] not in (7, None)
