"""PPO against closed forms: advantages, what comes after an end, the clip, and problems of one state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.algorithms import PPO
from valuedice.algorithms.ppo import State, adapted, advantages, clip_norm, clipped_surrogate, values
from valuedice.bench.flops import ppo_products
from valuedice.errors import InputError
from valuedice.networks import Dense, categorical_policy, gaussian_policy, log_likelihood
from valuedice.types import Rollout, Spec

GAMMA, LAMBDA = 0.9, 0.8
SPEC = Spec(2, 1)
step = jax.jit(PPO.step, static_argnums=0)
NO = jnp.zeros((3, 1), bool)


def column(*numbers: float) -> jax.Array:
    """Of one environment over time."""
    return jnp.array(numbers, jnp.float32)[:, None]


def estimate_by_hand(delta: list[float]) -> list[float]:
    """Σ (γλ)^k δ_{t+k}."""
    decay = GAMMA * LAMBDA
    return [sum(decay**k * later for k, later in enumerate(delta[t:])) for t in range(len(delta))]


# The equations.


def test_an_advantage_is_the_discounted_sum_of_temporal_differences():
    reward, value, after = column(1, 2, 3), column(10, 20, 30), column(20, 30, 40)
    delta = [1 + 0.9 * 20 - 10, 2 + 0.9 * 30 - 20, 3 + 0.9 * 40 - 30]
    found = advantages(reward, value, after, NO, GAMMA, LAMBDA)
    assert_allclose(found[:, 0], estimate_by_hand(delta), rtol=1e-5)


def test_the_sum_stops_at_the_end_of_an_episode():
    reward, value, after = column(1, 2, 3), column(10, 20, 30), column(20, 7, 40)
    ended = jnp.array([[False], [True], [False]])
    delta = [1 + 0.9 * 20 - 10, 2 + 0.9 * 7 - 20, 3 + 0.9 * 40 - 30]
    found = advantages(reward, value, after, ended, GAMMA, LAMBDA)
    assert_allclose(found[:, 0], [*estimate_by_hand(delta[:2]), delta[2]], rtol=1e-5)


def test_without_decay_value_and_advantage_are_the_return():
    reward, value, after = column(1, 2, 3), column(10, 20, 30), column(20, 30, 40)
    found = advantages(reward, value, after, NO, GAMMA, 1.0) + value
    assert_allclose(found[0, 0], 1 + 0.9 * 2 + 0.9**2 * 3 + 0.9**3 * 40, rtol=1e-5)


def test_environments_do_not_mix():
    rng = np.random.default_rng(0)
    reward, value, after = jnp.asarray(rng.normal(size=(3, 5, 4)), jnp.float32)
    ended = jnp.asarray(rng.random((5, 4)) < 0.3)
    together = advantages(reward, value, after, ended, GAMMA, LAMBDA)
    for one in range(4):
        mine = slice(one, one + 1)
        alone = advantages(reward[:, mine], value[:, mine], after[:, mine], ended[:, mine], GAMMA, LAMBDA)
        assert_allclose(together[:, mine], alone, rtol=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.1, 2.0, 2.2, 2.2),  # inside: ρ A, whose slope in log π is ρ A
        (1.5, 2.0, 2.4, 0.0),  # a good action that is already likely enough
        (0.5, -2.0, -1.6, 0.0),  # a bad one that is already unlikely enough
        (1.5, -2.0, -3.0, -3.0),  # mistakes are always undone
        (0.5, 2.0, 1.0, 1.0),
    ],
)
def test_nothing_is_gained_outside_the_clip(ratio, advantage, value, slope):
    def gain(log_prob: Any) -> Any:
        return clipped_surrogate(log_prob, jnp.zeros(1), jnp.array([advantage]), 0.2)

    found, gradient = jax.value_and_grad(gain)(jnp.log(jnp.array([ratio])))
    assert_allclose(found, value, rtol=1e-5)
    assert_allclose(gradient, [slope], atol=1e-5)


def test_a_policy_that_has_moved_far_leaves_the_objective_and_its_slope_finite():
    def gain(log_prob: Any) -> Any:
        return clipped_surrogate(log_prob, jnp.zeros(2), jnp.array([-1.0, 1.0]), 0.2)

    for far in (-1e4, 1e4):
        found, gradient = jax.value_and_grad(gain)(jnp.full(2, far))
        assert np.isfinite(found)
        assert np.isfinite(gradient).all()


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


def rollout_of(times: int, spec: Spec = SPEC, terminated: int | None = None, ended: int | None = None) -> Rollout:
    """One environment; a row may lead to the absorbing state, or be the last for another reason."""
    obs = np.zeros((times, 1, spec.obs_size + 1), np.float32)
    next_obs, ends = obs.copy(), np.zeros((times, 1), bool)
    if terminated is not None:
        next_obs[terminated, 0, -1], ends[terminated] = 1, True
    if ended is not None:
        ends[ended] = True
    return Rollout(obs, np.zeros((times, 1, spec.action_size), np.float32), next_obs, ends)


def flat(state: State, value: float) -> State:
    """A value function that is one number."""
    zeros = jax.tree.map(jnp.zeros_like, state.value)
    return replace(state, value=[*zeros[:-1], Dense(zeros[-1].kernel, jnp.array([value]))])


def target_of(ppo: PPO, rollout: Rollout, reward: float, absorbing: float, value: float) -> np.ndarray:
    """Value and advantage together, in units of the reward."""
    state = flat(ppo.init(jax.random.key(0), SPEC), (1 - ppo.discount) * value)
    rewards = jnp.full(rollout.ended.shape, reward)
    now, advantage = ppo.estimate(state.value, rollout, rewards, jnp.array(absorbing))
    return np.asarray(now + advantage)[:, 0] / (1 - ppo.discount)


TINY: dict[str, Any] = {"hidden": (4,), "rollout": 4, "environments": 1, "minibatch": 2}


def test_after_termination_the_absorbing_reward_goes_on_for_ever():
    ppo = PPO(**TINY, discount=GAMMA, trace=1.0)
    found = target_of(ppo, rollout_of(4, terminated=1), reward=2.0, absorbing=-3.0, value=5.0)
    last = 2 + 0.9 * (-3 / (1 - 0.9))
    assert_allclose(found[:2], [2 + 0.9 * last, last], rtol=1e-4)


def test_after_truncation_the_value_of_the_last_observation_stands_for_the_rest():
    ppo = PPO(**TINY, discount=GAMMA, trace=1.0)
    found = target_of(ppo, rollout_of(4, ended=1), reward=2.0, absorbing=-3.0, value=5.0)
    last = 2 + 0.9 * 5
    # The rollout's own end, at row 3, is one more truncation.
    assert_allclose(found, [2 + 0.9 * last, last, 2 + 0.9 * last, last], rtol=1e-4)


def test_the_value_at_a_truncation_is_that_of_the_true_last_observation():
    ppo = PPO(**TINY, discount=GAMMA, trace=0.5)
    state = ppo.init(jax.random.key(0), SPEC)
    rollout = rollout_of(4, ended=1)
    rollout.next_obs[1, 0, :2] = [3.0, -1.0]
    now, advantage = ppo.estimate(state.value, rollout, jnp.zeros((4, 1)), jnp.array(0.0))
    after = values(state.value, rollout.next_obs[1])[0]
    assert_allclose(now[1, 0] + advantage[1, 0], 0.9 * after, rtol=1e-5)


# Learning.


def learn(ppo: PPO, spec: Spec, reward: Any, rounds: int) -> State:
    """One state, in which the policy of the moment acts and every action is an episode that the time limit ends."""
    state = ppo.init(jax.random.key(0), spec)
    blank = jax.tree.map(jnp.asarray, rollout_of(ppo.rollout, spec))

    def act(state: State, key: Any) -> Any:
        obs = jnp.zeros(spec.obs_size + 1)
        if spec.discrete:
            chosen = jax.random.categorical(key, categorical_policy(state.actor, obs).logits, shape=(ppo.rollout,))
            return jax.nn.one_hot(chosen, spec.action_size)[:, None]
        noise = jax.random.normal(key, (ppo.rollout, spec.action_size))
        return jax.vmap(gaussian_policy(state.actor, obs).sample)(noise)[:, None]

    def body(state: State, key: Any) -> Any:
        action = act(state, key)
        rollout = Rollout(blank.obs, action, blank.next_obs, jnp.ones((ppo.rollout, 1), bool))
        return ppo.step(state, rollout, reward(action), jnp.array(0.0))

    keys = jax.random.split(jax.random.key(1), rounds)
    return jax.jit(lambda state: jax.lax.scan(body, state, keys)[0])(state)


SMALL: dict[str, Any] = {"hidden": (16,), "rollout": 128, "environments": 1, "minibatch": 32, "actor_lr": 3e-3}


def test_the_best_of_continuous_actions_is_found():
    state = learn(PPO(**SMALL), Spec(1, 2), lambda action: -jnp.sum((action - jnp.array([0.5, -0.3])) ** 2, -1), 60)
    policy = gaussian_policy(state.actor, jnp.zeros(2))
    assert_allclose(policy.mode(), [0.5, -0.3], atol=0.05)


def test_the_best_of_discrete_actions_is_found():
    state = learn(PPO(**SMALL), Spec(1, 4, discrete=True), lambda action: action[..., 2], 60)
    assert categorical_policy(state.actor, jnp.zeros(2)).probs()[2] > 0.95


def test_a_bonus_for_entropy_keeps_the_policy_wide():
    # Of r = -a² and a narrow policy at 0, the advantage of standard deviation 1 is (1 - z²)/√2, so that its slope
    # in log σ is -√2 and that of the entropy 1: a smaller bonus narrows the policy from its first e^-1.5, a larger
    # one widens it.
    def log_std(bonus: float) -> float:
        state = learn(PPO(**SMALL, entropy_bonus=bonus), Spec(1, 1), lambda action: -(action[..., 0] ** 2), 40)
        return float(gaussian_policy(state.actor, jnp.zeros(2)).log_std[0])

    assert log_std(0.5) < -2 < -1 < log_std(2.0)


def test_the_value_of_a_constant_reward_is_learned():
    # V = r/(1-γ), in units of the mean reward r itself.
    ppo = PPO(**SMALL, discount=GAMMA, value_lr=3e-3)
    state = learn(ppo, SPEC, lambda action: jnp.full(action.shape[:2], 2.0), 100)
    assert_allclose(values(state.value, jnp.zeros((1, 3))), [2.0], atol=0.1)


def test_the_first_policy_acts_alike_everywhere():
    state = PPO().init(jax.random.key(0), Spec(5, 3))
    obs = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    modes = jax.vmap(lambda row: gaussian_policy(state.actor, row).mode())(obs)
    assert np.abs(modes).max() < 0.1


def test_a_step_is_deterministic_and_keeps_shapes():
    ppo = PPO(**TINY)
    before, rollout = ppo.init(jax.random.key(0), SPEC), rollout_of(4)
    reward = jnp.arange(4.0)[:, None]
    after, metrics = step(ppo, before, rollout, reward, jnp.array(0.0))
    again, _ = step(ppo, before, rollout, reward, jnp.array(0.0))
    jax.tree.map(assert_array_equal, after.actor, again.actor)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (before, after))
    assert shapes[0] == shapes[1]
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("spec", [Spec(2, 3), Spec(2, 3, discrete=True)])
def test_likelihoods_are_those_of_the_policy_row_by_row(spec):
    state = PPO(hidden=(4,)).init(jax.random.key(0), spec)
    obs, action = jnp.zeros((5, 3)), jnp.eye(3)[jnp.array([0, 1, 2, 0, 1])] * 0.9
    policy = categorical_policy if spec.discrete else gaussian_policy
    expected = [policy(state.actor, row).log_prob(taken) for row, taken in zip(obs, action, strict=True)]
    assert_allclose(log_likelihood(state.actor, spec, obs, action), np.array(expected), rtol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"discount": 1.0},
        {"trace": 1.5},
        {"clip": -0.1},
        {"actor_lr": 0.0},
        {"minibatch": 0},
        {"environments": 3},
        {"minibatch": 3},
        {"entropy_bonus": -1.0},
        {"hidden": ()},
    ],
)
def test_settings_without_sense_are_refused_by_name(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        PPO(**settings)


def test_the_arithmetic_of_a_step_is_that_of_a_count_on_paper():
    actor, value = (17 * 64, 64 * 64, 64 * 12), (17 * 64, 64 * 64, 64)
    # Before the epochs: two values and one probability of each row. In each epoch: forward, weights, inputs.
    before = 2 * sum(value) + sum(actor)
    epoch = sum(2 * sum(net) + net[1] + net[2] for net in (actor, value))
    ppo = PPO(hidden=(64, 64), rollout=1024, minibatch=128, epochs=3)
    counted = sum(product.flops for product in ppo_products(ppo, Spec(17, 6)))
    assert counted == 2 * 1024 * (before + 3 * epoch)
