"""Acting against recording environments: what they are asked, and what the buffers get."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tasks import linear_policy

from valuedice.envs.make import make_env, task_spec
from valuedice.policy import Policy
from valuedice.replay import Replay, Rollouts
from valuedice.training import acting
from valuedice.training.acting import Collector, Explorer
from valuedice.types import Normalizer, Pace, Spec

BOX = Spec(obs_size=2, action_size=2, low=(-1.0, 0.0), high=(3.0, 10.0))
CHOICE = Spec(obs_size=2, action_size=3, discrete=True, first_action=1)
NORMALIZER = Normalizer(np.array([100.0, 2.0], np.float32), np.array([50.0, 4.0], np.float32))
UNASKED: Any = None


class Recorder:
    """An observation is [100 · episode, step]; given steps end an episode."""

    def __init__(self, terminates=(), truncates=()):
        self.terminates, self.truncates = terminates, truncates
        self.seeds, self.actions = [], []

    def obs(self):
        return np.array([100.0 * len(self.seeds), len(self.actions)])

    def reset(self, seed=None):
        self.seeds.append(seed)
        return self.obs(), {}

    def step(self, action):
        self.actions.append(action)
        step = len(self.actions)
        return self.obs(), 1.0, step in self.terminates, step in self.truncates, {}


class Drifting(Recorder):
    """Counts on from where the last one stopped: nothing brings it back."""

    total: ClassVar[int] = 0

    def obs(self):
        Drifting.total += 1
        return super().obs() + Drifting.total


def constant(spec, output, normalizer=NORMALIZER) -> Policy:
    return Policy(((np.zeros((2, len(output))), np.array(output)),), normalizer, spec)


def gaussian(location, raw=20.0) -> Policy:
    """By default with the largest standard deviation, e²: a sample would show."""
    return constant(BOX, [*location, raw, raw])


def explorer(env: Any, spec=BOX, random=99, noise: float | None = 0.0, seed=7) -> Explorer:
    pace = Pace(updates_per_step=1, update_every=1, random_steps=random, training_starts=0, noise=noise)
    return Explorer(env, Replay(spec, 5_000), spec, NORMALIZER, pace, seed=seed)


def run(env, spec, *policies, steps, **options) -> tuple[np.ndarray, Replay]:
    """The actions, as one array, and the buffer. The policies take turns."""
    actor = explorer(env, spec, **({"random": 0} | options))
    for step in range(steps):
        actor.step(policies[step % len(policies)])
        assert actor.steps == step + 1
    return np.array(env.actions), actor.replay


def test_random_actions_are_uniform_over_the_bounds_and_need_no_policy():
    actions, _ = run(Recorder(), BOX, UNASKED, steps=4000, random=4000)
    low, high = np.array(BOX.low), np.array(BOX.high)
    unit = (actions - low) / (high - low)
    assert unit.min() >= 0
    assert unit.max() <= 1
    for quantile in (0.01, 0.25, 0.5, 0.75, 0.99):
        assert_allclose(np.quantile(unit, quantile, axis=0), quantile, atol=0.03)
    assert_allclose(np.cov(unit.T), np.eye(2) / 12, atol=0.01)


def test_discrete_actions_are_uniform_at_first_and_then_sampled_from_the_policy():
    policy = constant(CHOICE, np.log([0.1, 0.3, 0.6]))
    actions, _ = run(Recorder(), CHOICE, policy, steps=4500, random=2000)
    assert_allclose(np.bincount(actions[:2000]) / 2000, [0, 1 / 3, 1 / 3, 1 / 3], atol=0.04)
    assert_allclose(np.bincount(actions[2000:]) / 2500, [0, 0.1, 0.3, 0.6], atol=0.04)


def test_the_policy_of_the_moment_acts_after_the_random_steps():
    policies = gaussian([0.5, -0.5]), gaussian([-1.0, 1.0])
    actions, _ = run(Recorder(), BOX, *policies, steps=8, random=5)
    # The middle of the range is 1 and 5, half its width 2 and 5; the second policy has the sixth step.
    assert_allclose(actions[5:, 0], 1 + 2 * np.tanh([-1.0, 0.5, -1.0]), rtol=1e-6)
    assert_allclose(actions[5:, 1], 5 + 5 * np.tanh([1.0, -0.5, 1.0]), rtol=1e-6)
    assert len(np.unique(actions[:5], axis=0)) == 5
    # It sees the observation as it is, and normalises by itself: [100, step] is [0, (step - 2) / 4].
    policy = Policy(((np.array([[0.0] * 4, [1.0] * 4]), np.zeros(4)),), NORMALIZER, BOX)
    actions, _ = run(Recorder(), BOX, policy, steps=6)
    assert_allclose(actions[:, 0], 1 + 2 * np.tanh((np.arange(6) - 2) / 4), rtol=1e-6)


def test_noise_is_added_to_the_mean_action_before_it_is_scaled():
    actions, _ = run(Recorder(), BOX, gaussian([0.3, -0.5]), steps=4000, noise=0.1)
    assert_allclose(actions.mean(0), [1 + 2 * np.tanh(0.3), 5 + 5 * np.tanh(-0.5)], atol=0.03)
    assert_allclose(np.cov(actions.T), [[0.2**2, 0], [0, 0.5**2]], atol=0.01)


def test_without_noise_the_policy_is_sampled():
    # The tanh of a Gaussian; its log standard deviation for the output 0 is the middle of the bounds, -1.5.
    actions, _ = run(Recorder(), BOX, gaussian([0.3, -0.5], raw=0.0), steps=4000, noise=None)
    u = np.arctanh((actions - [1, 5]) / [2, 5])
    assert_allclose(u.mean(0), [0.3, -0.5], atol=0.02)
    assert_allclose(u.std(0), np.exp(-1.5), atol=0.02)


def test_noisy_actions_stay_within_the_bounds():
    actions, _ = run(Recorder(), BOX, gaussian([0.0, 0.0]), steps=1000, noise=100.0)
    assert_array_equal([actions.min(0), actions.max(0)], [BOX.low, BOX.high])


def test_only_termination_leads_to_the_absorbing_state():
    _, replay = run(Recorder(terminates=[2], truncates=[4]), BOX, UNASKED, steps=5, random=5)
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


def test_actions_are_stored_encoded():
    actions, replay = run(Recorder(), BOX, UNASKED, steps=5, random=5)
    assert_allclose(replay.action[:5], (actions - [1, 5]) / [2, 5], atol=1e-6)
    choices, replay = run(Recorder(), CHOICE, UNASKED, steps=5, random=5)
    assert_array_equal(replay.action[:5], np.eye(3)[choices - 1])


def test_an_explorer_cuts_an_episode_that_cannot_be_repeated():
    first, second = explorer(Drifting()), explorer(Drifting())
    for _ in range(5):
        first.step(UNASKED)
    second.replay.restore(0, first.replay.export(0, 5))
    with pytest.warns(UserWarning, match="does not repeat an episode"):
        second.restore(*first.save())
    second.step(UNASKED)
    assert second.replay.last[:6].tolist() == [4, 4, 4, 4, 4, -1]
    assert second.steps == 6


# Several environments side by side.


class Watched(Policy):
    """Notes the shapes of the observations that it is asked about."""

    asked: ClassVar[list[tuple[int, ...]]] = []

    def __call__(self, obs, *args, **options):
        self.asked.append(obs.shape)
        return super().__call__(obs, *args, **options)


def collect(times: int, *envs: Any, steps: int) -> Collector:
    plain = Normalizer.none(2)
    collector = Collector(envs, Rollouts(CHOICE, times, len(envs)), CHOICE, plain, seed=0)
    for _ in range(steps):
        collector.step(Watched(constant(CHOICE, np.zeros(3)).layers, plain, CHOICE))
    return collector


def test_no_row_leads_from_one_episode_into_another():
    envs = Recorder(terminates=[3, 6, 9, 12]), Recorder(truncates=[5, 10])
    Watched.asked.clear()
    rows = collect(12, *envs, steps=12).rollouts.newest()
    # Every step is one row, and the first of an episode begins at its reset: [100 · episode, step].
    assert_array_equal(rows.obs[:, 0, 0], 100 * (1 + np.arange(12) // 3))
    assert_array_equal(rows.obs[:, 1, 0], 100 * (1 + np.arange(12) // 5))
    assert_array_equal(rows.obs[:, :, 1], np.stack([np.arange(12)] * 2, axis=1))
    assert_array_equal(np.flatnonzero(rows.ended[:, 0]), [2, 5, 8, 11])
    assert_array_equal(np.flatnonzero(rows.ended[:, 1]), [4, 9])
    # Only termination leads to the absorbing state; at a time limit s′ is the true last observation.
    alive = rows.next_obs[..., -1] == 0
    assert_array_equal(alive, ~rows.ended | [[False, True]])
    assert_array_equal(rows.next_obs[alive][:, :2], rows.obs[alive][:, :2] + [0, 1])
    assert not rows.obs[..., -1].any()
    # The policy is asked once for all environments, each of which has a seed of its own.
    assert Watched.asked == [(2, 2)] * 12
    assert envs[0].seeds[0] != envs[1].seeds[0]
    assert envs[0].seeds[1:] == [None] * 4


def walk(threads: int, steps: int) -> tuple[Collector, Any]:
    """Three environments of MuJoCo that fall now and then, by a policy whose samples are wide."""
    envs = [make_env("Hopper-v5") for _ in range(3)]
    spec, plain = task_spec(envs[0], "Hopper-v5"), Normalizer.none(11)
    collector = Collector(envs, Rollouts(spec, steps, 3), spec, plain, seed=0, threads=threads)
    for _ in range(steps):
        collector.step(linear_policy(spec))
    return collector, collector.rollouts.newest()


def test_threads_do_not_change_what_is_collected(monkeypatch):
    monkeypatch.setattr(acting, "SLOW_STEP", 0.0)
    (alone, rows), (shared, again) = walk(1, 60), walk(2, 60)
    assert [len(share) for share in shared.shares] == [2, 1]
    assert (alone.pool is None, shared.pool is None) == (True, False)
    assert rows.ended.any()
    for one, other in zip(rows, again, strict=True):
        assert_array_equal(one, other)


def test_quick_environments_are_stepped_without_threads(monkeypatch):
    monkeypatch.setattr(acting, "SLOW_STEP", 1e9)
    monkeypatch.setattr(acting.ThreadPoolExecutor, "submit", None)
    assert walk(2, 40)[1].ended.any()


def test_only_environments_of_mujoco_share_threads():
    plain = Normalizer.none(2)
    others: list[Any] = [Recorder(), Recorder()]
    collector = Collector(others, Rollouts(CHOICE, 4, 2), CHOICE, plain, seed=0, threads=2)
    assert collector.pool is None


def test_a_collector_cuts_only_the_episode_that_cannot_be_repeated():
    first = collect(4, Recorder(), Drifting(), steps=3)
    second = collect(4, Recorder(), Drifting(), steps=0)
    with pytest.warns(UserWarning, match="does not repeat an episode"):
        second.restore(*first.save())
    assert_array_equal(second.rollouts.ended[:3], [[False, False], [False, False], [False, True]])
    second.step(constant(CHOICE, np.zeros(3)))
    assert_array_equal(second.rollouts.obs[3, 0], [100, 3, 0])
