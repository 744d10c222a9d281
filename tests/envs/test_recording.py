"""Recorded demonstrations: what they hold, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from valuedice.envs import scripted
from valuedice.envs.recording import collect_demos
from valuedice.errors import InputError


class Sum(gym.Env[Any, Any]):
    """Adds up the actions and rewards the sum; ends after three steps, the first episode in the task."""

    observation_space, action_space = spaces.Box(-100, 100, (1,)), spaces.Box(-2, 2, (1,))
    episode, steps, total = 0, 0, 0.0

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**how)
        self.episode, self.steps, self.total = self.episode + 1, 0, 0.0
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps, self.total = self.steps + 1, self.total + float(action[0])
        over = self.steps == 3
        return np.array([self.total]), self.total, over and self.episode == 1, over and self.episode > 1, {}


def test_whole_episodes_are_recorded_with_their_ends():
    action = np.zeros(1)

    def count(obs: np.ndarray) -> np.ndarray:
        action[:] = obs + 1  # the same array each time
        return action

    demos = collect_demos(count, Sum, 2)
    for episode in demos.episodes:
        assert_array_equal(episode.observations, [[0], [1], [3]])
        assert_array_equal(episode.actions, [[1], [2], [4]])
        assert_array_equal(episode.next_observations, [[1], [3], [7]])
        assert_array_equal(episode.rewards, [1, 3, 7])
        assert episode.actions.dtype == np.float32
    assert [episode.terminated for episode in demos.episodes] == [True, False]
    assert demos.source == "Sum by a function"


def test_noise_disturbs_actions_within_their_bounds():
    still, at_bound = (lambda _: np.zeros(1)), (lambda _: np.full(1, 2.0))
    actions = np.concatenate([e.actions for e in collect_demos(still, Sum, 700, noise=0.1).episodes])
    # 2100 actions, whose scaled noise of 0.1 spans a range of 2 on each side.
    assert actions.std() == pytest.approx(0.2, rel=0.1)
    edge = np.concatenate([e.actions for e in collect_demos(at_bound, Sum, 20, noise=0.5).episodes])
    assert edge.max() == 2
    assert edge.min() >= -2


def test_noise_replaces_a_share_of_discrete_actions():
    demos = collect_demos(lambda _: 1, "CartPole-v1", 100, noise=0.5)
    actions = np.concatenate([episode.actions for episode in demos.episodes])
    # Half are random, half of these are the other action.
    assert actions.mean() == pytest.approx(0.75, abs=5 * np.sqrt(0.75 * 0.25 / len(actions)))


def test_a_recording_repeats_with_its_seed():
    first, again, other = (collect_demos("random", "Pendulum-v1", 1, seed, noise=0.1) for seed in (0, 0, 1))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (lambda _: np.zeros(2), r"the policy gave an action of shape \(2,\); the environment takes \(1,\)"),
        (lambda _: 1 / 0, "the policy failed on an observation: ZeroDivisionError"),
        ("nowhere:act", "no function 'nowhere:act'"),
        ("valuedice.envs.scripted:nobody", "no function"),
        ("nobody", "no policy at nobody"),
    ],
)
def test_a_policy_that_cannot_act_is_refused(policy, says):
    with pytest.raises(InputError, match=says):
        collect_demos(policy, Sum, 1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"episodes": 0}, "`episodes` is 0; it must be at least 1"),
        ({"seed": -1}, "`seed` is -1; it must be at least 0"),
        ({"noise": 1.0}, "`noise` is 1.0; it must be at least 0 and below 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, says):
    with pytest.raises(InputError, match=says):
        collect_demos("random", Sum, **({"episodes": 1} | settings))


@pytest.mark.parametrize(
    ("expert", "env", "least"),
    [
        (scripted.cartpole, "CartPole-v1", 500),
        (scripted.inverted_pendulum, "InvertedPendulum-v5", 1000),
        (scripted.pendulum, "Pendulum-v1", -400),
        (scripted.mountain_car, "MountainCarContinuous-v0", 80),
    ],
)
def test_the_scripted_experts_solve_their_tasks(expert, env, least):
    demos = collect_demos(f"valuedice.envs.scripted:{expert.__name__}", env, 2)
    assert demos.expert_return is not None
    assert demos.expert_return >= least
