"""Exploration against a recording environment: what it is asked, and what the replay buffer gets."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.explore import Explorer
from valuedice.policy import Policy
from valuedice.replay import Replay
from valuedice.types import Normalizer, Spec

BOX = Spec(obs_size=2, action_size=2, low=(-1.0, 0.0), high=(3.0, 10.0))
CHOICE = Spec(obs_size=2, action_size=3, discrete=True, first_action=1)
NORMALIZER = Normalizer(np.array([100.0, 2.0], np.float32), np.array([50.0, 4.0], np.float32))
KINDS = pytest.mark.parametrize("spec", [BOX, CHOICE], ids=["box", "choice"])


class Recorder:
    """An observation is [100 · episode, step]; given steps end an episode."""

    def __init__(self, terminates=(), truncates=()):
        self.terminates, self.truncates = terminates, truncates
        self.seeds: list[int | None] = []
        self.actions: list[np.ndarray] = []

    def obs(self):
        return np.array([100.0 * len(self.seeds), len(self.actions)])

    def reset(self, seed=None):
        self.seeds.append(seed)
        return self.obs(), {}

    def step(self, action):
        self.actions.append(action)
        step = len(self.actions)
        return self.obs(), 1.0, step in self.terminates, step in self.truncates, {}


def constant(spec, output) -> Policy:
    return Policy(((np.zeros((2, len(output))), np.array(output)),), NORMALIZER, spec)


def gaussian(location, raw=20.0) -> Policy:
    """Of the largest standard deviation, e²: a sample would show."""
    return constant(BOX, [*location, raw, raw])


def unasked() -> Policy:
    raise AssertionError("the policy was asked")


def run(env, spec, policy, *, steps, random_steps=0, noise: float | None = 0.0, seed=7):
    """The actions, as one array, and the buffer."""
    replay = Replay(spec, capacity=steps + 10)
    explorer = Explorer(env, replay, spec, NORMALIZER, random_steps=random_steps, noise=noise, seed=seed)
    for _ in range(steps):
        explorer.step(policy)
    return np.array(env.actions), replay


def test_random_actions_are_uniform_over_the_bounds_and_need_no_policy():
    actions, _ = run(Recorder(), BOX, unasked, steps=4000, random_steps=4000)
    low, high = np.array(BOX.low), np.array(BOX.high)
    unit = (actions - low) / (high - low)
    assert unit.min() >= 0
    assert unit.max() <= 1
    for quantile in (0.01, 0.25, 0.5, 0.75, 0.99):
        assert_allclose(np.quantile(unit, quantile, axis=0), quantile, atol=0.03)
    assert_allclose(np.cov(unit.T), np.eye(2) / 12, atol=0.01)


def test_random_discrete_actions_are_uniform():
    actions, _ = run(Recorder(), CHOICE, unasked, steps=4000, random_steps=4000)
    assert_allclose(np.bincount(actions) / 4000, [0, 1 / 3, 1 / 3, 1 / 3], atol=0.03)


def test_the_policy_of_the_moment_acts_after_the_random_steps():
    policies = cycle([gaussian([0.5, -0.5]), gaussian([-1.0, 1.0])])
    actions, _ = run(Recorder(), BOX, lambda: next(policies), steps=8, random_steps=5)
    # Half the range is 2 and 5, its middle 1 and 5.
    first, second = 1 + 2 * np.tanh([0.5, -1.0])
    assert_allclose(actions[5:, 0], [first, second, first], rtol=1e-6)
    assert_allclose(actions[5:, 1], 5 + 5 * np.tanh([-0.5, 1.0, -0.5]), rtol=1e-6)
    assert len(np.unique(actions[:5], axis=0)) == 5


def test_the_policy_sees_the_observation_as_it_is():
    # It normalises by itself: [100, step] of the first episode is [0, (step - 2) / 4].
    policy = Policy(((np.array([[0.0] * 4, [1.0] * 4]), np.zeros(4)),), NORMALIZER, BOX)
    actions, _ = run(Recorder(), BOX, lambda: policy, steps=6)
    assert_allclose(actions[:, 0], 1 + 2 * np.tanh((np.arange(6) - 2) / 4), rtol=1e-6)


def test_noise_is_added_to_the_mean_action_before_it_is_scaled():
    actions, _ = run(Recorder(), BOX, lambda: gaussian([0.3, -0.5]), steps=4000, noise=0.1)
    assert_allclose(actions.mean(0), [1 + 2 * np.tanh(0.3), 5 + 5 * np.tanh(-0.5)], atol=0.03)
    assert_allclose(np.cov(actions.T), [[0.2**2, 0], [0, 0.5**2]], atol=0.01)


def test_without_noise_the_policy_is_sampled():
    # tanh of a Gaussian whose log-std, of raw 0, is the middle of its bounds, -1.5.
    actions, _ = run(Recorder(), BOX, lambda: gaussian([0.3, -0.5], raw=0.0), steps=4000, noise=None)
    u = np.arctanh((actions - [1, 5]) / [2, 5])
    assert_allclose(u.mean(0), [0.3, -0.5], atol=0.02)
    assert_allclose(u.std(0), np.exp(-1.5), atol=0.02)


def test_noisy_actions_stay_within_the_bounds():
    actions, _ = run(Recorder(), BOX, lambda: gaussian([0.0, 0.0]), steps=1000, noise=100.0)
    assert_array_equal([actions.min(0), actions.max(0)], [BOX.low, BOX.high])


def test_a_discrete_policy_is_sampled_in_proportion_to_its_probabilities():
    policy = constant(CHOICE, np.log([0.1, 0.3, 0.6]))
    actions, _ = run(Recorder(), CHOICE, lambda: policy, steps=4000)
    assert_allclose(np.bincount(actions) / 4000, [0, 0.1, 0.3, 0.6], atol=0.03)


@KINDS
def test_a_seed_decides_all_actions(spec):
    policy = gaussian([0.0, 0.0]) if spec is BOX else constant(CHOICE, np.zeros(3))

    def actions(seed):
        return run(Recorder(), spec, lambda: policy, steps=40, random_steps=20, noise=0.1, seed=seed)[0]

    assert_array_equal(actions(0), actions(0))
    for part in (slice(20), slice(20, 40)):
        assert np.any(actions(0)[part] != actions(1)[part])


def test_only_termination_leads_to_the_absorbing_state():
    env = Recorder(terminates=[2], truncates=[4])
    _, replay = run(env, BOX, unasked, steps=5, random_steps=5)
    rows = replay.rows(np.arange(len(replay)))
    # Normalised by hand: 100, 200, 300 are 0, 2, 4; steps 0 to 5 are -0.5 to 0.75. The third row is the loop.
    here = [[0, -0.5, 0], [0, -0.25, 0], [0, 0, 1], [2, 0, 0], [2, 0.25, 0], [4, 0.5, 0]]
    after = [[0, -0.25, 0], [0, 0, 1], [0, 0, 1], [2, 0.25, 0], [2, 0.5, 0], [4, 0.75, 0]]
    assert_array_equal(rows.obs, here)
    assert_array_equal(rows.next_obs, after)
    # The environment gives 1 for a step, the absorbing state nothing.
    assert_array_equal(rows.reward, [1, 1, 0, 1, 1, 1])
    # Both ends close an episode.
    assert_array_equal(replay.first[:6], [0, 0, 0, 3, 3, 5])
    assert_array_equal(replay.last[:6], [2, 2, 2, 4, 4, -1])


def test_only_the_first_reset_is_seeded():
    env = Recorder(terminates=[2], truncates=[4])
    run(env, BOX, unasked, steps=5, random_steps=5, seed=7)
    assert env.seeds == [7, None, None]


def test_actions_are_stored_encoded():
    actions, replay = run(Recorder(), BOX, unasked, steps=5, random_steps=5)
    assert_allclose(replay.action[:5], (actions - [1, 5]) / [2, 5], atol=1e-6)
    choices, replay = run(Recorder(), CHOICE, unasked, steps=5, random_steps=5)
    assert_array_equal(replay.action[:5], np.eye(3)[choices - 1])


def test_every_step_is_stored_before_it_is_counted():
    replay = Replay(BOX, 10)
    explorer = Explorer(Recorder(), replay, BOX, NORMALIZER, random_steps=4, noise=0.0, seed=0)
    for step in range(1, 5):
        explorer.step(unasked)
        assert len(replay) == explorer.steps == step
