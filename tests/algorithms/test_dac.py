"""DAC: what its discriminator converges to, and that it learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sample_rows import one_hots, random_rows, update

import valuedice as vd
from valuedice.algorithms import DAC, SAC
from valuedice.algorithms.sac import q_values, with_expert_rows
from valuedice.losses import discriminator_loss
from valuedice.networks import adam_init, adam_step, critic, mlp_init
from valuedice.types import Batch, Spec

SPEC = Spec(2, 1, low=(-1.0,), high=(1.0,))
SMALL = SAC(hidden=(8,), batch_size=16)
EXPERT, REPLAY = random_rows(0, SPEC), random_rows(1, SPEC)
BATCH = Batch.of(SPEC, expert=EXPERT, replay=REPLAY)


def test_the_optimal_logit_is_the_log_ratio_of_the_densities():
    # Three points with known frequencies on either side, and a network that can tell them apart.
    expert, other = (jnp.asarray(one_hots(counts)) for counts in ([5, 3, 2], [1, 3, 6]))

    def step(carry: Any, _: None) -> Any:
        gradient, _ = jax.grad(discriminator_loss, has_aux=True)(carry[0], expert, other, jax.random.key(0), 0.0)
        return adam_step(1e-2, carry[0], gradient, carry[1]), None

    params = mlp_init(jax.random.key(0), (3, 32, 1))
    train = jax.jit(lambda carry: jax.lax.scan(step, carry, length=2_000)[0][0])
    learned = train((params, adam_init(params)))
    logits = jax.vmap(lambda row: critic(learned, row))(jnp.eye(3))
    assert_allclose(logits, np.log([5 / 1, 3 / 3, 2 / 6]), atol=1e-3)


def test_the_loss_is_that_of_gail_and_the_penalty_is_added_by_its_weight():
    params = mlp_init(jax.random.key(0), (3, 8, 1))
    expert, other = jax.random.normal(jax.random.key(1), (2, 5, 3))
    loss, metrics = discriminator_loss(params, expert, other, jax.random.key(2), 3.0)
    h = [jax.nn.sigmoid(jax.vmap(lambda row: critic(params, row))(part)) for part in (expert, other)]
    gail = jnp.mean(jnp.log(h[0])) + jnp.mean(jnp.log(1 - h[1]))
    assert_allclose(metrics["discriminator_loss"], -gail, rtol=1e-5)
    assert_allclose(loss, -gail + 3.0 * metrics["discriminator_penalty"], rtol=1e-5)


def test_the_reward_is_the_logit_and_favours_the_expert():
    algorithm = DAC(sac=SMALL, discriminator_hidden=(64,), discriminator_lr=1e-2, gradient_penalty=0.0)
    state, _ = update(algorithm, algorithm.init(jax.random.key(0), SPEC), BATCH, 500)
    assert algorithm.reward(state.discriminator, EXPERT).min() > 0
    assert algorithm.reward(state.discriminator, REPLAY).max() < 0


def test_the_absorbing_state_has_a_reward_and_a_value_of_its_own():
    # Both sides agree except for the absorbing state, which only the replay buffer knows: ending is punished.
    algorithm = DAC(sac=replace(SMALL, discount=0.5), discriminator_hidden=(16,), gradient_penalty=0.0)
    replay = random_rows(0, SPEC, absorbing=range(8, 16))
    batch = Batch.of(SPEC, expert=EXPERT, replay=replay)
    # First the discriminator learns, then the critics learn from its fixed rewards.
    state, _ = update(algorithm, algorithm.init(jax.random.key(0), SPEC), batch, 400)
    state, _ = update(replace(algorithm, discriminator_lr=1e-12), state, batch, 1_500)
    dead = jax.tree.map(lambda part: jnp.asarray(part[-1:]), replay)
    reward = algorithm.reward(state.discriminator, dead)[0]
    assert reward < -1
    assert_allclose(algorithm.diagnose(state, batch).metrics["absorbing_reward"], reward, rtol=1e-5)
    value = q_values(state.learner.critics, dead.obs, dead.action)
    assert_allclose(value.mean(), reward / (1 - 0.5), rtol=0.05)


@pytest.mark.parametrize(("one_sided", "penalty"), [(True, 0.0), (False, 1.0)])
def test_a_flat_logit_costs_nothing_if_the_penalty_is_one_sided(one_sided, penalty):
    # A slope along the absorbing mark alone counts as flat too; biases keep the units active.
    algorithm = DAC(sac=SMALL, discriminator_hidden=(8,), one_sided=one_sided)
    state = algorithm.init(jax.random.key(0), SPEC)
    first, last = state.discriminator
    for weight in (0.0, 7.0):
        kernel = jnp.zeros_like(first.kernel).at[SPEC.obs_size].set(weight)
        flat = [first._replace(kernel=kernel, bias=jnp.ones(8)), last]
        _, metrics = update(algorithm, replace(state, discriminator=flat), BATCH)
        assert_allclose(metrics["discriminator_penalty"], penalty, atol=1e-4)


def test_expert_rows_are_their_share_of_what_sac_learns_from():
    rows = with_expert_rows(BATCH, 0.25)
    assert_allclose(rows.obs, np.concatenate([EXPERT.obs[:4], REPLAY.obs[4:]]))
    algorithm = DAC(sac=SMALL, discriminator_hidden=(8,), expert_share=0.25)
    state, metrics = update(algorithm, algorithm.init(jax.random.key(0), SPEC), BATCH)
    assert_allclose(metrics["reward"], algorithm.reward(state.discriminator, rows).mean(), rtol=1e-5)


@pytest.mark.slow
def test_dac_swings_the_pendulum_up():
    # Random actions return about -1,200, the expert -174.
    sac = SAC(hidden=(64, 64), batch_size=128, update_every=1, random_steps=500, training_starts=500)
    algorithm, demos = DAC(sac=sac, discriminator_hidden=(64, 64)), vd.load_demos("pendulum", episodes=5)
    run = vd.train(algorithm, demos, "Pendulum-v1", steps=3_500, eval_every=3_500, quiet=True)
    assert run.metrics[-1]["return_mean"] >= -400
