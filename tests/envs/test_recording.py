"""Recorded demonstrations: what they hold, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal
from tasks import Countdown

from valuedice.envs.recording import collect_demos
from valuedice.errors import InputError


@pytest.mark.parametrize("truncates", [False, True])
def test_whole_episodes_are_recorded_with_their_ends(truncates):
    action = np.zeros(1)

    def act(obs: np.ndarray) -> np.ndarray:
        action[:] = 2 * obs  # the same array each time
        return action

    def task() -> Countdown:
        return Countdown(truncates=truncates)

    demos = collect_demos(act, task, 2)
    for episode in demos.episodes:
        assert_array_equal(episode.observations, [[3], [2], [1]])
        assert_array_equal(episode.actions, [[6], [4], [2]])
        assert_array_equal(episode.next_observations, [[2], [1], [0]])
        assert_array_equal(episode.rewards, [6, 4, 2])
        assert episode.actions.dtype == np.float32
        assert episode.terminated != truncates
    assert demos.source.endswith("task by a function")


def test_noise_disturbs_actions_within_their_bounds():
    def actions(mean: float, noise: float) -> np.ndarray:
        wide = spaces.Box(-2, 2, (1,))
        demos = collect_demos(lambda _: np.full(1, mean), lambda: Countdown(2000, actions=wide), 2, noise=noise)
        return np.concatenate([episode.actions for episode in demos.episodes])

    # Noise of 0.1 on actions scaled to [-1, 1] is 0.2 on the range from -2 to 2.
    assert actions(0.0, 0.1).std() == pytest.approx(0.2, rel=0.1)
    assert actions(2.0, 0.5).max() == 2
    assert actions(2.0, 0.5).min() >= -2


def test_noise_replaces_a_share_of_discrete_actions():
    demos = collect_demos(lambda _: 1, "CartPole-v1", 100, noise=0.5)
    actions = np.concatenate([episode.actions for episode in demos.episodes])
    # Half are random, half of these are the other action.
    assert actions.mean() == pytest.approx(0.75, abs=5 * np.sqrt(0.75 * 0.25 / len(actions)))


def test_a_recording_repeats_with_its_seed():
    first, again, other = (collect_demos("random", "Pendulum-v1", 1, seed, noise=0.1) for seed in (0, 0, 1))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("policy", "settings", "says"),
    [
        (lambda _: np.zeros(2), {}, r"the policy gave an action of shape \(2,\); the environment takes \(1,\)"),
        (lambda _: 1 / 0, {}, "the policy failed on an observation: ZeroDivisionError"),
        ("nowhere:act", {}, "no function 'nowhere:act'"),
        ("valuedice.envs.scripted:nobody", {}, "no function"),
        ("nobody", {}, "no policy at nobody"),
        ("random", {"episodes": 0}, "`episodes` is 0; it must be at least 1"),
        ("random", {"seed": -1}, "`seed` is -1; it must be at least 0"),
        ("random", {"noise": 1.0}, "`noise` is 1.0; it must be at least 0 and below 1"),
    ],
)
def test_a_policy_that_cannot_act_and_settings_out_of_range_are_refused(policy, settings: dict[str, Any], says):
    with pytest.raises(InputError, match=says):
        collect_demos(policy, Countdown, **({"episodes": 1} | settings))


@pytest.mark.parametrize(
    ("expert", "env", "least"),
    [
        ("cartpole", "CartPole-v1", 500),
        ("inverted_pendulum", "InvertedPendulum-v5", 1000),
        ("pendulum", "Pendulum-v1", -400),
        ("mountain_car", "MountainCarContinuous-v0", 80),
    ],
)
def test_the_scripted_experts_solve_their_tasks(expert, env, least):
    demos = collect_demos(f"valuedice.envs.scripted:{expert}", env, 2)
    assert demos.expert_return is not None
    assert demos.expert_return >= least
