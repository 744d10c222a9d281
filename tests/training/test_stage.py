"""An environment with its open episode: how episodes begin, and saving them in the middle."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from valuedice.training.stage import Stage


class Forgetful:
    """Its observations come from a generator that no seed reaches; an action above 0 ends the episode."""

    def __init__(self):
        self.hidden, self.seeds = np.random.default_rng(), []

    def reset(self, seed=None):
        self.seeds.append(seed)
        return self.hidden.normal(size=3), {}

    def step(self, action):
        return self.hidden.normal(size=3), 0.0, False, action > 0, {}


def begun(env, *actions) -> Stage:
    stage = Stage(env, seed=7)
    for action in actions:
        stage.begin()
        stage.step(action)
    return stage


def test_only_the_first_episode_is_seeded():
    assert begun(Forgetful(), 0, 1, 1, 0).env.seeds == [7, None, None]  # pyright: ignore[reportAttributeAccessIssue]


# Random actions end an episode of CartPole and Hopper after some twenty steps, one of Pendulum after 200.
@pytest.mark.parametrize("name", ["CartPole-v1", "Hopper-v5", "Pendulum-v1"])
@pytest.mark.parametrize("steps", [0, 1, 23, 40])
def test_a_saved_episode_continues_bit_for_bit(name, steps):
    env, second = gym.make(name), begun(gym.make(name))
    env.action_space.seed(0)
    first = begun(env, *(env.action_space.sample() for _ in range(steps)))
    assert second.restore(*first.save(), otherwise=[0])
    for _ in range(60):
        assert_array_equal(first.begin(), second.begin())
        action = env.action_space.sample()
        for one, other in zip(first.step(action), second.step(action), strict=True):
            assert_array_equal(one, other)


def test_an_environment_that_does_not_repeat_itself_warns_and_begins_a_new_episode():
    env = Forgetful()
    second = begun(env)
    with pytest.warns(UserWarning, match="does not repeat an episode"):
        assert not second.restore(*begun(Forgetful(), 0).save(), otherwise=[1])
    second.begin()
    first, again = env.seeds
    assert first == 7
    assert again not in (7, None)
