"""Several environments side by side: what rows they make, where episodes end, and saving them in the middle."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from valuedice.policy import Policy
from valuedice.rollouts import Collector, Rollouts
from valuedice.types import Normalizer, Spec

SPEC = Spec(obs_size=2, action_size=3, discrete=True)
NORMALIZER = Normalizer.none(2)


class Counter:
    """An observation is [episode, step]; episodes end after `length` steps, in the task or by a time limit."""

    def __init__(self, length: int, terminates: bool) -> None:
        self.length, self.terminates = length, terminates
        self.episode = self.step_number = 0
        self.seeds: list[int | None] = []

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.seeds.append(seed)
        self.episode += 1
        self.step_number = 0
        return np.array([self.episode, 0.0]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        over = self.step_number == self.length
        obs = np.array([self.episode, self.step_number], float)
        return obs, 0.0, over and self.terminates, over and not self.terminates, {}


class Watched(Policy):
    """Notes for how many observations it is asked each time."""

    asked: ClassVar[list[tuple[int, ...]]] = []

    def __call__(self, obs: np.ndarray, *args: Any, **options: Any) -> np.ndarray:
        self.asked.append(obs.shape)
        return super().__call__(obs, *args, **options)


def watched() -> Policy:
    Watched.asked.clear()
    return Watched(((np.zeros((2, 3)), np.zeros(3)),), NORMALIZER, SPEC)


def collect(times: int, *envs: Any, steps: int) -> tuple[Collector, Rollouts]:
    rollouts = Rollouts(SPEC, times, len(envs))
    collector = Collector(envs, rollouts, SPEC, NORMALIZER, seed=0)
    policy = watched()
    for _ in range(steps):
        collector.step(lambda: policy)
    return collector, rollouts


def test_no_row_leads_from_one_episode_into_another():
    _, rollouts = collect(12, Counter(3, terminates=True), Counter(5, terminates=False), steps=12)
    rows = rollouts.newest()
    going_on = rows.next_obs[..., -1] == 0
    assert_array_equal(rows.next_obs[going_on][:, 0], rows.obs[going_on][:, 0])
    assert_array_equal(rows.next_obs[going_on][:, 1], rows.obs[going_on][:, 1] + 1)
    # Every step of the environments is one row, and the first of an episode begins at its reset.
    assert_array_equal(rows.obs[:, 0, 1], np.arange(12) % 3)
    assert_array_equal(rows.obs[:, 1, 1], np.arange(12) % 5)
    assert_array_equal(rows.obs[:, 0, 0], 1 + np.arange(12) // 3)
    assert not rows.obs[..., -1].any()


def test_only_termination_leads_to_the_absorbing_state_and_both_ends_are_ends():
    _, rollouts = collect(6, Counter(3, terminates=True), Counter(3, terminates=False), steps=6)
    rows = rollouts.newest()
    ends = np.arange(6) % 3 == 2
    assert_array_equal(rows.ended, np.stack([ends, ends], axis=1))
    assert_array_equal(rows.next_obs[ends, 0], [[0, 0, 1], [0, 0, 1]])
    # The true last observation, not the first of the next episode.
    assert_array_equal(rows.next_obs[ends, 1], [[1, 3, 0], [2, 3, 0]])


def test_the_policy_is_asked_once_for_all_environments():
    collect(4, *[Counter(9, terminates=True) for _ in range(5)], steps=4)
    assert Watched.asked == [(5, 2)] * 4


def test_every_environment_has_a_seed_of_its_own_and_only_at_the_first_reset():
    envs = [Counter(2, terminates=True) for _ in range(4)]
    collect(8, *envs, steps=5)
    assert len({env.seeds[0] for env in envs}) == 4
    assert all(env.seeds[1:] == [None, None] for env in envs)


def test_a_rollout_is_in_the_order_of_time_and_then_overwritten():
    collector, rollouts = collect(4, Counter(100, terminates=True), steps=4)
    assert_array_equal(rollouts.newest().obs[:, 0, 1], [0, 1, 2, 3])
    kept = rollouts.newest()
    policy = watched()
    for _ in range(4):
        collector.step(lambda: policy)
    assert_array_equal(rollouts.newest().obs[:, 0, 1], [4, 5, 6, 7])
    assert_array_equal(kept.obs[:, 0, 1], [0, 1, 2, 3])


def test_rows_are_repeated_while_there_are_too_few():
    _, rollouts = collect(5, Counter(100, terminates=True), steps=2)
    assert_array_equal(rollouts.newest().obs[:, 0, 1], [0, 1, 0, 1, 0])


# Saved in the middle.


@pytest.mark.parametrize("env", ["CartPole-v1", "Hopper-v5", "Pendulum-v1"])
@pytest.mark.parametrize("steps", [1, 13, 40])
def test_a_collector_goes_on_bit_for_bit(env, steps):
    spaces = gym.make(env)
    discrete = isinstance(spaces.action_space, gym.spaces.Discrete)
    size = spaces.observation_space.shape[0]  # pyright: ignore[reportOptionalSubscript]
    spec = Spec(size, 2, discrete=True)
    if not discrete:
        low, high = spaces.action_space.low, spaces.action_space.high  # pyright: ignore[reportAttributeAccessIssue]
        spec = Spec(size, len(low), low=tuple(low.tolist()), high=tuple(high.tolist()))
    spaces.close()
    rng = np.random.default_rng(0)
    outputs = spec.action_size if discrete else 2 * spec.action_size
    layers = ((rng.normal(size=(size, outputs)).astype(np.float32), np.zeros(outputs, np.float32)),)
    policy = Policy(layers, Normalizer.none(size), spec)

    def begin() -> Collector:
        rollouts = Rollouts(spec, 16, 3)
        return Collector([gym.make(env) for _ in range(3)], rollouts, spec, policy.normalizer, seed=5)

    first, second = begin(), begin()
    for _ in range(steps):
        first.step(lambda: policy)
    arrays, facts = first.save()
    second.restore({name: array.copy() for name, array in arrays.items()}, facts)
    for _ in range(60):
        first.step(lambda: policy)
        second.step(lambda: policy)
        for one, other in zip(first.rollouts.newest(), second.rollouts.newest(), strict=True):
            assert_array_equal(one, other)


class Forgetful(Counter):
    """Counts on from where the last one stopped: nothing brings it back."""

    total = 0

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        Forgetful.total += 1
        obs, *_ = super().step(action)
        return obs + Forgetful.total, 0.0, False, False, {}


def test_an_environment_that_does_not_repeat_itself_is_said_and_its_episode_cut():
    first, _ = collect(4, Counter(100, terminates=True), Forgetful(100, terminates=True), steps=3)
    envs = (Counter(100, terminates=True), Forgetful(100, terminates=True))
    rollouts = Rollouts(SPEC, 4, 2)
    second = Collector(envs, rollouts, SPEC, NORMALIZER, seed=0)
    with pytest.warns(UserWarning, match="does not repeat an episode"):
        second.restore(*first.save())
    assert_array_equal(rollouts.ended[:3], [[False, False], [False, False], [False, True]])
    policy = watched()
    second.step(lambda: policy)
    assert envs[1].episode == 2
    assert_array_equal(rollouts.obs[3, 0], [1, 3, 0])
