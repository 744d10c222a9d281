"""The loop, on small networks and few steps: what is learned, and what must not matter."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from resuming import train
from small import all_finite, same, small

import valuedice as vd
from valuedice.training import learner
from valuedice.types import Spec


def test_how_often_an_offline_run_is_evaluated_changes_neither_result_nor_speed(pendulum, monkeypatch):
    calls, real = [], learner.run_updates
    monkeypatch.setattr(learner, "run_updates", lambda *args: calls.append(args[3:]) or real(*args))
    compiled: Any = real
    before = compiled._cache_size()
    policies = [train(pendulum, updates=2_000, eval_every=every).policy for every in (999, 1_000)]
    # Ten blocks of batches; evaluations at 999 and 1,998 divide two of them.
    assert len(calls) == 12 + 10
    assert compiled._cache_size() - before <= 1
    assert same(*policies)


def test_updates_begin_when_training_starts_are_counted_and_change_the_policy(finished):
    counts = [(row["step"], row["updates"]) for row in finished.metrics]
    assert counts == [(0, 0), (4, 0), (8, 8), (12, 16), (16, 24), (20, 32), (24, 40)]
    untrained = small().init(jax.random.key(0), finished.policy.spec)
    last = vd.load_policy(finished.out / "policy-last.safetensors")
    for (kernel, _), before in zip(last.layers, untrained.actor.layers, strict=True):
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
    assert [(row["step"], row["updates"]) for row in run.metrics] == [(0, 75 * n) for n in range(7)]
    assert {row[f"return_{name}"] for row in run.metrics for name in ("mean", "std")} == {None}


def test_offline_evaluation_changes_nothing_but_the_returns(pendulum):
    blind = train(pendulum, updates=8)
    assert blind.metrics[-1]["return_mean"] is None
    for changes in ({"eval_env": "Pendulum-v1"}, {"env": "Pendulum-v1", "offline": True}):
        run = train(pendulum, updates=8, keep="last", **changes)
        assert same(blind.policy, run.policy)
        assert run.metrics[-1]["return_mean"] < 0


def test_other_data_take_part_offline_and_online(finished, pendulum):
    random = vd.collect_demos("random", "Pendulum-v1", 2)
    for alone, changes in ((train(pendulum, updates=8), {"updates": 8}), (finished, {"env": "Pendulum-v1"})):
        mixed = train(pendulum, replay_data=random, **changes)
        assert all_finite(mixed)
        assert not same(mixed.policy, alone.policy)


GEOMETRIC = {"sampling": "geometric", "initial_states": "starts"}


@pytest.mark.parametrize("changes", [{}, GEOMETRIC, {"absorbing": "single", "replay_regularization": 0.0}])
def test_episodes_that_terminate_are_learned_from_on_both_sides(changes):
    falling = vd.collect_demos("random", "CartPole-v1", 4)
    # Random actions end an episode of CartPole after some twenty steps, so the buffer has absorbing rows too.
    algorithm = small(random_steps=100, training_starts=90, **changes)
    run = train(falling, "CartPole-v1", algorithm=algorithm, steps=100, eval_every=50)
    assert all_finite(run)
    rows = run.transitions(falling)
    assert len(rows.obs) == falling.rows + len(falling)
    assert rows.obs[:, -1].sum() == len(falling)
    assert run.policy.spec == Spec(4, 2, discrete=True)
    assert set(run.policy(falling.episodes[0].observations).tolist()) <= {0, 1}
