"""GAIL against closed forms: the best discriminator, the reward, the absorbing state; and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import valuedice as vd
from valuedice.algorithms import GAIL, PPO
from valuedice.algorithms.gail import State, policy_rows
from valuedice.bench.flops import gail_products, ppo_products
from valuedice.bench.worker import random_batch
from valuedice.demos.rows import episode_weights
from valuedice.errors import InputError
from valuedice.learner import run_updates
from valuedice.losses import absorbing_row, blind_to, gradient_penalty
from valuedice.networks import Dense, categorical_policy, critic
from valuedice.types import Batch, Rollout, Sampling, Spec, Transition

SPEC = Spec(1, 3, discrete=True)
GAMMA = 0.9
TINY_PPO: dict[str, Any] = {"hidden": (8,), "discount": GAMMA, "rollout": 8, "environments": 1, "minibatch": 4}
TINY: dict[str, Any] = {"discriminator_hidden": (8,), "discriminator_steps": 2, "discriminator_batch": 4}


def tiny(**changes: Any) -> GAIL:
    return GAIL(**(TINY | changes), ppo=PPO(**TINY_PPO))


def rows_of(counts: list[int]) -> np.ndarray:
    """One state, and each action so many times."""
    return np.repeat(np.eye(3, dtype=np.float32), counts, axis=0)


def rollout_of(counts: list[int], terminated: int = 0) -> Rollout:
    """Of one environment in one state; so many of its rows end in the task."""
    action = rows_of(counts)[:, None]
    obs = np.zeros((len(action), 1, 2), np.float32)
    next_obs, ended = obs.copy(), np.zeros((len(action), 1), bool)
    next_obs[:terminated, 0, -1], ended[:terminated] = 1, True
    return Rollout(*map(jnp.asarray, (obs, action, next_obs, ended)))


def expert_of(counts: list[int], loops: int = 0) -> Transition:
    """Rows with these actions, and self-loops of the absorbing state."""
    action = np.concatenate([rows_of(counts), np.zeros((loops, 3), np.float32)])
    obs = np.zeros((len(action), 2), np.float32)
    obs[len(action) - loops :, -1] = 1
    return Transition(*map(jnp.asarray, (obs, action, obs)))


# The discriminator.


def trained(expert: Transition, rollout: Rollout, steps: int = 2000) -> State:
    """A discriminator without a penalty, on batches that are all the expert's rows."""
    batch = len(expert.obs)
    gail = tiny(discriminator_steps=steps, discriminator_batch=batch, gradient_penalty=0.0, discriminator_lr=2e-3)
    state = gail.init(jax.random.key(0), SPEC)
    tiled = jax.tree.map(lambda part: jnp.tile(part, (steps, 1)), expert)
    learn = jax.jit(gail.discriminate)
    keys = jax.random.split(jax.random.key(1))
    discriminator, _, _ = learn(state, Batch(tiled, None, None, rollout=rollout), *keys)
    return replace(state, discriminator=discriminator)


def logits_of(state: State) -> np.ndarray:
    """Of the three actions, and of the absorbing state."""
    pairs = jnp.concatenate([jnp.zeros((3, 2)), jnp.eye(3)], axis=1)
    rows = jnp.concatenate([pairs, absorbing_row(SPEC)[None]])
    return np.asarray(jax.vmap(lambda row: critic(state.discriminator, row))(rows))


def test_the_discriminator_learns_the_log_ratio():
    state = trained(expert_of([60, 30, 10]), rollout_of([20, 30, 50]))
    assert_allclose(logits_of(state)[:3], np.log([3.0, 1.0, 0.2]), atol=0.15)


def test_it_learns_it_in_the_absorbing_state_too():
    # The expert is in it half the time; of the policy's hundred rows one leads there, which weighs 9 more.
    state = trained(expert_of([20, 20, 10], loops=50), rollout_of([40, 40, 20], terminated=1))
    ordinary, absorbing = np.log((50 / 100) / (100 / 109)), np.log((50 / 100) / (9 / 109))
    assert_allclose(logits_of(state), [ordinary] * 3 + [absorbing], atol=0.2)


def test_rows_that_the_policy_alone_visits_cost_and_those_of_the_expert_pay():
    state = trained(expert_of([90, 10, 0]), rollout_of([10, 90, 0]), steps=200)
    pays, costs = logits_of(state)[:2]
    assert pays > 0.5
    assert costs < -0.5


def test_the_absorbing_state_weighs_what_it_weighs_for_the_expert():
    rows, weights = policy_rows(rollout_of([4, 0, 0], terminated=1), GAMMA)
    # Four rows and, behind the first, a loop of γ/(1-γ) = 9.
    assert_allclose(weights, np.array([1, 1, 1, 1, 9, 0, 0, 0]) / 13, rtol=1e-5)
    assert_array_equal(rows[4], [0, 1, 0, 0, 0])
    expert, _ = episode_weights(4, terminated=True, sampling=Sampling(GAMMA))
    assert_allclose(expert / expert.sum(), np.asarray(weights)[:5], rtol=1e-5)


def test_without_termination_the_absorbing_state_has_no_part():
    _, weights = policy_rows(rollout_of([2, 1, 1]), GAMMA)
    assert_allclose(weights, [0.25] * 4 + [0] * 4, rtol=1e-6)


# The reward.


def linear(state: State, slope: float, bias: float, mark: float = 0.0) -> State:
    """A discriminator whose logit is slope · (first action) + mark · (absorbing) + bias: hidden units are ±x."""
    first = jnp.zeros((5, 8)).at[2, 0].set(slope).at[2, 1].set(-slope).at[1, 2].set(mark).at[1, 3].set(-mark)
    last = jnp.zeros((8, 1)).at[0].set(1.0).at[1].set(-1.0).at[2].set(1.0).at[3].set(-1.0)
    return replace(state, discriminator=[Dense(first, jnp.zeros(8)), Dense(last, jnp.array([bias]))])


FROZEN = {"discriminator_lr": 1e-12, "gradient_penalty": 0.0}


def test_the_reward_is_the_logit_and_may_be_negative():
    # log D - log(1-D), of a D that knows the policy from the expert; -log(1-D) would never be negative.
    gail = tiny(**FROZEN)
    state = linear(gail.init(jax.random.key(0), SPEC), slope=1.0, bias=-2.0)
    batch = Batch(expert_of([8, 0, 0]), None, None, rollout=rollout_of([4, 4, 0]))
    _, metrics = jax.jit(gail.update)(state, batch)
    assert_allclose(metrics["reward"], 0.5 * (1 - 2) + 0.5 * (-2), rtol=1e-4)


def test_an_update_makes_rewarded_actions_more_likely():
    gail = tiny(**FROZEN)
    state = linear(gail.init(jax.random.key(0), SPEC), slope=1.0, bias=0.0)
    batch = Batch(expert_of([8, 0, 0]), None, None, rollout=rollout_of([3, 3, 2]))
    after, _ = jax.jit(gail.update)(state, batch)

    def first(state: State) -> float:
        return float(categorical_policy(state.actor, jnp.zeros(2)).probs()[0])

    assert first(after) > first(state)


def test_the_penalty_lets_the_absorbing_state_be_as_unlike_as_it_is():
    # A slope of 1 along an action, which the penalty asks for, and any along the mark, which it does not see.
    rows = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, (6, 5)), jnp.float32)
    for mark in (0.0, -4.0, 100.0):
        state = linear(tiny().init(jax.random.key(0), SPEC), slope=1.0, bias=0.0, mark=mark)
        logit = blind_to(partial(critic, state.discriminator), SPEC.obs_size)
        assert_allclose(gradient_penalty(logit, rows), 0.0, atol=1e-6)
        assert_allclose(jax.vmap(logit)(rows), rows[:, 2] + mark * rows[:, 1], rtol=1e-4)


def test_the_penalty_of_an_update_does_not_see_the_mark():
    # Half of the expert's rows are the absorbing state, so rows between lie along the mark. A slope of 4 there is
    # not seen: the penalty is (0 - 1)².
    gail = tiny(**FROZEN)
    state = linear(gail.init(jax.random.key(0), SPEC), slope=0.0, bias=0.0, mark=4.0)
    batch = Batch(expert_of([4, 0, 0], loops=4), None, None, rollout=rollout_of([8, 0, 0]))
    _, metrics = jax.jit(gail.update)(state, batch)
    assert_allclose(metrics["discriminator_penalty"], 1.0, atol=1e-4)


def test_the_divergence_is_minus_the_mean_reward_with_the_absorbing_state():
    gail = tiny()
    state = linear(gail.init(jax.random.key(0), SPEC), slope=1.0, bias=0.5, mark=-4.0)
    expert = expert_of([8, 0, 0])
    batch = Batch(
        expert, expert.obs, None, np.full(8, 1 / 8, np.float32), rollout=rollout_of([4, 0, 0], terminated=1)
    )
    found = gail.diagnose(state, batch)
    assert_allclose(found["kl_estimate"], -(4 * 1.5 + 9 * (0.5 - 4)) / 13, rtol=1e-5)
    assert_allclose(found["expert_logit"], 1.5, rtol=1e-5)
    assert_allclose(found["absorbing_reward"], -3.5, rtol=1e-5)


# What an update is.


@pytest.mark.parametrize("spec", [Spec(3, 2), SPEC])
def test_an_update_is_deterministic_and_finite_where_episodes_end(spec):
    gail = GAIL(**TINY, ppo=replace(PPO(**TINY_PPO), environments=2))
    batches = random_batch(gail, spec, (1, gail.batch_size))
    assert batches.rollout is not None
    batches.rollout.next_obs[0, 1], batches.rollout.ended[0, 1] = np.eye(spec.obs_size + 1)[-1], True
    states = [run_updates(gail, gail.init(jax.random.key(0), spec), batches) for _ in range(2)]
    jax.tree.map(assert_array_equal, states[0][0].actor, states[1][0].actor)
    assert all(np.isfinite(value) for value in states[0][1].values())


@pytest.mark.parametrize(
    "settings",
    [
        {"discriminator_lr": 0.0},
        {"discriminator_steps": 0},
        {"discriminator_batch": 0},
        {"gradient_penalty": -1.0},
        {"discriminator_hidden": ()},
    ],
)
def test_settings_without_sense_are_refused_by_name(settings):
    with pytest.raises(InputError, match=next(iter(settings)).removeprefix("discriminator_")):
        GAIL(**settings)


def test_the_arithmetic_of_an_update_is_that_of_a_count_on_paper():
    net = (24 * 64, 64 * 64, 64)
    telling = 2 * 128 * (2 * sum(net) + net[1] + net[2])
    penalty = 128 * 4 * (net[0] + net[1])
    gail = GAIL(discriminator_hidden=(64, 64), discriminator_batch=128, discriminator_steps=5)
    counted = sum(product.flops for product in gail_products(gail, Spec(17, 6)))
    rest = sum(product.flops for product in ppo_products(gail.ppo, Spec(17, 6)))
    assert counted == 2 * (5 * (telling + penalty) + gail.ppo.rollout * sum(net)) + rest


# Runs.


@pytest.fixture(scope="module")
def pendulum() -> vd.Demos:
    return vd.load_demos("pendulum", episodes=1)


QUICK: dict[str, Any] = {"eval_episodes": 1, "quiet": True}


def test_offline_is_refused_with_what_to_do(pendulum):
    with pytest.raises(InputError, match=r"gail needs an environment.*value-dice or bc offline"):
        vd.train(tiny(), pendulum, env=None, updates=10)


def test_other_data_are_refused_with_what_to_do(pendulum):
    with pytest.raises(InputError, match=r"gail makes no use of replay data.*leave it out"):
        vd.train(tiny(), pendulum, "Pendulum-v1", steps=80, replay_data=pendulum)


def test_fewer_steps_than_a_rollout_are_refused_by_name(pendulum):
    with pytest.raises(InputError, match=r"7 steps end before the first update, at step 8; .*lower --rollout"):
        vd.train(tiny(), pendulum, "Pendulum-v1", steps=7)


def test_steps_are_counted_one_environment_at_a_time_and_rounded_up_to_all_of_them(pendulum):
    gail = GAIL(**TINY, ppo=replace(PPO(**TINY_PPO), rollout=12, environments=3))
    run = vd.train(gail, pendulum, "Pendulum-v1", steps=40, eval_every=10, **QUICK)
    # The first counts at or behind 10, 20, 30, and the end; an update each 12.
    assert [(row["step"], row["updates"]) for row in run.metrics] == [(12, 1), (21, 1), (30, 2), (42, 3)]


def test_evaluating_more_often_does_not_change_what_is_learned(pendulum):
    runs = [vd.train(tiny(), pendulum, "Pendulum-v1", steps=24, eval_every=n, **QUICK) for n in (24, 5)]
    for one, other in zip(runs[0].policy.layers, runs[1].policy.layers, strict=True):
        assert_array_equal(one[0], other[0])


def test_the_policy_learns_from_the_logit_of_the_absorbing_state_where_the_task_ends():
    # A discriminator that says 3 of everything, and values of 0: what follows an end is worth 3/(1-γ), so with
    # (1-γ) V every target is (1-γ) 3 + γ 3 = 3, and the loss of the values is 3²/2.
    gail = replace(tiny(discriminator_lr=1e-12), ppo=PPO(**TINY_PPO, value_lr=1e-12))
    state = gail.init(jax.random.key(0), SPEC)
    last = state.discriminator[-1]
    three = [*state.discriminator[:-1], Dense(jnp.zeros_like(last.kernel), jnp.full(1, 3.0))]
    state = replace(
        state, discriminator=three, ppo=replace(state.ppo, value=jax.tree.map(jnp.zeros_like, state.ppo.value))
    )
    rollout = rollout_of([3, 3, 2], terminated=8)
    _, metrics = jax.jit(gail.update)(state, Batch(expert_of([3, 3, 2]), None, None, rollout=rollout))
    assert_allclose(metrics["value_loss"], 3.0**2 / 2, rtol=1e-5)
