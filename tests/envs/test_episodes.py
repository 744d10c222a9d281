"""Whole episodes of a task whose returns are known."""

from __future__ import annotations

from contextlib import nullcontext

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tasks import Countdown, box, linear_policy

from valuedice.envs.episodes import Evaluator, evaluate, play, with_noise
from valuedice.errors import InputError
from valuedice.types import Spec

SLOPE = 0.25
POLICY = linear_policy(box(1, 1), SLOPE)


ONE_SPACE = gym.spaces.Box(-1, 1, (1,))


def noisy() -> Countdown:
    return Countdown(5, noise=1.0)


def sharing() -> Countdown:
    return Countdown(5, noise=1.0, actions=ONE_SPACE)


def test_each_transition_is_seen_with_its_ends():
    asked: list[list[int]] = []

    def act(observations: list[np.ndarray], running: list[int]) -> list[np.ndarray]:
        asked.append(list(running))
        return [obs / 10 for obs in observations]

    steps = list(play(act, [Countdown(1), Countdown(3, truncates=True), Countdown(2)], [0, 1, 2]))
    assert asked == [[0, 1, 2], [1, 2], [1]]
    assert [step.env for step in steps] == [0, 1, 2, 1, 2, 1]
    # Although the environment writes each observation into the same array.
    assert [(step.obs.item(), step.next_obs.item()) for step in steps if step.env == 1] == [(3, 2), (2, 1), (1, 0)]
    assert [step.terminated for step in steps] == [True, False, False, False, True, False]
    assert [step.truncated for step in steps] == [False, False, False, False, False, True]
    assert [step.reward for step in steps] == pytest.approx([0.1, 0.3, 0.2, 0.2, 0.1, 0.1])


@pytest.mark.parametrize("truncates", [False, True])
def test_episodes_that_end_at_different_times_keep_their_own_returns_and_lengths(truncates):
    expected = np.cumsum(np.tanh(SLOPE * np.arange(1, 7)))
    numbers = iter(range(1, 7))
    with Evaluator(lambda: Countdown(next(numbers), truncates=truncates), 6) as evaluator:
        for seed in (0, 1):
            result = evaluator.policy(POLICY, seed)
            assert_array_equal(result.lengths, np.arange(1, 7))
            assert_allclose(result.returns, expected, rtol=1e-5)
    assert result.mean == pytest.approx(expected.mean(), rel=1e-5)
    assert result.std == pytest.approx(expected.std(), rel=1e-5)


@pytest.mark.parametrize(
    ("policy", "episodes", "error"),
    [(POLICY, 10, RuntimeError), (linear_policy(box(2, 1)), 2, InputError), (POLICY, 2, None)],
)
def test_every_environment_that_was_made_is_closed(policy, episodes, error):
    made: list[Countdown] = []

    def make() -> Countdown:
        if len(made) == 2:
            raise RuntimeError("too many")
        made.append(Countdown())
        return made[-1]

    with nullcontext() if error is None else pytest.raises(error):
        evaluate(policy, make, episodes)
    assert [env.closed for env in made] == [True, True]


@pytest.mark.parametrize(("env", "deterministic"), [(noisy, True), (Countdown, False)])
def test_the_seed_decides_resets_and_samples(env, deterministic):
    same, again, other = (evaluate(POLICY, env, 4, seed, deterministic) for seed in (0, 0, 1))
    assert_array_equal(same.returns, again.returns)
    assert len({*same.returns, *other.returns}) == 8


@pytest.mark.parametrize("episodes", [1, 3, 15])
@pytest.mark.parametrize("env", [noisy, sharing], ids=["own action spaces", "one action space"])
def test_random_returns_are_those_of_ten_episodes_whatever_was_evaluated_before_and_how(env, episodes):
    expected = Evaluator(env, 10).random()
    assert_array_equal(expected.lengths, [5] * 10)
    used = Evaluator(env, episodes)
    used.policy(POLICY, 7)
    other = used.random(3)
    assert_array_equal(used.random().returns, expected.returns)
    assert len({*expected.returns, *other.returns}) == 20


def test_random_actions_are_uniform_until_a_time_limit_which_is_imposed_if_there_is_none():
    result = Evaluator(lambda: Countdown(10**6), 10).random()
    assert_array_equal(result.lengths, [1000] * 10)
    # A return is the sum of 1000 uniform actions of variance 1/3.
    assert np.abs(result.returns).max() < 5 * np.sqrt(1000 / 3)
    assert result.std > np.sqrt(1000 / 3) / 3


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_noise_disturbs_each_action_of_each_episode(noise):
    # The policy does nothing, so a return is the sum of the noise on 1000 actions.
    still = linear_policy(box(1, 1))
    result = evaluate(still, lambda: Countdown(1000), 20, noise=noise)
    assert result.std == pytest.approx(noise * np.sqrt(1000), rel=0.5)
    assert abs(result.mean) < 5 * noise * np.sqrt(1000 / 20)
    assert_array_equal(result.returns, evaluate(still, lambda: Countdown(1000), 20, noise=noise).returns)


def test_noise_replaces_a_share_of_discrete_actions_in_each_episode():
    spec = Spec(1, 4, discrete=True, first_action=2)
    act = with_noise(lambda obs: np.full(len(obs), 3), 0.4, spec, np.random.default_rng(0))
    taken = np.concatenate([act(np.zeros((10, 1))) for _ in range(500)])
    # A tenth for each of the four actions, and the rest for the one that was meant.
    assert_allclose(np.bincount(taken, minlength=6) / len(taken), [0, 0, 0.1, 0.7, 0.1, 0.1], atol=0.03)


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"episodes": 0}, "at least 1"), ({"seed": -1}, "at least 0"), ({"noise": 1.0}, "`noise` is 1.0")],
)
def test_settings_out_of_range_are_refused(settings, says):
    with pytest.raises(InputError, match=says):
        evaluate(POLICY, Countdown, **settings)
