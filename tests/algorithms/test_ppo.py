"""PPO against closed forms: advantages, what comes after an end, the clip, and problems of one state."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sample_rows import constant, one_state_rollout, only_state

from valuedice.algorithms import PPO
from valuedice.algorithms.ppo import (
    Networks,
    adapted,
    advantages,
    clip_norm,
    clipped_surrogate,
    excess,
    values,
    with_common_spread,
)
from valuedice.networks import Dense, actor_init, categorical_policy, gaussian_policy, log_likelihood
from valuedice.types import CLIPPED, Batch, Rollout, Spec

GAMMA, LAMBDA = 0.9, 0.8
SPEC = Spec(2, 1)


# The equations.


def column(*numbers: float) -> jax.Array:
    """Numbers of one environment over time."""
    return jnp.array(numbers, jnp.float32)[:, None]


def discounted(delta: list[float]) -> list[float]:
    """Σ (γλ)^k δ_{t+k}."""
    decay = GAMMA * LAMBDA
    return [sum(decay**k * later for k, later in enumerate(delta[t:])) for t in range(len(delta))]


def test_an_advantage_is_the_discounted_sum_of_temporal_differences_up_to_the_end_of_the_episode():
    reward, value, after = column(1, 2, 3), column(10, 20, 30), column(20, 7, 40)
    delta = [1 + 0.9 * 20 - 10, 2 + 0.9 * 7 - 20, 3 + 0.9 * 40 - 30]
    for ends, expected in ((False, discounted(delta)), (True, [*discounted(delta[:2]), delta[2]])):
        found = advantages(reward, value, after, jnp.array([[False], [ends], [False]]), GAMMA, LAMBDA)
        assert_allclose(found[:, 0], expected, rtol=1e-5)


def test_environments_do_not_mix():
    rng = np.random.default_rng(0)
    parts: list[Any] = [*jnp.asarray(rng.normal(size=(3, 5, 4))), jnp.asarray(rng.random((5, 4)) < 0.3)]
    together = advantages(*parts, discount=GAMMA, trace=LAMBDA)
    for one in range(4):
        alone = advantages(*(part[:, one : one + 1] for part in parts), discount=GAMMA, trace=LAMBDA)
        assert_allclose(together[:, one : one + 1], alone, rtol=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.1, 2.0, 2.2, 2.2),  # Inside the clip: ρ A, whose slope in log π is ρ A.
        (1.5, 2.0, 2.4, 0.0),  # A good action that is likely enough already.
        (0.5, -2.0, -1.6, 0.0),  # A bad one that is unlikely enough already.
        (1.5, -2.0, -3.0, -3.0),  # Mistakes are always undone.
        (0.5, 2.0, 1.0, 1.0),
    ],
)
def test_nothing_is_gained_outside_the_clip(ratio, advantage, value, slope):
    def gain(log_prob: Any) -> Any:
        return clipped_surrogate(log_prob, jnp.zeros(1), jnp.array([advantage]), 0.2)

    found, gradient = jax.value_and_grad(gain)(jnp.log(jnp.array([ratio])))
    assert_allclose(found, value, rtol=1e-5)
    assert_allclose(gradient, [slope], atol=1e-5)
    for far in (-1e4, 1e4):  # A policy that has moved far leaves both finite.
        assert all(np.isfinite(part).all() for part in jax.value_and_grad(gain)(jnp.array([far])))


@pytest.mark.parametrize(
    ("scale", "change", "expected"),
    [(0.5, 0.02, 0.5), (0.5, 0.0242, 0.5 / 1.1), (0.5, 9.0, 0.5 / 1.5), (0.5, 0.0, 0.75), (0.9, 0.0, 1.0)],
)
def test_the_step_size_follows_the_root_of_the_change_and_never_jumps(scale, change, expected):
    assert_allclose(adapted(jnp.array(scale), jnp.array(change), 0.02), expected, rtol=1e-4)


def test_long_gradients_are_shortened_and_short_ones_kept():
    gradient = {"x": jnp.array([3.0, 0.0]), "y": jnp.array([4.0])}
    assert_allclose(clip_norm(gradient, 1.0)["x"], [0.6, 0.0], rtol=1e-5)
    assert_allclose(clip_norm(gradient, 1.0)["y"], [0.8], rtol=1e-5)
    assert_allclose(clip_norm(gradient, 10.0)["y"], [4.0], rtol=1e-5)
    assert_array_equal(clip_norm({"x": jnp.zeros(2)}, 1.0)["x"], 0.0)


# Ends.


@pytest.mark.parametrize(
    ("ends", "last"),
    [
        ({"terminated": [1]}, 2 + 0.9 * (-3 / (1 - 0.9))),  # The absorbing reward goes on for ever.
        ({"truncated": [1]}, 2 + 0.9 * 5),  # The value of the last observation stands for the rest.
    ],
)
def test_the_return_after_an_end(ends, last):
    # Rewards of 2, an absorbing reward of -3, and the value 5 everywhere; values are stored times (1-γ).
    ppo = PPO(hidden=(4,), discount=GAMMA, trace=1.0)
    value = constant(ppo.begin(jax.random.key(0), SPEC).value, (1 - GAMMA) * 5.0)
    rollout = one_state_rollout(SPEC, np.zeros((4, 1)), **ends)
    now, advantage = ppo.estimate(value, rollout, jnp.full((4, 1), 2.0), jnp.array(-3.0))
    # The rollout's own end, at row 3, is one more truncation.
    cut = 2 + 0.9 * 5
    expected = [2 + 0.9 * last, last, 2 + 0.9 * cut, cut]
    assert_allclose((now + advantage)[:, 0] / (1 - GAMMA), expected, rtol=1e-4)


def test_the_value_at_a_truncation_is_that_of_the_true_last_observation():
    ppo = PPO(hidden=(4,), discount=GAMMA, trace=0.5)
    state, rollout = ppo.begin(jax.random.key(0), SPEC), one_state_rollout(SPEC, np.zeros((4, 1)), truncated=[1])
    rollout = rollout._replace(next_obs=rollout.next_obs.at[1, 0, :2].set(jnp.array([3.0, -1.0])))
    now, advantage = ppo.estimate(state.value, rollout, jnp.zeros((4, 1)), jnp.array(0.0))
    after = values(state.value, rollout.next_obs[1], ppo.units)[0]
    assert_allclose(now[1, 0] + advantage[1, 0], 0.9 * after, rtol=1e-5)


# Learning.


def learned(spec: Spec, reward: Any, rounds: int, **settings: Any) -> Networks:
    """One state, in which the current policy acts, and every action is an episode that the time limit ends."""
    ppo = PPO(hidden=(16,), rollout=128, environments=1, minibatch=32, actor_lr=3e-3, **settings)
    obs = jnp.asarray(only_state(spec, ppo.rollout, 1))

    def act(state: Networks, key: Any) -> Any:
        if spec.discrete:
            logits = categorical_policy(state.actor, obs[0, 0]).logits
            return jax.nn.one_hot(jax.random.categorical(key, logits, shape=obs.shape[:2]), spec.action_size)
        noise = jax.random.normal(key, (*obs.shape[:2], spec.action_size))
        return gaussian_policy(state.actor, obs[0, 0]).sample(noise)

    def body(state: Networks, key: Any) -> Any:
        action = act(state, key)
        rollout = Rollout(obs, action, obs, reward(action), jnp.ones(obs.shape[:2], bool))
        return ppo.step(state, rollout, rollout.reward, jnp.array(0.0))

    keys = jax.random.split(jax.random.key(1), rounds)
    return jax.jit(lambda state: jax.lax.scan(body, state, keys)[0])(ppo.begin(jax.random.key(0), spec))


def test_the_best_action_is_found():
    target = jnp.array([0.5, -0.3])
    state = learned(Spec(1, 2), lambda action: -jnp.sum((action - target) ** 2, -1), 60)
    assert_allclose(gaussian_policy(state.actor, jnp.array([1.0, 0.0])).mode(), target, atol=0.05)
    state = learned(Spec(1, 4, discrete=True), lambda action: action[..., 2], 60)
    assert categorical_policy(state.actor, jnp.array([1.0, 0.0])).probs()[2] > 0.95


def test_a_bonus_for_entropy_keeps_the_policy_wide():
    # For r = -a² and a narrow policy at 0, the advantage of standard deviation 1 is (1 - z²)/√2, so its slope in
    # log σ is -√2 and that of the entropy 1: a smaller bonus narrows the policy from its first e^-1.5, a larger one
    # widens it.
    def log_std(bonus: float) -> float:
        free: dict[str, Any] = {"least_std": 0.0, "bounds": "tanh", "units": "relu"}
        state = learned(Spec(1, 1), lambda action: -(action[..., 0] ** 2), 40, entropy_bonus=bonus, **free)
        return float(gaussian_policy(state.actor, jnp.array([1.0, 0.0])).log_std[0])

    assert log_std(0.5) < -2 < -1 < log_std(2.0)


def test_the_spread_is_the_same_everywhere_and_never_below_its_limit():
    spec, limit = Spec(3, 2), 0.2
    actor = actor_init(jax.random.key(0), spec, (4,))
    *below, output = actor.layers
    # Raw outputs of ±9 are log standard deviations at their own bounds, -5 and 2.
    wide = Dense(output.kernel, jnp.array([0.3, -0.3, 9.0, -9.0]))
    held = with_common_spread(replace(actor, layers=[*below, wide]), spec, limit)
    for obs in np.random.default_rng(0).normal(size=(5, 4)):
        policy, before = gaussian_policy(held, jnp.asarray(obs)), gaussian_policy(actor, jnp.asarray(obs))
        assert_allclose(jnp.exp(policy.log_std), [np.exp(2.0), limit], rtol=1e-4)
        assert_allclose(policy.location, before.location + jnp.array([0.3, -0.3]), rtol=1e-5)


def test_means_outside_the_bounds_are_penalised_by_the_square_of_the_way():
    actor = actor_init(jax.random.key(0), Spec(1, 3), (4,), CLIPPED)
    *below, output = actor.layers
    fixed = Dense(0 * output.kernel, jnp.array([1.5, -3.0, 0.9, 0.0, 0.0, 0.0]))
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    assert_allclose(excess(replace(actor, layers=[*below, fixed]), obs), 0.5**2 + 2.0**2, rtol=1e-5)


def test_the_penalty_keeps_the_mean_near_the_bound_where_the_largest_action_is_best():
    def location(penalty: float) -> float:
        state = learned(Spec(1, 1), lambda action: action[..., 0], 80, bound_penalty=penalty)
        return float(gaussian_policy(state.actor, jnp.array([1.0, 0.0])).location[0])

    free, held = location(0.0), location(10.0)
    # Free, it moves three standard deviations of 0.15 outside, where no noise is left; held, one.
    assert free > 1.45
    assert 1.0 < held < 1.3


def test_learning_stops_narrowing_the_policy_at_the_limit():
    for limit in (0.1, 0.2):
        state = learned(Spec(1, 1), lambda action: -(action[..., 0] ** 2), 60, least_std=limit)
        assert_allclose(jnp.exp(gaussian_policy(state.actor, jnp.array([1.0, 0.0])).log_std), limit, rtol=0.1)


def test_step_sizes_fall_linearly_to_nothing():
    spec, rollout = Spec(1, 1), one_state_rollout(Spec(1, 1), np.linspace(-1, 1, 128)[:, None])
    ppo = PPO(hidden=(4,), rollout=128, environments=1, minibatch=32, decay_steps=256, policy_change=1e9)
    states, steps = [ppo.begin(jax.random.key(0), spec)], []
    for _ in range(3):
        state, metrics = ppo.step(states[-1], rollout, rollout.action[..., 0], jnp.array(0.0))
        states.append(state)
        steps.append(float(metrics["actor_step"]))
    assert_allclose(steps, ppo.actor_lr * np.array([1.0, 0.5, 0.0]))
    for part in ("actor", "value"):
        parts = [jax.tree.leaves(getattr(state, part)) for state in states]
        moved = [max(float(jnp.abs(x - y).max()) for x, y in zip(*pair, strict=True)) for pair in pairwise(parts)]
        assert min(moved[:2]) > 0
        assert moved[2] == 0


def test_the_value_of_a_constant_reward_is_learned():
    # V = r/(1-γ), in units of the mean reward r itself.
    state = learned(SPEC, lambda action: 2 + 0 * action[..., 0], 100, discount=GAMMA, value_lr=3e-3)
    assert_allclose(values(state.value, jnp.asarray(only_state(SPEC, 1)), "tanh"), [2.0], atol=0.1)


def test_the_first_policy_acts_alike_everywhere():
    state = PPO().init(jax.random.key(0), Spec(5, 3))
    obs = np.random.default_rng(0).normal(size=(50, 6))
    modes = jax.vmap(lambda row: gaussian_policy(state.actor, row).mode())(obs)
    assert np.abs(modes).max() < 0.1


@pytest.mark.parametrize("spec", [Spec(2, 3), Spec(2, 3, discrete=True)])
def test_likelihoods_are_those_of_the_policy_row_by_row(spec):
    state = PPO(hidden=(4,)).init(jax.random.key(0), spec)
    obs, action = jnp.zeros((5, 3)), jnp.eye(3)[jnp.array([0, 1, 2, 0, 1])] * 0.9
    policy = categorical_policy if spec.discrete else gaussian_policy
    expected = [policy(state.actor, row).log_prob(taken) for row, taken in zip(obs, action, strict=True)]
    assert_allclose(log_likelihood(state.actor, spec, obs, action), np.array(expected), rtol=1e-5)


# With the environment's rewards.


def test_an_update_learns_from_rewards_on_observations_as_the_policy_saw_them():
    ppo = PPO(hidden=(4,), rollout=8, environments=2, minibatch=4)
    rng, spec = np.random.default_rng(0), Spec(2, 1)
    obs = np.append(rng.normal(3.0, 5.0, (4, 2, 2)), np.zeros((4, 2, 1)), axis=-1).astype(np.float32)
    ends = np.zeros((4, 2), bool)
    rollout = Rollout(*map(jnp.asarray, (obs, rng.uniform(-1, 1, (4, 2, 1)), obs, rng.normal(size=(4, 2)), ends)))
    state = ppo.init(jax.random.key(0), spec)
    state = replace(state, observed=state.observed.merged(rollout.obs))
    after, metrics = ppo.update(state, Batch.of(spec, rollout=rollout))
    mean, std = obs[..., :2].mean((0, 1)), obs[..., :2].std((0, 1))
    normal = rollout._replace(obs=rollout.obs.at[..., :2].set((obs[..., :2] - mean) / std))
    normal = normal._replace(next_obs=normal.obs)
    networks, expected = ppo.step(state.networks, normal, rollout.reward, jnp.array(0.0))
    assert_allclose(metrics["value_loss"], expected["value_loss"], rtol=1e-4)
    assert_allclose(metrics["reward"], rollout.reward.mean(), rtol=1e-5)
    assert_allclose(after.actor.layers[0].kernel, networks.actor.layers[0].kernel, rtol=1e-3, atol=1e-5)


def test_after_termination_there_is_no_reward():
    # Values of 5 everywhere, as in the test of ends above; without an absorbing reward, what follows is worth 0.
    ppo = PPO(hidden=(4,), discount=GAMMA, trace=1.0, rollout=4, environments=1, minibatch=4, epochs=1)
    state = ppo.init(jax.random.key(0), SPEC)
    networks = replace(state.networks, value=constant(state.networks.value, (1 - GAMMA) * 5.0))
    rollout = one_state_rollout(SPEC, np.zeros((4, 1)), terminated=range(4))._replace(reward=jnp.full((4, 1), 2.0))
    _, metrics = ppo.update(replace(state, networks=networks), Batch.of(SPEC, rollout=rollout))
    assert_allclose(metrics["value_loss"], 0.5 * ((1 - GAMMA) * (5.0 - 2.0)) ** 2, rtol=1e-4)
