"""DualDICE against the ring's exact occupancies, and what its reward says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose
from sample_rows import constant, random_batch, random_rows, update

import valuedice as vd
from valuedice.algorithms import SAC, DualDICE
from valuedice.algorithms.dice import bellman_residual
from valuedice.algorithms.dual_dice import State, dual_objective, dual_terms, log_ratio
from valuedice.algorithms.sac import with_expert_rows
from valuedice.networks import state_actions
from valuedice.ring.mdp import NEXT, ONLY_STATE_0, kl_divergence, occupancy, stochastic_expert
from valuedice.types import Spec

GAMMA = 0.9
SPEC = Spec(2, 1, low=(-1.0,), high=(1.0,))
BATCH = random_batch(SPEC)
POLICY = np.where(np.arange(8)[:, None] % 2 == 0, [0.6, 0.4], [0.3, 0.7])
EXPERT, OURS = (occupancy(policy, ONLY_STATE_0, GAMMA) for policy in (stochastic_expert(), POLICY))
REPLAY = np.linspace(1, 3, 16).reshape(8, 2) / np.linspace(1, 3, 16).sum()


def small(**settings: Any) -> tuple[DualDICE, State]:
    """An algorithm with these settings, and its first state."""
    algorithm = DualDICE(ratio_hidden=(32,), sac=SAC(hidden=(8,), batch_size=16), **settings)
    return algorithm, algorithm.init(jax.random.key(0), SPEC)


def test_the_conjugate_term_is_the_exponential_at_its_best_zeta():
    x = jnp.linspace(-2.0, 2.0, 9)
    assert_allclose(dual_terms(x, x), np.exp(x), rtol=1e-6)
    for other in (-0.5, 0.5):
        assert (dual_terms(x, x + other) < np.exp(x)).all()
    zeta = np.exp(0.3)
    expected = 1.2 * zeta - (zeta * np.log(zeta) - zeta)
    assert_allclose(dual_terms(jnp.array(1.2), jnp.array(0.3)), expected, rtol=1e-6)


def exact_objective(nu: Any, log_zeta: Any, alpha: float = 0.0) -> Any:
    """J on the ring with every expectation exact."""
    value, zeta = jnp.sum(POLICY * nu, axis=1), log_zeta.ravel()
    x = bellman_residual(nu, value[NEXT], GAMMA).ravel()
    tables = {"expert_weight": EXPERT, "initial_weight": ONLY_STATE_0, "replay_weight": REPLAY}
    weights = {name: jnp.asarray(table.ravel()) for name, table in tables.items()}
    return dual_objective(x, zeta, value, x, zeta, discount=GAMMA, alpha=alpha, **weights)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_the_saddle_point_is_the_ratio_of_the_occupancies_and_one_minus_their_kl(alpha):
    mixtures = [(1 - alpha) * d + alpha * REPLAY for d in (OURS, EXPERT)]
    ratio = np.log(mixtures[0] / mixtures[1])
    # The saddle point from theory: log ζ is the ratio, and ν solves ν - γ E ν = log ζ.
    flow = np.zeros((16, 16))
    for row, successor in enumerate(NEXT.ravel()):
        flow[row, 2 * successor : 2 * successor + 2] = POLICY[successor]
    nu = np.linalg.solve(np.eye(16) - GAMMA * flow, ratio.ravel()).reshape(8, 2)
    with jax.enable_x64(True):
        arguments = jnp.asarray(nu), jnp.asarray(ratio), alpha
        assert_allclose(exact_objective(*arguments), 1 - kl_divergence(*mixtures), rtol=1e-9)
        for gradient in jax.grad(exact_objective, (0, 1))(*arguments):
            assert_allclose(gradient, 0, atol=1e-9)


def test_simultaneous_steps_reach_the_saddle_point():
    adams = [optax.adam(optax.cosine_decay_schedule(rate, 20_000)) for rate in (3e-3, 3e-2)]

    def step(carry: Any, _: Any) -> Any:
        points, states = carry
        descent, ascent = jax.grad(exact_objective, (0, 1))(*points)
        moves = [adam.update(g, s) for adam, g, s in zip(adams, (descent, -ascent), states, strict=True)]
        return ([p + move[0] for p, move in zip(points, moves, strict=True)], [move[1] for move in moves]), None

    zeros = [jnp.zeros((8, 2)), jnp.zeros((8, 2))]
    start = (zeros, [adam.init(point) for adam, point in zip(adams, zeros, strict=True)])
    (_, log_zeta), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=20_000)[0])(start)
    assert_allclose(log_zeta, np.log(OURS / EXPERT), atol=0.02)


@pytest.mark.parametrize("reward", ["minus-log-zeta", "zeta"])
def test_the_reward_is_minus_log_zeta_or_zeta_as_the_paper_has_it(reward):
    algorithm, state = small(expert_share=0.25, reward=reward)
    state, metrics = update(algorithm, state, BATCH)
    log_zeta = algorithm.log_zeta(state.zeta, with_expert_rows(BATCH, 0.25))
    expected = -log_zeta if reward == "minus-log-zeta" else jnp.exp(log_zeta)
    assert_allclose(metrics["reward"], jnp.mean(expected), rtol=1e-5)


def test_the_penalties_do_not_see_the_absorbing_mark():
    # With weights on the mark alone, and units that a bias keeps active, no slope is seen: the two-sided penalty is
    # (0 - 1)², whatever the weights.
    algorithm, state = small(one_sided=False)
    on_mark = jnp.zeros_like(state.nu[0].kernel).at[SPEC.obs_size].set(jnp.arange(1.0, 33.0))
    marked = state.nu[0]._replace(kernel=on_mark, bias=jnp.linspace(1.0, 2.0, 32))
    state = replace(state, nu=[marked, state.nu[1]], zeta=[jax.tree.map(jnp.copy, marked), state.zeta[1]])
    _, metrics = update(algorithm, state, BATCH)
    assert_allclose([metrics["nu_penalty"], metrics["zeta_penalty"]], 1.0, atol=1e-4)


def test_each_penalty_keeps_its_own_network_smooth():
    metrics: dict[float, Any] = {}
    for penalty in (0.0, 1e4):
        algorithm, state = small(nu_lr=1e-2, zeta_lr=1e-2, gradient_penalty=penalty)
        _, metrics[penalty] = update(algorithm, state, BATCH, 300)
    # A strong penalty makes ν's slopes 1 and ζ's at most 1; if one were ascended the wrong way it would explode.
    assert metrics[1e4]["nu_penalty"] < 0.2
    assert metrics[1e4]["zeta_penalty"] < 0.2
    assert metrics[0.0]["zeta_penalty"] > metrics[1e4]["zeta_penalty"]


@pytest.mark.parametrize("one_sided", [True, False])
def test_a_ratio_of_one_can_be_learned_if_the_penalty_is_one_sided(one_sided):
    # With ν = 0 everywhere x is 0, and so is the best log ζ; a two-sided penalty keeps it from there. Units may not
    # die on the way: there must be a slope to leave by.
    algorithm, state = small(nu_lr=1e-12, zeta_lr=1e-2, one_sided=one_sided)
    state = replace(state, nu=jax.tree.map(jnp.zeros_like, state.nu))
    state, _ = update(algorithm, state, BATCH._replace(replay=BATCH.expert), 400)
    log_zeta = algorithm.log_zeta(state.zeta, BATCH.expert)
    assert (jnp.abs(log_zeta).max() < 0.1) == one_sided
    others = random_rows(2, SPEC)
    slopes = jax.vmap(jax.grad(partial(log_ratio, state.zeta)))(state_actions(others.obs, others.action))
    assert jnp.all(jnp.linalg.norm(slopes, axis=1) > 0)


def test_an_absorbing_state_has_a_value():
    # Targets are 2 everywhere, critics 1, log ζ and so the reward 0: with γ = 0.99 the error is 1 - 1.98.
    algorithm, state = small(zeta_lr=1e-12, expert_share=0.0)
    learner = replace(
        state.learner,
        critics=[constant(params, 1.0) for params in state.learner.critics],
        targets=[constant(params, 2.0) for params in state.learner.targets],
        log_alpha=jnp.log(1e-20),
    )
    state = replace(state, learner=learner, zeta=constant(state.zeta, 0.0))
    _, metrics = update(algorithm, state, BATCH._replace(replay=random_rows(1, SPEC, ends=range(16))))
    assert_allclose(metrics["critic_loss"], (1 - 1.98) ** 2, rtol=1e-5)


def test_a_step_of_nu_lowers_the_objective_and_a_step_of_zeta_raises_it():
    algorithm, before = small(gradient_penalty=0.0)
    after, metrics = update(algorithm, before, BATCH)
    _, key_action, _ = jax.random.split(before.key, 3)

    def objective(nu: Any, zeta: Any) -> float:
        return float(algorithm.objective(algorithm.terms(nu, zeta, before.learner, BATCH, key_action), BATCH))

    assert_allclose(metrics["objective"], objective(before.nu, before.zeta), rtol=1e-5)
    assert objective(after.nu, before.zeta) < objective(before.nu, before.zeta) - 1e-4
    assert objective(before.nu, after.zeta) > objective(before.nu, before.zeta) + 1e-4


def test_without_replay_regularisation_the_ratio_ignores_replay_rows():
    algorithm, state = small(replay_regularization=0.0)
    first, other = (update(algorithm, state, BATCH._replace(replay=random_rows(seed, SPEC)))[0] for seed in (1, 2))
    assert_allclose(first.nu[0].kernel, other.nu[0].kernel)
    assert_allclose(first.zeta[0].kernel, other.zeta[0].kernel)
    assert not np.allclose(first.learner.critics[0][0].kernel, other.learner.critics[0][0].kernel)


@pytest.mark.slow
def test_dual_dice_reaches_the_goal_as_the_expert_does():
    # A car that does not reach the goal has a return below 0, the expert one of 92. Every episode of the expert
    # ends in the task, so this also learns what the absorbing state is worth.
    demos, task = vd.load_demos("mountaincar", episodes=3), "MountainCarContinuous-v0"
    sac = SAC(hidden=(64, 64), batch_size=128, actor_lr=3e-4, update_every=1, random_steps=500, training_starts=500)
    algorithm = DualDICE(ratio_hidden=(64, 64), sac=sac)
    run = vd.train(algorithm, demos, task, steps=2_500, eval_every=2_500, quiet=True)
    assert run.metrics[-1]["return_mean"] >= 60
