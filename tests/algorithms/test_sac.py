"""SAC against closed forms: values that are known, and what the absorbing state may not do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.algorithms import SAC
from valuedice.algorithms.sac import State, actor_loss, critic_loss, follow, q_values, soft_value, temperature_loss
from valuedice.bench.flops import sac_products
from valuedice.errors import InputError
from valuedice.losses import orthogonal_penalty
from valuedice.networks import Dense, gaussian_policy
from valuedice.train import train_expert
from valuedice.types import Batch, Spec, Transition

SPEC = Spec(2, 3)
ROWS = 8
BIASES, TARGETS = (1.0, 4.0), (2.0, 3.0)
REWARD = np.linspace(-1, 2, ROWS, dtype=np.float32)
step = jax.jit(SAC.step, static_argnums=0, static_argnames="absorbing")
update = jax.jit(SAC.update, static_argnums=0)


def constant(params: list[Dense], value: float) -> list[Dense]:
    """A network whose output is one number."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return [*zeros[:-1], Dense(zeros[-1].kernel, jnp.full_like(zeros[-1].bias, value))]


def flat_state(sac: SAC, alpha: float) -> State:
    """Critics and targets that are constants."""
    state = sac.init(jax.random.key(0), SPEC)
    critics = [constant(params, value) for params, value in zip(state.critics, BIASES, strict=True)]
    targets = [constant(params, value) for params, value in zip(state.targets, TARGETS, strict=True)]
    return replace(state, critics=critics, targets=targets, log_alpha=jnp.log(alpha))


def rows_of(now: float = 0.0, after: float = 0.0) -> Transition:
    """Random rows that are all in, or all lead to, the absorbing state (1), or are not (0)."""
    rng = np.random.default_rng(0)

    def observations(mark: float) -> np.ndarray:
        obs = np.append(rng.normal(size=(ROWS, 2)) * (1 - mark), np.full((ROWS, 1), mark), axis=1)
        return obs.astype(np.float32)

    action = rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32) * (1 - now)
    return Transition(observations(now), action, observations(after), REWARD)


def loss_for(target: np.ndarray) -> float:
    return float(0.5 * sum(np.mean((value - target) ** 2) for value in BIASES))


# The equations.


def test_the_value_is_of_the_smaller_critic_and_of_entropy_at_its_price():
    value = soft_value(jnp.array([[1.0, 5.0], [2.0, 3.0]]), jnp.array([10.0, -10.0]), jnp.array(0.1))
    assert_allclose(value, [2.0, 2.0])


def test_the_critics_lose_half_the_square_of_their_error_each():
    assert_allclose(critic_loss(jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([0.0, 0.0])), 0.5 * (1 + 4) / 2)


def test_the_policy_loses_by_the_rows_where_it_acts_alone():
    q, entropy = jnp.array([[1.0, 100.0], [3.0, 100.0]]), jnp.array([2.0, 100.0])
    assert_allclose(actor_loss(q, entropy, jnp.array(0.5), jnp.array([1.0, 0.0])), -(1 + 0.5 * 2))


@pytest.mark.parametrize(("entropy", "slope"), [(-4.0, -1.0), (-3.0, 0.0), (-1.0, 2.0)])
def test_the_temperature_rises_while_the_entropy_is_too_low(entropy, slope):
    # α rises where the slope in log α is negative; it is α times the excess of entropy.
    gradient = jax.grad(temperature_loss)(jnp.log(0.5), jnp.full(4, entropy), -3.0, jnp.ones(4))
    assert_allclose(gradient, 0.5 * slope, atol=1e-6)


def test_targets_go_a_share_of_the_way_to_the_critics():
    assert_allclose(follow({"w": jnp.array([0.0, 4.0])}, {"w": jnp.array([1.0, 0.0])}, 0.25)["w"], [0.25, 3.0])
    sac = SAC(hidden=(4,), target_rate=0.1)
    before = sac.init(jax.random.key(0), SPEC)
    after, _ = update(sac, before, Batch(None, None, rows_of()))
    expected = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, before.targets, after.critics)
    jax.tree.map(lambda x, y: assert_allclose(x, y, atol=1e-6), after.targets, expected)


# Ends.


def test_an_ordinary_row_bootstraps_from_the_smaller_target():
    # Entropy is worth nothing here.
    rows, reward = rows_of(), REWARD
    _, metrics = update(SAC(hidden=(4,)), flat_state(SAC(hidden=(4,)), alpha=1e-20), Batch(None, None, rows))
    assert_allclose(metrics["critic_loss"], loss_for(reward + 0.99 * 2.0), rtol=1e-5)


def test_nothing_comes_after_the_end_of_a_task():
    rows, reward = rows_of(after=1.0), REWARD
    _, metrics = update(SAC(hidden=(4,)), flat_state(SAC(hidden=(4,)), alpha=100.0), Batch(None, None, rows))
    assert_allclose(metrics["critic_loss"], loss_for(reward), rtol=1e-5)


def test_an_absorbing_state_that_counts_bootstraps_without_a_bonus_for_entropy():
    rows, reward = rows_of(after=1.0), REWARD
    state = flat_state(SAC(hidden=(4,)), alpha=100.0)
    _, metrics = step(SAC(hidden=(4,)), state, rows, reward, absorbing=True)
    assert_allclose(metrics["critic_loss"], loss_for(reward + 0.99 * 2.0), rtol=1e-5)


def test_the_action_in_an_absorbing_state_is_fixed():
    # The targets depend on the action alone, and are zero where it is zero. One unit only: features that are all
    # alike standardise to zero whatever the action.
    rows, reward, sac = rows_of(after=1.0), REWARD, SAC(hidden=(4,))
    state = flat_state(sac, alpha=100.0)
    first = state.targets[0][0]
    targets = [[Dense(first.kernel.at[3:, 0].set(1.0), first.bias), Dense(jnp.ones((4, 1)), jnp.zeros(1))]] * 2
    _, metrics = step(sac, replace(state, targets=targets), rows, reward, absorbing=True)
    assert_allclose(metrics["critic_loss"], loss_for(reward), rtol=1e-5)


def test_the_absorbing_state_teaches_the_policy_nothing():
    rows, reward, sac = rows_of(now=1.0, after=1.0), REWARD, SAC(hidden=(4,))
    before = sac.init(jax.random.key(0), SPEC)
    after, _ = step(sac, before, rows, reward, absorbing=True)
    jax.tree.map(assert_array_equal, after.actor, before.actor)


def test_the_orthogonal_penalty_moves_the_policy_towards_orthogonal_columns():
    # Flat critics, and entropy that is worth nothing: without a penalty the policy stays as it is.
    before = flat_state(SAC(hidden=(4,)), alpha=1e-20)
    penalties = {}
    for weight in (0.0, 1.0):
        after, _ = step(SAC(hidden=(4,), orthogonal_penalty=weight), before, rows_of(), REWARD)
        penalties[weight] = float(orthogonal_penalty(after.actor))
    assert_allclose(penalties[0.0], orthogonal_penalty(before.actor), rtol=1e-5)
    assert penalties[1.0] < 0.999 * penalties[0.0]


def test_rewards_may_come_from_elsewhere():
    rows, reward, sac = rows_of(), REWARD, SAC(hidden=(4,))
    own, _ = update(sac, sac.init(jax.random.key(0), SPEC), Batch(None, None, rows))
    given, _ = step(sac, sac.init(jax.random.key(0), SPEC), rows._replace(reward=None), reward)
    other, _ = step(sac, sac.init(jax.random.key(0), SPEC), rows, 5 + 0 * reward)
    jax.tree.map(assert_array_equal, own.critics, given.critics)
    assert not np.allclose(own.critics[0][1].bias, other.critics[0][1].bias)


# Learning.


def test_the_soft_value_of_a_quadratic_reward_is_learned():
    # One state, r = -k a²/2, α fixed: Q = r + γ V, π ∝ e^(Q/α) is a Gaussian of variance α/k = 0.2², so narrow that
    # bounds do not matter, and V = α log ∫ e^(r/α) da / (1 - γ) = α ½ log(2π α/k) / (1 - γ).
    gamma, alpha, k = 0.5, 0.1, 2.5
    value = alpha * 0.5 * np.log(2 * np.pi * alpha / k) / (1 - gamma)
    settings: dict[str, Any] = {
        "critic_lr": 3e-3,
        "actor_lr": 3e-3,
        "alpha_lr": 0.0,  # the price stays
        "initial_alpha": alpha,
        "target_rate": 0.05,
    }
    sac = SAC(discount=gamma, hidden=(32, 32), **settings)
    spec = Spec(1, 1)
    rng = np.random.default_rng(0)
    action = rng.uniform(-1, 1, (2000, 128, 1)).astype(np.float32)
    obs = np.zeros((2000, 128, 2), np.float32)
    batches = Batch(None, None, Transition(obs, action, obs, -k / 2 * action[..., 0] ** 2))
    state, _ = jax.jit(lambda state: jax.lax.scan(sac.update, state, batches))(sac.init(jax.random.key(0), spec))

    tried = np.array([[0.0], [0.2], [-0.4]], np.float32)
    q = q_values(state.critics, jnp.zeros((3, 2)), jnp.asarray(tried))
    assert_allclose(q, np.tile(-k / 2 * tried[:, 0] ** 2 + gamma * value, (2, 1)), atol=0.03)
    policy = gaussian_policy(state.actor, jnp.zeros(2))
    assert_allclose(policy.location, 0.0, atol=0.03)
    assert_allclose(jnp.exp(policy.log_std), 0.2, atol=0.02)


def test_the_temperature_brings_the_entropy_to_its_target():
    sac = SAC(hidden=(16,), alpha_lr=1e-2, actor_lr=3e-3, target_entropy=-1.5)
    rows = jax.tree.map(lambda x: np.tile(x, (1500, *[1] * x.ndim)), rows_of())
    scan = jax.jit(lambda state: jax.lax.scan(sac.update, state, Batch(None, None, rows)))
    _, metrics = scan(sac.init(jax.random.key(0), SPEC))
    assert_allclose(np.mean(metrics["entropy"][-300:]), 3 * -1.5, atol=0.3)


def test_an_update_is_deterministic_and_keeps_shapes():
    sac = SAC(hidden=(4,))
    before = sac.init(jax.random.key(0), SPEC)
    after, metrics = update(sac, before, Batch(None, None, rows_of()))
    again, _ = update(sac, before, Batch(None, None, rows_of()))
    jax.tree.map(assert_array_equal, after.critics, again.critics)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (before, after))
    assert shapes[0] == shapes[1]
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"discount": 1.0},
        {"target_rate": 0.0},
        {"critic_lr": 0.0},
        {"alpha_lr": -1.0},
        {"hidden": ()},
        {"random_steps": -1},
    ],
)
def test_settings_without_sense_are_refused_by_name(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        SAC(**settings)


def test_discrete_actions_are_refused():
    with pytest.raises(InputError, match="continuous actions"):
        SAC().init(jax.random.key(0), Spec(4, 2, discrete=True))


def test_the_arithmetic_of_an_update_is_that_of_a_count_on_paper():
    q, actor = (24 * 256, 256 * 256, 256), (17 * 256, 256 * 256, 256 * 12)
    # Forward three times, weights once, inputs twice (all layers but the first), and the slope in the action.
    critics = 2 * (4 * sum(q) + 2 * (q[1] + q[2]) + 6 * 256)
    policy = 3 * sum(actor) + actor[1] + actor[2]
    counted = sum(product.flops for product in sac_products(SAC(hidden=(256, 256), batch_size=256), Spec(17, 6)))
    assert counted == 2 * 256 * (critics + policy)


@pytest.mark.slow
def test_pendulum_is_learned():
    settings: dict[str, Any] = {
        "hidden": (64, 64),
        "batch_size": 128,
        "critic_lr": 2e-3,
        "actor_lr": 1e-3,
        "update_every": 1,
    }
    sac = SAC(**settings, random_steps=1_000, training_starts=1_000)
    # Stops at the first evaluation that is good enough.
    run = train_expert(sac, "Pendulum-v1", target_return=-200, max_steps=8_000, eval_every=500, quiet=True)
    assert run.metrics[-1]["return_mean"] >= -200
