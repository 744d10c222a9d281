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

    demos = collect_demos(act, lambda: Countdown(truncates=truncates), 2)
    for episode in demos.episodes:
        assert_array_equal(episode.observations, [[3], [2], [1]])
        assert_array_equal(episode.actions, [[6], [4], [2]])
        assert_array_equal(episode.next_observations, [[2], [1], [0]])
        assert_array_equal(episode.rewards, [6, 4, 2])
        assert episode.actions.dtype == np.float32
        assert episode.terminated != truncates
    assert demos.source.endswith(" by a function")


@pytest.mark.parametrize(("mean", "noise"), [(0.0, 0.1), (2.0, 0.5)])
def test_noise_disturbs_actions_within_their_bounds(mean, noise):
    wide = spaces.Box(-2, 2, (1,))
    demos = collect_demos(lambda _: np.full(1, mean), lambda: Countdown(1000, actions=wide), 1, noise=noise)
    disturbed = demos.episodes[0].actions - mean
    # The lower half of Gaussian noise, twice as large as on actions scaled to [-1, 1]; nothing is above the bound.
    assert np.std(disturbed[disturbed < 0]) == pytest.approx(2 * noise * np.sqrt(1 - 2 / np.pi), rel=0.15)
    assert disturbed.max() == 0 if mean == 2 else disturbed.max() > 0


def test_noise_replaces_a_share_of_discrete_actions():
    demos = collect_demos(lambda _: 1, "CartPole-v1", 100, noise=0.5)
    actions = np.concatenate([episode.actions for episode in demos.episodes])
    # Half are random, half of these are the other action.
    assert actions.mean() == pytest.approx(0.75, abs=5 * np.sqrt(0.75 * 0.25 / len(actions)))


def test_episodes_of_a_low_return_are_replaced_by_further_ones():
    # The return of an episode is its noise, which its seed decides.
    def record(episodes: int, **options: Any) -> list[float]:
        demos = collect_demos(lambda _: np.zeros(1), lambda: Countdown(noise=1.0), episodes, **options)
        return [episode.total_reward or 0.0 for episode in demos.episodes]

    tried = record(20)
    assert record(4, least_return=0.5) == [total for total in tried if total >= 0.5][:4] != tried[:4]
    with pytest.raises(
        InputError, match="only 0 of 10 episodes have a return of at least 99; lower `least_return`"
    ):
        record(2, least_return=99)


def test_a_recording_repeats_with_its_seed():
    first, again, other = (collect_demos("random", "Pendulum-v1", 1, seed, noise=0.1) for seed in (0, 0, 1))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("policy", "settings", "says"),
    [
        (lambda _: np.zeros(2), {}, r"gave an action of shape \(2,\); the environment takes \(1,\)"),
        (lambda _: 1 / 0, {}, "the policy failed on an observation: ZeroDivisionError"),
        ("nowhere:act", {}, "no function 'nowhere:act'"),
        ("valuedice.envs.scripted:nobody", {}, "no function"),
        ("nobody", {}, "no policy at nobody"),
        ("random", {"episodes": 0}, "`episodes` is 0; it must be at least 1"),
        ("random", {"seed": -1}, "`seed` is -1; it must be at least 0"),
        ("random", {"noise": 1.0}, "`noise` is 1.0; it must be at least 0 and below 1"),
    ],
)
def test_a_policy_that_cannot_act_and_settings_out_of_range_are_refused(policy, settings, says):
    arguments: dict[str, Any] = {"episodes": 1} | settings
    with pytest.raises(InputError, match=says):
        collect_demos(policy, Countdown, **arguments)


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
    returns = collect_demos(f"valuedice.envs.scripted:{expert}", env, 2).expert_return
    assert returns is not None
    assert returns >= least
