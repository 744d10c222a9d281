"""GAIL against closed forms: the best discriminator, the reward, and the absorbing state."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sample_rows import constant, one_hots, one_state_rollout, one_state_rows, only_state, update

from valuedice.algorithms import GAIL, PPO
from valuedice.algorithms.gail import State, policy_rows
from valuedice.demos.rows import episode_weights
from valuedice.losses import absorbing_row, blind_to, gradient_penalty
from valuedice.networks import Dense, categorical_policy, critic, state_actions
from valuedice.types import Batch, Rollout, Sampling, Spec

SPEC = Spec(1, 3, discrete=True)
GAMMA = 0.9
TINY_PPO: dict[str, Any] = {"hidden": (8,), "discount": GAMMA, "rollout": 8, "environments": 1, "minibatch": 4}
TINY: dict[str, Any] = {"discriminator_hidden": (8,), "discriminator_steps": 2, "discriminator_batch": 4}
FROZEN: dict[str, Any] = {"discriminator_lr": 1e-12, "gradient_penalty": 0.0}


def tiny(settings: dict[str, Any] | None = None, **ppo: Any) -> GAIL:
    """A small GAIL with changed settings of its own and of its PPO."""
    return GAIL(**(TINY | (settings or {})), ppo=PPO(**(TINY_PPO | ppo)))


def rollout_of(counts: list[int], terminated: int = 0) -> Rollout:
    """Each action so many times; the first rows end in the task."""
    return one_state_rollout(SPEC, one_hots(counts), terminated=range(terminated))


def batch_of(expert: list[int], rollout: Rollout, loops: int = 0) -> Batch:
    """Expert rows with each action so many times and self-loops of the absorbing state; and the policy's rows."""
    return Batch.of(SPEC, expert=one_state_rows(SPEC, one_hots(expert), loops), rollout=rollout)


# The discriminator.


def logits_after(steps: int, batch: Batch) -> np.ndarray:
    """Logits of the three actions and of the absorbing state, after steps on all rows of the expert at once."""
    settings = {"discriminator_steps": steps, "discriminator_batch": batch.expert.size, "gradient_penalty": 0.0}
    gail = tiny(settings | {"discriminator_lr": 2e-3})
    state = gail.init(jax.random.key(0), SPEC)
    expert = jax.tree.map(lambda part: jnp.tile(part, (steps, *[1] * (part.ndim - 1))), batch.expert)
    discriminator, _, _ = jax.jit(gail.discriminate)(
        state, batch._replace(expert=expert), *jax.random.split(jax.random.key(1))
    )
    rows = [*state_actions(only_state(SPEC, 3), jnp.eye(3)), absorbing_row(SPEC)]
    return np.array([critic(discriminator, row) for row in rows])


def test_the_discriminator_learns_the_log_ratio_in_the_absorbing_state_too():
    # The expert is in it half the time; of the policy's hundred rows one leads there, which weighs 9 more.
    logits = logits_after(2000, batch_of([25, 15, 10], rollout_of([20, 30, 50], terminated=1), loops=50))
    expert, policy = np.array([25, 15, 10, 50]) / 100, np.array([20, 30, 50, 9]) / 109
    assert_allclose(logits, np.log(expert / policy), atol=0.2)


def test_the_absorbing_state_has_the_same_weight_for_policy_and_expert():
    rows, weights = policy_rows(rollout_of([4, 0, 0], terminated=1), GAMMA)
    # Four rows and, behind the first, a loop of γ/(1-γ) = 9.
    assert_allclose(weights, np.array([1, 1, 1, 1, 9, 0, 0, 0]) / 13, rtol=1e-5)
    assert_array_equal(rows[4], [0, 1, 0, 0, 0])
    expert, _ = episode_weights(4, terminated=True, sampling=Sampling(GAMMA))
    assert_allclose(expert / expert.sum(), np.asarray(weights)[:5], rtol=1e-5)
    # Without termination it has none.
    assert_allclose(policy_rows(rollout_of([2, 1, 1]), GAMMA)[1], [0.25] * 4 + [0] * 4, rtol=1e-6)


# The reward.


def linear(gail: GAIL, slope: float, bias: float, mark: float = 0.0) -> State:
    """A discriminator whose logit is slope · (first action) + mark · (absorbing) + bias: hidden units are ±x."""
    first = jnp.zeros((5, 8)).at[2, 0].set(slope).at[2, 1].set(-slope).at[1, 2].set(mark).at[1, 3].set(-mark)
    last = jnp.zeros((8, 1)).at[0].set(1.0).at[1].set(-1.0).at[2].set(1.0).at[3].set(-1.0)
    layers = [Dense(first, jnp.zeros(8)), Dense(last, jnp.array([bias]))]
    return replace(gail.init(jax.random.key(0), SPEC), discriminator=layers)


def test_the_reward_is_the_logit_which_may_be_negative_and_is_what_the_policy_learns_from():
    # log D - log(1-D), for a D that tells policy and expert apart; -log(1-D) would never be negative.
    gail = tiny(FROZEN)
    before = linear(gail, slope=1.0, bias=-2.0)
    single_steps = one_state_rollout(SPEC, one_hots([4, 4, 0]), truncated=range(8))
    after, metrics = update(gail, before, batch_of([8, 0, 0], single_steps))
    assert_allclose(metrics["reward"], 0.5 * (1 - 2) + 0.5 * (-2), rtol=1e-4)
    rewarded = [categorical_policy(state.actor, only_state(SPEC)).probs()[0] for state in (before, after)]
    assert rewarded[1] > rewarded[0]


def test_the_penalty_does_not_see_the_absorbing_mark():
    # A slope of 1 along an action, which the penalty asks for, and any slope along the mark.
    rows = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, (6, 5)))
    for mark in (0.0, -4.0, 100.0):
        state = linear(tiny(), slope=1.0, bias=0.0, mark=mark)
        logit = blind_to(partial(critic, state.discriminator), SPEC.obs_size)
        assert_allclose(gradient_penalty(logit, rows), 0.0, atol=1e-6)
        assert_allclose(jax.vmap(logit)(rows), rows[:, 2] + mark * rows[:, 1], rtol=1e-4)
    # Half of the expert's rows are the absorbing state, so rows between them and others lie along the mark. A slope
    # of 4 there is not seen: the penalty is (0 - 1)².
    state = linear(tiny(FROZEN), slope=0.0, bias=0.0, mark=4.0)
    _, metrics = update(tiny(FROZEN), state, batch_of([4, 0, 0], rollout_of([8, 0, 0]), loops=4))
    assert_allclose(metrics["discriminator_penalty"], 1.0, atol=1e-4)


def test_the_divergence_is_minus_the_mean_reward_with_the_absorbing_state():
    gail, batch = tiny(), batch_of([8, 0, 0], rollout_of([4, 0, 0], terminated=1))
    # An expert row that is not the first action has no weight.
    expert = one_state_rows(SPEC, one_hots([8, 1, 0]))._replace(weight=np.append(np.full(8, 1 / 8), 0.0))
    found: Any = gail.diagnose(linear(gail, slope=1.0, bias=0.5, mark=-4.0), batch._replace(expert=expert))
    assert_allclose(found.kl_estimate, -(4 * 1.5 + 9 * (0.5 - 4)) / 13, rtol=1e-5)
    assert_allclose(found.metrics["expert_logit"], 1.5, rtol=1e-5)
    assert_allclose(found.metrics["absorbing_reward"], -3.5, rtol=1e-5)


def test_the_policy_learns_from_the_logit_of_the_absorbing_state_where_the_task_ends():
    # A discriminator that says 3 of everything, and values of 0: what follows an end is worth 3/(1-γ), so with
    # (1-γ) V every target is (1-γ) 3 + γ 3 = 3, and the loss of the values is 3²/2.
    gail = tiny({"discriminator_lr": 1e-12}, value_lr=1e-12)
    state = gail.init(jax.random.key(0), SPEC)
    ppo = replace(state.ppo, value=constant(state.ppo.value, 0.0))
    state = replace(state, discriminator=constant(state.discriminator, 3.0), ppo=ppo)
    _, metrics = update(gail, state, batch_of([3, 3, 2], rollout_of([3, 3, 2], terminated=8)))
    assert_allclose(metrics["value_loss"], 3.0**2 / 2, rtol=1e-5)
