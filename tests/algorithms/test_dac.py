"""DAC: what its discriminator converges to, and that it learns."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import valuedice as vd
from valuedice.algorithms import DAC, SAC
from valuedice.algorithms.dac import state_actions
from valuedice.algorithms.sac import q_values
from valuedice.losses import discriminator_loss
from valuedice.networks import adam_init, adam_step, critic, mlp_init
from valuedice.types import Batch, Spec, Transition

SPEC = Spec(2, 1, low=(-1.0,), high=(1.0,))
SMALL = SAC(hidden=(8,), batch_size=16)


def rows(seed: int, mark: float = 0.0) -> Transition:
    rng = np.random.default_rng(seed)
    obs = np.append(rng.normal(size=(16, 2)) * (1 - mark), np.full((16, 1), mark), axis=1).astype(np.float32)
    action = rng.uniform(-1, 1, (16, 1)).astype(np.float32) * (1 - mark)
    return Transition(obs, action, obs, np.zeros(16, np.float32))


def test_the_optimal_logit_is_the_log_ratio_of_the_densities():
    # Three points with known frequencies on either side, and a network that can tell them apart.
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    expert, other = np.repeat(points, [5, 3, 2], axis=0), np.repeat(points, [1, 3, 6], axis=0)
    params = mlp_init(jax.random.key(0), (2, 32, 1))

    @jax.jit
    def train(params):
        def step(carry, _):
            gradient, _ = jax.grad(discriminator_loss, has_aux=True)(
                carry[0], jnp.asarray(expert), jnp.asarray(other), jax.random.key(0), 0.0
            )
            return adam_step(1e-2, carry[0], gradient, carry[1]), None

        return jax.lax.scan(step, (params, adam_init(params)), length=2_000)[0][0]

    logits = jax.vmap(lambda row: critic(train(params), row))(jnp.asarray(points))
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
    state = algorithm.init(jax.random.key(0), SPEC)
    expert, replay = rows(0), rows(1)
    for _ in range(500):
        state, _ = update(algorithm, state, Batch(expert, None, replay))
    assert algorithm.reward(state.discriminator, expert).min() > 0
    assert algorithm.reward(state.discriminator, replay).max() < 0


update = jax.jit(DAC.update, static_argnums=0)


def test_the_absorbing_state_has_a_reward_and_a_value_of_its_own():
    # Both sides alike but for the absorbing state, which only the replay buffer knows: ending is punished.
    algorithm = DAC(sac=replace(SMALL, discount=0.5), discriminator_hidden=(16,), gradient_penalty=0.0)
    state = algorithm.init(jax.random.key(0), SPEC)
    replay = jax.tree.map(lambda *parts: np.concatenate(parts)[::2], rows(0), rows(0, mark=1.0))
    for _ in range(400):
        state, _ = update(algorithm, state, Batch(rows(0), None, replay))
    fixed = replace(algorithm, discriminator_lr=1e-12)
    for _ in range(1_500):
        state, _ = update(fixed, state, Batch(rows(0), None, replay))
    dead = jax.tree.map(lambda part: part[-1:], replay)
    reward = algorithm.reward(state.discriminator, dead)
    assert reward[0] < -1
    assert_allclose(
        algorithm.diagnose(state, Batch(rows(0), None, replay))["absorbing_reward"], reward[0], rtol=1e-5
    )
    value = q_values(state.learner.critics, jnp.asarray(dead.obs), jnp.asarray(dead.action))
    assert_allclose(value.mean(), reward[0] / (1 - 0.5), rtol=0.05)


def test_the_penalty_says_nothing_of_the_absorbing_mark():
    # Weights on the mark alone, units that a bias keeps active: no slope is seen, and the penalty is (0 - 1)².
    algorithm = DAC(sac=SMALL, discriminator_hidden=(8,), one_sided=False)
    state = algorithm.init(jax.random.key(0), SPEC)
    first, last = state.discriminator
    on_mark = first._replace(kernel=jnp.zeros_like(first.kernel).at[SPEC.obs_size].set(7.0), bias=jnp.ones(8))
    _, metrics = update(algorithm, replace(state, discriminator=[on_mark, last]), Batch(rows(0), None, rows(1)))
    assert_allclose(metrics["discriminator_penalty"], 1.0, atol=1e-4)


@pytest.mark.parametrize(("one_sided", "penalty"), [(True, 0.0), (False, 1.0)])
def test_a_one_sided_penalty_lets_the_logit_be_flat(one_sided, penalty):
    algorithm = DAC(sac=SMALL, discriminator_hidden=(8,), one_sided=one_sided)
    state = algorithm.init(jax.random.key(0), SPEC)
    flat = replace(state, discriminator=jax.tree.map(jnp.zeros_like, state.discriminator))
    _, metrics = update(algorithm, flat, Batch(rows(0), None, rows(1)))
    assert_allclose(metrics["discriminator_penalty"], penalty, atol=1e-4)


def test_expert_rows_take_their_share_of_what_is_learned_from():
    expert, replay = rows(0), rows(1)
    seen = []

    class Spy(SAC):
        def step(self, state, rows, reward, *, absorbing=False):
            seen.append(np.asarray(rows.obs))
            return super().step(state, rows, reward, absorbing=absorbing)

    algorithm = DAC(sac=Spy(hidden=(8,), batch_size=16), discriminator_hidden=(8,), expert_share=0.25)
    algorithm.update(algorithm.init(jax.random.key(0), SPEC), Batch(expert, None, replay))
    assert_allclose(seen[0], np.concatenate([expert.obs[:4], replay.obs[4:]]))


def test_rows_are_states_and_actions():
    part = rows(0)
    assert_allclose(state_actions(part), np.append(part.obs, part.action, axis=1))


@pytest.mark.slow
def test_dac_swings_the_pendulum_up():
    # Random actions return about -1,200, the expert -174.
    sac = SAC(hidden=(64, 64), batch_size=128, update_every=1, random_steps=500, training_starts=500)
    algorithm = DAC(sac=sac, discriminator_hidden=(64, 64))
    run = vd.train(
        algorithm, vd.load_demos("pendulum", episodes=5), "Pendulum-v1", steps=3_500, eval_every=3_500, quiet=True
    )
    assert run.metrics[-1]["return_mean"] >= -400
