"""The method against closed forms: a small random MDP solved by linear algebra, and terms done by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sample_rows import random_batch

from valuedice.algorithms.dice import (
    bellman_residual,
    dice_objective,
    initial_term,
    residual_terms,
    telescoped_term,
)
from valuedice.algorithms.value_dice import ValueDICE
from valuedice.losses import gradient_penalty, orthogonal_penalty
from valuedice.networks import ClippedGaussian, Dense, TanhGaussian, log_tanh_slope
from valuedice.types import Spec

GAMMA = 0.9
ALPHAS = pytest.mark.parametrize("alpha", [0.0, 0.1])


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@dataclass(frozen=True)
class MDP:
    """Five states, three actions, everything random and of full support."""

    transition: np.ndarray
    initial: np.ndarray
    expert: np.ndarray
    replay: np.ndarray
    logits: np.ndarray

    @property
    def policy(self):
        return softmax(self.logits)

    def flow(self, policy):
        """Pπ over pairs (s, a)."""
        return np.einsum("sat,tb->satb", self.transition, policy).reshape(15, 15)

    def occupancy(self, policy):
        start = (1 - GAMMA) * (self.initial[:, None] * policy).ravel()
        return np.linalg.solve(np.eye(15) - GAMMA * self.flow(policy).T, start)

    def mixtures(self, alpha, policy):
        """(1-α) dπ + α dRB and (1-α) dE + α dRB."""
        own, expert = self.occupancy(policy), self.occupancy(self.expert)
        return (1 - alpha) * own + alpha * self.replay, (1 - alpha) * expert + alpha * self.replay

    def kl(self, alpha, policy):
        p, q = self.mixtures(alpha, policy)
        return np.sum(p * np.log(p / q))

    def best_nu(self, alpha):
        """ν* of Equation 16, or 20, from its linear system."""
        p, q = self.mixtures(alpha, self.policy)
        return np.linalg.solve(np.eye(15) - GAMMA * self.flow(self.policy), np.log(p / q)).reshape(5, 3)

    def objective(self, nu, logits, alpha):
        """J with every expectation exact, that over s′ included."""
        value = jnp.sum(jax.nn.softmax(logits) * nu, axis=1)
        x = bellman_residual(nu, jnp.asarray(self.transition) @ value, GAMMA).ravel()
        tables = {"expert": self.occupancy(self.expert), "replay": self.replay}
        weights = {f"{name}_weight": jnp.asarray(table) for name, table in tables.items()}
        linear = initial_term(value, GAMMA, jnp.asarray(self.initial))
        return dice_objective(x, linear, x, alpha=alpha, **weights)[0]


def softmax(logits):
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.fixture
def mdp():
    rng = np.random.default_rng(0)
    return MDP(
        transition=rng.dirichlet(np.ones(5), size=(5, 3)),
        initial=rng.dirichlet(np.ones(5)),
        expert=rng.dirichlet(np.ones(3), size=5),
        replay=rng.dirichlet(np.ones(15)),
        logits=rng.normal(size=(5, 3)),
    )


@pytest.fixture
def nu():
    return np.random.default_rng(1).normal(size=(5, 3))


@ALPHAS
def test_objective_at_the_best_nu_is_minus_the_kl(mdp, alpha):
    assert mdp.kl(alpha, mdp.policy) > 0.1
    assert_allclose(mdp.objective(mdp.best_nu(alpha), mdp.logits, alpha), -mdp.kl(alpha, mdp.policy))


@ALPHAS
def test_best_nu_is_a_minimum(mdp, nu, alpha):
    best = jnp.asarray(mdp.best_nu(alpha))
    assert_allclose(jax.grad(mdp.objective)(best, mdp.logits, alpha), 0, atol=1e-13)
    for step in (-1.0, 1e-2, 1.0):
        assert mdp.objective(best + step * nu, mdp.logits, alpha) > -mdp.kl(alpha, mdp.policy)


@ALPHAS
def test_policy_gradient_is_the_papers_score_function_form(mdp, nu, alpha):
    policy = mdp.policy
    # ∇ log π(a|s) with respect to logits [k, b].
    score = np.einsum("sk,ab->sakb", np.eye(5), np.eye(3)) - np.einsum("sk,sb->skb", np.eye(5), policy)[:, None]
    # E_{a~π(s)} ν(s,a) ∇ log π(a|s), the inner expectation of Equations 14 and 15.
    inner = np.einsum("sa,sa,sakb->skb", policy, nu, score)
    bellman = GAMMA * mdp.transition @ np.sum(policy * nu, axis=1)
    exponential = np.exp(nu - bellman)
    d_residual = -GAMMA * np.einsum("sat,tkb->sakb", mdp.transition, inner)
    d_exponential = exponential[:, :, None, None] * d_residual  # Equation 14
    d_initial = np.einsum("s,skb->kb", mdp.initial, inner)  # Equation 15
    mix = mdp.mixtures(alpha, policy)[1].reshape(5, 3)
    expected = (
        np.einsum("sa,sakb->kb", mix, d_exponential) / np.sum(mix * exponential)
        - (1 - alpha) * (1 - GAMMA) * d_initial
        - alpha * np.einsum("sa,sakb->kb", mdp.replay.reshape(5, 3), d_residual)
    )
    gradient = jax.grad(mdp.objective, argnums=1)(jnp.asarray(nu), jnp.asarray(mdp.logits), alpha)
    assert np.abs(expected).max() > 1e-2
    assert_allclose(gradient, expected, atol=1e-14)


@ALPHAS
def test_policy_gradient_at_the_best_nu_is_that_of_minus_the_kl(mdp, alpha):
    gradient = jax.grad(mdp.objective, argnums=1)(mdp.best_nu(alpha), jnp.asarray(mdp.logits), alpha)
    for index in np.ndindex(5, 3):
        step = np.zeros((5, 3))
        step[index] = 1e-5
        difference = mdp.kl(alpha, softmax(mdp.logits + step)) - mdp.kl(alpha, softmax(mdp.logits - step))
        assert_allclose(gradient[index], -difference / 2e-5, atol=1e-8)


@ALPHAS
def test_the_expert_has_no_gradient_at_its_best_nu(mdp, alpha):
    at_expert = replace(mdp, logits=np.log(mdp.expert))
    gradient = jax.grad(mdp.objective, argnums=1)(at_expert.best_nu(alpha), at_expert.logits, alpha)
    assert_allclose(gradient, 0, atol=1e-13)


@pytest.mark.parametrize("walker", ["policy", "expert", "other"])
def test_the_linear_term_telescopes_over_the_occupancy_of_any_policy(mdp, nu, walker):
    policies = {"policy": mdp.policy, "expert": mdp.expert, "other": softmax(np.arange(15.0).reshape(5, 3) % 4)}
    visits = mdp.occupancy(policies[walker])
    value = np.sum(mdp.policy * nu, axis=1)
    here, after = np.repeat(value, 3), (mdp.transition @ value).ravel()
    telescoped = telescoped_term(jnp.asarray(here), jnp.asarray(after), GAMMA, jnp.asarray(visits))
    # Both are E x under the occupancy of π itself.
    own = mdp.occupancy(mdp.policy) @ (nu.ravel() - GAMMA * after)
    assert abs(own) > 1e-2
    assert_allclose(telescoped, own)
    assert_allclose(initial_term(jnp.asarray(value), GAMMA, jnp.asarray(mdp.initial)), own)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_policy_becomes_the_experts_whichever_states_weigh_its_gradient(mdp, alpha):
    # ν* is a cost to go: lowering E ν*(s, π(s)) at every state lowers the KL, whatever the states' weights.
    own = mdp.occupancy(mdp.policy).reshape(5, 3).sum(1)
    for weight in (np.full(5, 0.2), np.array([0.6, 0.1, 0.1, 0.1, 0.1]), own):
        learner = mdp
        for _ in range(3_000):
            policy, cost = learner.policy, learner.best_nu(alpha)
            slope = policy * (cost - np.sum(policy * cost, axis=1, keepdims=True))
            learner = replace(learner, logits=learner.logits - 2 * weight[:, None] * slope)
        assert mdp.kl(alpha, mdp.policy) > 0.1
        assert learner.kl(alpha, learner.policy) < 1e-4
        assert_allclose(learner.policy, mdp.expert, atol=0.02)


@ALPHAS
def test_a_constant_added_to_nu_changes_nothing(mdp, nu, alpha):
    assert_allclose(mdp.objective(nu + 7, mdp.logits, alpha), mdp.objective(nu, mdp.logits, alpha))


def test_rows_without_weights_count_alike():
    x, initial, replay = jnp.array([0.0, 1.0, 3.0]), jnp.array([2.0, 4.0]), jnp.array([-1.0, 5.0])
    value, log_term = dice_objective(x, initial_term(initial, GAMMA), replay, alpha=0.25)
    log_mean = np.log(0.75 * np.mean(np.exp(x)) + 0.25 * np.mean(np.exp(replay)))
    assert_allclose(log_term, log_mean)
    assert_allclose(value, log_mean - 0.75 * 0.1 * 3 - 0.25 * 2)


@pytest.mark.parametrize("huge", [1e30, jnp.inf, -jnp.inf])
@ALPHAS
def test_rows_of_zero_weight_cannot_matter(huge, alpha):
    weight = jnp.array([0.5, 0.5, 0.0])

    def value(rows):
        linear = initial_term(rows[1], GAMMA, weight)
        return dice_objective(rows[0], linear, rows[2], alpha=alpha, expert_weight=weight, replay_weight=weight)[0]

    finite = jnp.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0], [5.0, 6.0, 0.0]])
    large = finite.at[:, 2].set(huge)
    assert value(large) == value(finite)
    assert np.all(np.isfinite(jax.grad(value)(finite)))
    assert_array_equal(jax.grad(value)(large), jax.grad(value)(finite))


def test_replay_rows_are_dropped_if_alpha_is_zero_and_large_residuals_do_not_overflow():
    x = jnp.array([1e4, 1e4])
    for replay in (None, jnp.array([jnp.inf])):
        assert_array_equal(dice_objective(x, jnp.zeros(()), replay, alpha=0.0), 1e4)


@pytest.mark.parametrize(
    ("weights", "two_sided", "one_sided"),
    [((3.0, 4.0), (5 - 1) ** 2, (5 - 1) ** 2), ((0.3, 0.4), 0.5**2, 0.0), ((0.0, 0.0), 1.0, 0.0)],
)
def test_gradient_penalty_of_a_linear_critic_is_that_of_its_weights(weights, two_sided, one_sided):
    def penalty(weight, sides=False):
        return gradient_penalty(lambda row: row @ weight, jnp.ones((3, 2)), one_sided=sides)

    assert_allclose([penalty(jnp.array(weights)), penalty(jnp.array(weights), True)], [two_sided, one_sided], 1e-5)
    # A zero gradient is differentiable too.
    assert np.all(np.isfinite(jax.grad(penalty)(jnp.array(weights))))


def test_gradient_penalty_takes_one_norm_a_row():
    # The gradient of ‖row‖²/2 is the row: norms 5, 0 and 13.
    rows = jnp.array([[3.0, 4.0], [0.0, 0.0], [5.0, 12.0]])
    assert_allclose(gradient_penalty(lambda row: row @ row / 2, rows), (4**2 + 1 + 12**2) / 3, rtol=1e-6)


def test_orthogonal_penalty_by_hand():
    # WᵀW is [[10, 14], [14, 20]] and [[1, 2], [2, 4]]; its diagonal is free.
    kernels = [jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[1.0, 2.0]])]
    params = [Dense(kernel, jnp.full(2, 9.0)) for kernel in kernels]
    assert_allclose(orthogonal_penalty(params), 2 * 14**2 + 2 * 2**2)


@pytest.mark.parametrize("kind", [TanhGaussian, ClippedGaussian])
@pytest.mark.parametrize("action", [-1.0, 1.0])
def test_log_prob_at_the_bound_is_finite(action, kind):
    def log_prob(location, log_std):
        return kind(location, log_std).log_prob(jnp.array([action]))

    with jax.enable_x64(False):  # As trained: 1 - 1e-6 has to differ from 1.
        at = (jnp.array([0.3]), jnp.array([-1.0]))
        assert np.isfinite(log_prob(*at))
        assert np.all(np.isfinite(jax.grad(log_prob, argnums=(0, 1))(*at)))


@pytest.mark.parametrize(("location", "std"), [(0.0, 0.5), (0.4, 0.3), (-0.8, 0.4)])
def test_tanh_gaussian_integrates_to_one_and_its_entropy_is_minus_the_mean_log_prob(location, std):
    policy = TanhGaussian(jnp.array([location]), jnp.log(jnp.array([std])))
    nodes, weights = np.polynomial.legendre.leggauss(400)
    log_prob = np.asarray(jax.vmap(policy.log_prob)(jnp.asarray(nodes[:, None])))
    assert_allclose(weights @ np.exp(log_prob), 1, rtol=1e-9)
    noise, mass = np.polynomial.hermite_e.hermegauss(60)
    entropy = mass @ np.asarray(jax.vmap(policy.entropy)(jnp.asarray(noise[:, None]))) / np.sqrt(2 * np.pi)
    assert_allclose(entropy, -weights @ (np.exp(log_prob) * log_prob), atol=1e-8)


@pytest.mark.parametrize(("location", "std"), [(0.0, 0.5), (0.9, 0.3), (-1.4, 0.4)])
def test_clipped_gaussian_adds_up_to_one_and_its_entropy_is_minus_the_mean_log_prob(location, std):
    policy = ClippedGaussian(jnp.array([location]), jnp.log(jnp.array([std])))
    nodes, weights = np.polynomial.legendre.leggauss(400)
    inside = np.asarray(jax.vmap(policy.log_prob)(jnp.asarray(nodes[:, None])))
    bounds = np.asarray(jax.vmap(policy.log_prob)(jnp.array([[-1.0], [1.0]])))
    tails = [0.5 * math.erfc((1 + side * location) / (std * math.sqrt(2))) for side in (1, -1)]
    assert_allclose(np.exp(bounds), tails, rtol=1e-9)
    assert_allclose(weights @ np.exp(inside) + sum(tails), 1, rtol=1e-9)
    noise = np.random.default_rng(0).normal(size=(100_000, 1))
    entropy = np.mean(np.asarray(jax.vmap(policy.entropy)(jnp.asarray(noise))))
    expected = -weights @ (np.exp(inside) * inside) - np.exp(bounds) @ bounds
    assert_allclose(entropy, expected, atol=0.02)


def test_log_tanh_slope_has_no_cancellation():
    u = np.linspace(-3, 3, 13)
    assert_allclose(log_tanh_slope(jnp.asarray(u)), np.log(1 - np.tanh(u) ** 2), atol=1e-12)
    # Far out, 1 - tanh²u = 4 e^(-2|u|), where 1 - tanh² itself is zero.
    assert_allclose(log_tanh_slope(jnp.array([-50.0, 50.0])), np.log(4) - 100)


# What follows is not compiled as a whole: single operations are compiled once for all settings.


def first_adam_step(lr: float, params: Any, gradient: Any) -> Any:
    """Down, g / (|g| + ε) long; a negative `lr` goes up."""
    return jax.tree.map(lambda p, g: p - lr * g / (jnp.abs(g) + 1e-8), params, gradient)


def assert_trees_close(left: Any, right: Any) -> None:
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-6), left, right)


@pytest.mark.parametrize("discrete", [True, False])
def test_update_steps_both_players_from_the_old_parameters(discrete):
    spec = Spec(3, 2, discrete)
    batch = random_batch(spec, 6)
    settings: dict[str, Any] = {"hidden": (8,), "policy_hidden": (8,), "nu_lr": 1e-1, "actor_lr": 1e-2}
    algorithm = replace(ValueDICE.paper(), **settings, gradient_penalty=0, orthogonal_penalty=0.5)
    old = algorithm.init(jax.random.key(0), spec)
    new, _ = algorithm.update(old, batch)
    key_action = jax.random.split(old.key, 3)[1]  # The update's own, so that a′ are the same samples.

    def objective(nu, actor):
        return algorithm.objective(residual_terms(nu, actor, spec, batch, key_action, algorithm.discount), batch)[0]

    def penalised(nu, actor):
        return objective(nu, actor) - 0.5 * orthogonal_penalty(actor.layers)

    # ν descends on J alone, π ascends on J less its penalty.
    assert_trees_close(new.nu, first_adam_step(1e-1, old.nu, jax.grad(objective)(old.nu, old.actor)))
    ascent = jax.grad(penalised, argnums=1)(old.nu, old.actor)
    assert_trees_close(new.actor, first_adam_step(-1e-2, old.actor, ascent))
    # The gradient penalty moves ν and not the policy.
    smooth, _ = replace(algorithm, gradient_penalty=10.0).update(old, batch)
    assert_trees_close(smooth.actor, new.actor)
    assert optax.tree.norm(optax.tree.sub(smooth.nu, new.nu)) > 1e-2
    # Another order would show: π's gradient is another one at the new ν.
    later = jax.grad(penalised, argnums=1)(new.nu, old.actor)
    assert optax.tree.norm(optax.tree.sub(later, ascent)) > 1e-2 * optax.tree.norm(ascent)
