"""SAC against closed forms: values that are known, and what the absorbing state may not do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sample_rows import constant, random_rows, update

from valuedice.algorithms import SAC
from valuedice.algorithms.sac import State, actor_loss, critic_loss, follow, q_values, soft_value, temperature_loss
from valuedice.losses import orthogonal_penalty
from valuedice.networks import Dense, gaussian_policy
from valuedice.training.run import train_expert
from valuedice.types import Batch, Spec, Transition

SPEC = Spec(2, 3)
TINY = SAC(hidden=(4,))
CRITICS, TARGETS = (1.0, 4.0), (2.0, 3.0)
REWARD = np.linspace(-1, 2, 16)
ROWS, ENDS = (random_rows(0, SPEC, ends=ends)._replace(reward=REWARD) for ends in ((), range(16)))
step = jax.jit(SAC.step, static_argnums=0, static_argnames="absorbing")


def flat_state(alpha: float) -> State:
    """Critics and targets that are constants."""
    state = TINY.init(jax.random.key(0), SPEC)
    critics = [constant(params, value) for params, value in zip(state.critics, CRITICS, strict=True)]
    targets = [constant(params, value) for params, value in zip(state.targets, TARGETS, strict=True)]
    return replace(state, critics=critics, targets=targets, log_alpha=jnp.log(alpha))


# The equations.


def test_the_value_is_that_of_the_smaller_critic_plus_the_price_of_entropy():
    value = soft_value(jnp.array([[1.0, 5.0], [2.0, 3.0]]), jnp.array([10.0, -10.0]), jnp.array(0.1))
    assert_allclose(value, [2.0, 2.0])


def test_the_critics_lose_half_the_square_of_their_error_each():
    assert_allclose(critic_loss(jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([0.0, 0.0])), 0.5 * (1 + 4) / 2)


def test_the_loss_of_the_policy_counts_only_rows_where_it_acts():
    q, entropy = jnp.array([[1.0, 100.0], [3.0, 100.0]]), jnp.array([2.0, 100.0])
    assert_allclose(actor_loss(q, entropy, jnp.array(0.5), jnp.array([1.0, 0.0])), -(1 + 0.5 * 2))


@pytest.mark.parametrize(("entropy", "slope"), [(-4.0, -1.0), (-3.0, 0.0), (-1.0, 2.0)])
def test_the_temperature_rises_while_the_entropy_is_too_low(entropy, slope):
    # α rises where the slope in log α is negative; it is α times the excess of entropy.
    gradient = jax.grad(temperature_loss)(jnp.log(0.5), jnp.full(4, entropy), -3.0, jnp.ones(4))
    assert_allclose(gradient, 0.5 * slope, atol=1e-6)


def test_targets_go_a_share_of_the_way_to_the_critics():
    assert_allclose(follow({"w": jnp.array([0.0, 4.0])}, {"w": jnp.array([1.0, 0.0])}, 0.25)["w"], [0.25, 3.0])
    before = TINY.init(jax.random.key(0), SPEC)
    after, _ = update(replace(TINY, target_rate=0.1), before, Batch.of(SPEC, replay=ROWS))
    expected = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, before.targets, after.critics)
    jax.tree.map(lambda x, y: assert_allclose(x, y, atol=1e-6), after.targets, expected)


# Ends.


@pytest.mark.parametrize(
    ("rows", "absorbing", "alpha", "next_value"),
    [
        (ROWS, False, 1e-20, 2.0),  # An ordinary row bootstraps from the smaller target.
        (ENDS, False, 100.0, 0.0),  # Nothing comes after the end of a task,
        (ENDS, True, 100.0, 2.0),  # unless the absorbing state counts; it has no bonus for entropy.
    ],
)
def test_the_target_of_the_critics(rows, absorbing, alpha, next_value):
    _, metrics = step(TINY, flat_state(alpha), rows, REWARD, absorbing=absorbing)
    target = REWARD + 0.99 * next_value
    expected = 0.5 * sum(np.mean((value - target) ** 2) for value in CRITICS)
    assert_allclose(metrics["critic_loss"], expected, rtol=1e-5)


def test_the_action_in_an_absorbing_state_is_fixed():
    # The targets depend on the action alone, and are zero where it is zero. One unit only: features that are all
    # alike standardise to zero whatever the action.
    state = flat_state(alpha=100.0)
    first = state.targets[0][0]
    targets = [[Dense(first.kernel.at[3:, 0].set(1.0), first.bias), Dense(jnp.ones((4, 1)), jnp.zeros(1))]] * 2
    _, metrics = step(TINY, replace(state, targets=targets), ENDS, REWARD, absorbing=True)
    expected = 0.5 * sum(np.mean((value - REWARD) ** 2) for value in CRITICS)
    assert_allclose(metrics["critic_loss"], expected, rtol=1e-5)


def test_the_absorbing_state_teaches_the_policy_nothing():
    before = TINY.init(jax.random.key(0), SPEC)
    after, _ = step(TINY, before, random_rows(0, SPEC, absorbing=range(16)), REWARD, absorbing=True)
    jax.tree.map(assert_array_equal, after.actor, before.actor)


def test_the_orthogonal_penalty_makes_columns_more_orthogonal():
    # Flat critics, and entropy that is worth nothing: without a penalty the policy stays as it is.
    before = flat_state(alpha=1e-20)
    without, penalised = (
        orthogonal_penalty(step(replace(TINY, orthogonal_penalty=weight), before, ROWS, REWARD)[0].actor.layers)
        for weight in (0.0, 1.0)
    )
    assert_allclose(without, orthogonal_penalty(before.actor.layers), rtol=1e-5)
    assert penalised < 0.999 * without


def test_an_update_learns_from_the_rewards_of_the_rows_and_a_step_from_those_it_is_given():
    state = TINY.init(jax.random.key(0), SPEC)
    own, _ = update(TINY, state, Batch.of(SPEC, replay=ROWS))
    given, _ = step(TINY, state, ROWS, REWARD)
    other, _ = step(TINY, state, ROWS, 5 + 0 * REWARD)
    jax.tree.map(lambda x, y: assert_allclose(x, y, rtol=1e-6, atol=1e-7), own.critics, given.critics)
    assert not np.allclose(own.critics[0][1].kernel, other.critics[0][1].kernel)


# Learning.


def test_the_soft_value_of_a_quadratic_reward_is_learned():
    # One state, r = -k a²/2, α fixed: Q = r + γ V, π ∝ e^(Q/α) is a Gaussian of variance α/k = 0.2², so narrow that
    # bounds do not matter, and V = α log ∫ e^(r/α) da / (1 - γ) = α ½ log(2π α/k) / (1 - γ).
    gamma, alpha, k = 0.5, 0.1, 2.5
    value = alpha * 0.5 * np.log(2 * np.pi * alpha / k) / (1 - gamma)
    rates: dict[str, Any] = {"critic_lr": 3e-3, "actor_lr": 3e-3, "alpha_lr": 0.0, "target_rate": 0.05}
    sac, spec = SAC(discount=gamma, hidden=(32, 32), initial_alpha=alpha, **rates), Spec(1, 1)
    action = np.random.default_rng(0).uniform(-1, 1, (2000, 128, 1))
    obs = np.zeros((2000, 128, 2))
    rows = Transition(obs, action, obs, -k / 2 * action[..., 0] ** 2)
    batches = Batch.of(spec, (2000,), replay=rows)
    state, _ = jax.jit(lambda state: jax.lax.scan(sac.update, state, batches))(sac.init(jax.random.key(0), spec))

    tried = np.array([[0.0], [0.2], [-0.4]])
    q = q_values(state.critics, jnp.zeros((3, 2)), jnp.asarray(tried))
    assert_allclose(q, np.tile(-k / 2 * tried[:, 0] ** 2 + gamma * value, (2, 1)), atol=0.03)
    policy = gaussian_policy(state.actor, jnp.zeros(2))
    assert_allclose(policy.location, 0.0, atol=0.03)
    assert_allclose(jnp.exp(policy.log_std), 0.2, atol=0.02)


def test_the_temperature_brings_the_entropy_to_its_target():
    sac, batch = SAC(hidden=(16,), alpha_lr=1e-2, actor_lr=3e-3, target_entropy=-1.5), Batch.of(SPEC, replay=ROWS)
    scan = jax.jit(lambda state: jax.lax.scan(lambda now, _: sac.update(now, batch), state, length=3000))
    _, metrics = scan(sac.init(jax.random.key(0), SPEC))
    assert_allclose(np.mean(metrics["entropy"][-1000:]), 3 * -1.5, atol=0.3)


@pytest.mark.slow
def test_pendulum_is_learned():
    rates: dict[str, Any] = {"critic_lr": 2e-3, "actor_lr": 1e-3, "update_every": 1}
    sac = SAC(hidden=(64, 64), batch_size=128, random_steps=1_000, training_starts=1_000, **rates)
    # Stops at the first evaluation that is good enough.
    run = train_expert(sac, "Pendulum-v1", target_return=-200, max_steps=8_000, eval_every=500, quiet=True)
    assert run.metrics[-1]["return_mean"] >= -200
