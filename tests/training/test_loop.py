"""The loop, on small networks and few steps: what is learned, and what must not matter."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from resuming import ONLINE, train
from small import all_finite, same, small

import valuedice as vd
from valuedice.demos import Demos
from valuedice.training import learner
from valuedice.types import Spec


@pytest.fixture(scope="module")
def falling() -> Demos:
    """Episodes that end in the task, some after a dozen steps."""
    demos = vd.collect_demos("random", "CartPole-v1", 4)
    assert all(episode.terminated for episode in demos.episodes)
    return demos


def test_evaluating_more_often_does_not_change_what_is_learned_online(finished, pendulum):
    other = train(pendulum, "Pendulum-v1", eval_every=9, eval_episodes=1)
    assert [row["step"] for row in other.metrics] == [9, 18, 24]
    assert same(finished.policy, other.policy)


def test_how_often_an_offline_run_is_evaluated_changes_neither_result_nor_speed(pendulum, monkeypatch):
    calls, real = 0, learner.run_updates

    def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(*args)

    monkeypatch.setattr(learner, "run_updates", counted)
    compiled = real._cache_size()  # pyright: ignore[reportFunctionMemberAccess]
    policies = [train(pendulum, updates=2_000, eval_every=every).policy for every in (999, 1_000)]
    # Ten blocks of batches; evaluations at 999 and 1,998 divide two of them.
    assert calls == 12 + 10
    assert real._cache_size() - compiled <= 1  # pyright: ignore[reportFunctionMemberAccess]
    assert same(*policies)


def test_updates_begin_when_training_starts_and_are_counted(finished):
    counts = [(row["step"], row["updates"]) for row in finished.metrics]
    assert counts == [(4, 0), (8, 8), (12, 16), (16, 24), (20, 32), (24, 40)]


def test_updates_change_the_policy(finished):
    untrained = small().init(jax.random.key(0), finished.policy.spec)
    for (kernel, _), before in zip(finished.policy.layers, untrained.actor, strict=True):
        assert kernel.shape == before.kernel.shape
        assert not np.array_equal(kernel, np.array(before.kernel))


def test_log_ratio_gives_a_finite_number_for_each_row(finished, pendulum):
    ratio = finished.algorithm.log_ratio(finished.state, finished.transitions(pendulum))
    assert ratio.shape == (pendulum.rows,)
    assert bool(jnp.isfinite(ratio).all())


def test_the_normaliser_and_bounds_of_the_policy_are_those_of_data_and_task(finished, pendulum):
    observations = pendulum.episodes[0].observations.astype(np.float64)
    assert_allclose(finished.policy.normalizer.mean, observations.mean(0), rtol=1e-5, atol=1e-6)
    assert (finished.policy.spec.low, finished.policy.spec.high) == ((-2.0,), (2.0,))


def test_offline_training_touches_no_environment(pendulum, monkeypatch):
    monkeypatch.setattr(gym, "make", lambda *_, **__: pytest.fail("an environment was made"))
    run = train(pendulum)
    assert all_finite(run)
    assert [(row["step"], row["updates"]) for row in run.metrics] == [(0, 75 * n) for n in range(1, 7)]
    assert {row[name] for row in run.metrics for name in ("return_mean", "return_std", "normalized_return")} == {
        None
    }


def test_offline_evaluation_changes_nothing_but_the_returns(pendulum):
    blind = train(pendulum, updates=8)
    seeing = [
        train(pendulum, updates=8, eval_env="Pendulum-v1"),
        train(pendulum, "Pendulum-v1", offline=True, updates=8),
    ]
    assert blind.metrics[-1]["return_mean"] is None
    for run in seeing:
        assert same(blind.policy, run.policy)
        assert run.metrics[-1]["return_mean"] < 0


def test_other_data_take_part_offline_and_online(finished, pendulum):
    random = vd.collect_demos("random", "Pendulum-v1", 2)
    mixed = train(pendulum, updates=8, replay_data=random)
    online = train(pendulum, "Pendulum-v1", replay_data=random)
    assert all_finite(mixed)
    assert all_finite(online)
    assert not same(mixed.policy, train(pendulum, updates=8).policy)
    assert not same(online.policy, finished.policy)


@pytest.mark.parametrize(
    "changes",
    [
        {"replay_regularization": 0.0},
        {"sampling": "geometric", "initial_states": "starts"},
        {"absorbing": "single"},
        {},
    ],
)
def test_episodes_that_terminate_are_learned_from_on_both_sides(falling, changes):
    # Random actions end an episode of CartPole after some twenty steps, so the buffer has absorbing rows too.
    algorithm = small(random_steps=100, training_starts=90, **changes)
    run = vd.train(algorithm, falling, "CartPole-v1", **(ONLINE | {"steps": 100, "eval_every": 50}))
    assert all_finite(run)
    rows = run.transitions(falling)
    assert len(rows.obs) == falling.rows + len(falling)
    assert rows.obs[:, -1].sum() == len(falling)


def test_a_discrete_policy_acts_in_the_units_of_the_task():
    cartpole = vd.load_demos("cartpole", episodes=1)
    run = train(cartpole, updates=2)
    assert run.policy.spec == Spec(4, 2, discrete=True)
    assert_array_equal(np.isin(run.policy(cartpole.episodes[0].observations), [0, 1]), True)
