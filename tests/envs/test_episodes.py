"""Whole episodes on a task whose returns are known."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.envs.episodes import Evaluator, evaluate, play
from valuedice.errors import InputError
from valuedice.policy import Policy
from valuedice.types import Normalizer, Spec

SLOPE = 0.25


class Line(gym.Env[Any, Any]):
    """The n-th environment shows n and lasts n steps; the reward is the action."""

    def __init__(self, number: int, truncates: bool = False) -> None:
        self.observation_space, self.action_space = spaces.Box(-100, 100, (1,)), spaces.Box(-1, 1, (1,))
        self.number, self.truncates, self.left = number, truncates, 0

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**how)
        self.left = self.number
        return np.array([self.number], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.left > 0, "stepped after its end"
        self.left -= 1
        over = self.left == 0
        obs = np.array([self.number], np.float32)
        return obs, float(action[0]), over and not self.truncates, over and self.truncates, {}


class Noisy(Line):
    """Five steps, and a reward that depends on the seed of the reset too."""

    def __init__(self) -> None:
        super().__init__(5)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward + self.np_random.normal(), terminated, truncated, info


class Reusing(Line):
    """Counts three steps down, and writes each observation into the same array."""

    array = np.zeros(1, np.float32)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        self.array[:] = super().reset(**how)[0]
        return self.array, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, info = super().step(action)
        self.array[:] = self.left
        return self.array, reward, terminated, truncated, info


def lines(truncates: bool = False) -> Callable[[], gym.Env[Any, Any]]:
    numbers = count(1)
    return lambda: Line(next(numbers), truncates)


def linear_policy(spec: Spec | None = None) -> Policy:
    """tanh(SLOPE · observation), with the smallest deviation."""
    spec = spec or Spec(1, 1, low=(-1.0,), high=(1.0,))
    outputs = spec.action_size if spec.discrete else 2 * spec.action_size
    kernel = np.zeros((spec.obs_size, outputs), np.float32)
    kernel[0, 0] = SLOPE
    plain = Normalizer(np.zeros(spec.obs_size, np.float32), np.ones(spec.obs_size, np.float32))
    return Policy(((kernel, np.zeros(outputs, np.float32)),), plain, spec)


def test_each_transition_is_seen_with_its_ends():
    asked = []

    def act(observations: list[np.ndarray], running: list[int]) -> list[np.ndarray]:
        asked.append(list(running))
        return [obs / 10 for obs in observations]

    steps = list(play(act, [Line(1), Line(3, truncates=True), Line(2)], [0, 1, 2]))
    assert asked == [[0, 1, 2], [1, 2], [1]]
    assert [step.env for step in steps] == [0, 1, 2, 1, 2, 1]
    assert [step.terminated for step in steps] == [True, False, False, False, True, False]
    assert [step.truncated for step in steps] == [False, False, False, False, False, True]
    assert [step.reward for step in steps] == pytest.approx([0.1, 0.3, 0.2, 0.3, 0.2, 0.3])


def test_an_observation_survives_the_next_step_of_an_environment_that_reuses_its_array():
    steps = list(play(lambda obs, _: [np.zeros(1)], [Reusing(3)], [0]))
    assert [(step.obs.item(), step.next_obs.item()) for step in steps] == [(3, 2), (2, 1), (1, 0)]


@pytest.mark.parametrize("truncates", [False, True])
def test_episodes_that_end_at_different_times_keep_their_own_returns_and_lengths(truncates):
    result = evaluate(linear_policy(), lines(truncates), episodes=6)
    numbers = np.arange(1, 7)
    expected = numbers * np.tanh(SLOPE * numbers)
    assert_array_equal(result.lengths, numbers)
    assert_allclose(result.returns, expected, rtol=1e-5)
    assert result.mean == pytest.approx(expected.mean(), rel=1e-5)
    assert result.std == pytest.approx(expected.std(), rel=1e-5)


def test_an_evaluator_can_be_used_again():
    with Evaluator(lines(), 3) as evaluator:
        first, second = (evaluator.policy(linear_policy(), seed) for seed in (0, 1))
    assert_array_equal(first.returns, second.returns)


class Closing(Line):
    """Notes that it was closed; the third one cannot be made."""

    made: ClassVar[list[int]] = []
    closed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        if len(self.made) == 2:
            raise RuntimeError("too many")
        self.made.append(len(self.made))
        super().__init__(self.made[-1] + 1)

    def close(self) -> None:
        self.closed.append(self.number - 1)


@pytest.mark.parametrize(
    ("policy", "episodes", "error"),
    [
        (linear_policy(), 10, RuntimeError),
        (linear_policy(Spec(2, 1, low=(-1.0,), high=(1.0,))), 2, InputError),
        (linear_policy(), 2, None),
    ],
    ids=["the third cannot be made", "the policy does not fit", "all is well"],
)
def test_every_environment_that_was_made_is_closed(policy, episodes, error, monkeypatch):
    monkeypatch.setattr(Closing, "made", [])
    monkeypatch.setattr(Closing, "closed", [])
    with nullcontext() if error is None else pytest.raises(error):
        evaluate(policy, Closing, episodes)
    assert sorted(Closing.closed) == Closing.made == [0, 1]


def test_the_seed_decides_the_resets():
    same, again, other = (evaluate(linear_policy(), Noisy, 4, seed) for seed in (0, 0, 1))
    assert_array_equal(same.returns, again.returns)
    assert not np.isin(same.returns, other.returns).any()
    assert len(set(same.returns)) == 4


def test_a_stochastic_evaluation_repeats_with_its_seed():
    same, again, other = (evaluate(linear_policy(), lines(), 4, seed, deterministic=False) for seed in (0, 0, 1))
    assert_array_equal(same.returns, again.returns)
    assert (same.returns != other.returns).all()


def test_random_returns_are_the_same_in_every_run_whatever_was_evaluated_before():
    fresh, used = Evaluator(Noisy, 10), Evaluator(Noisy, 10)
    used.policy(linear_policy(), 7)
    used.random(3)
    assert_array_equal(fresh.random().returns, used.random().returns)
    assert not np.isin(fresh.random(1).returns, fresh.random(2).returns).any()


@pytest.mark.parametrize("episodes", [1, 3, 15])
def test_random_returns_come_from_ten_episodes_however_many_an_evaluation_has(episodes):
    expected = Evaluator(Noisy, 10).random()
    result = Evaluator(Noisy, episodes).random()
    assert len(result.returns) == 10
    assert_array_equal(result.returns, expected.returns)
    assert_array_equal(result.lengths, [5] * 10)


def test_random_actions_are_uniform_and_differ_between_episodes():
    result = Evaluator(lambda: Line(400), 10).random()
    # A return is the sum of 400 uniform actions of variance 1/3.
    assert np.abs(result.returns).max() < 5 * np.sqrt(400 / 3)
    assert len(set(result.returns)) == 10


def test_a_time_limit_is_imposed_where_the_environment_has_none():
    assert evaluate(linear_policy(), lambda: Line(10**9), 1).lengths.tolist() == [1000]


def test_settings_out_of_range_are_refused():
    with pytest.raises(InputError, match="`episodes` is 0; it must be at least 1"):
        evaluate(linear_policy(), Noisy, episodes=0)
    with pytest.raises(InputError, match="`seed` is -1; it must be at least 0"):
        evaluate(linear_policy(), Noisy, seed=-1)
