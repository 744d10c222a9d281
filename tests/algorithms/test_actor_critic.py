"""The default form of ValueDICE: a slow copy of ν, the telescoped linear term, the visited states, the anchor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose
from sample_rows import random_rows, update

from valuedice.algorithms.dice import residual_terms
from valuedice.algorithms.value_dice import State, ValueDICE, anchor_loss
from valuedice.networks import categorical_policy, critic, expected_value
from valuedice.types import Batch, InitialStates, Spec

GAMMA, ALPHA = 0.9, 0.25
DISCRETE, GAUSSIAN = Spec(2, 3, discrete=True), Spec(2, 3)
# Discrete actions, whose expectations are exact: nothing is sampled.
SMALL: dict[str, Any] = {"hidden": (8,), "policy_hidden": (8,), "units": "relu", "bounds": "tanh"}
FORM = ValueDICE(**SMALL, discount=GAMMA, replay_regularization=ALPHA, gradient_penalty=0.0, anchor=0.0)


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def batch() -> Batch:
    expert, replay = (random_rows(seed, DISCRETE, 4, ends=[3]) for seed in (0, 1))
    return Batch.of(DISCRETE, expert=expert, initial=InitialStates(expert.obs), replay=replay)


@pytest.fixture
def state() -> State:
    """Random networks; the copy of ν differs from ν."""
    rng, first = np.random.default_rng(2), FORM.init(jax.random.key(0), DISCRETE)
    trees = (first.nu, first.nu_target, first.actor)
    nu, target, actor = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), trees)
    return replace(first, nu=nu, nu_target=target, actor=actor)


def value(nu: Any, actor: Any, obs: Any) -> Any:
    """E ν(s, π(s)) of each row."""
    expected = jax.vmap(lambda row: expected_value(lambda r: critic(nu, r, standardize=True), actor, row, None)[0])
    return expected(jnp.asarray(obs))


def gradients(algorithm: ValueDICE, state: State, batch: Batch) -> tuple[Any, Any]:
    """Of ν's loss and of π's gain: Adam's first moment is a tenth of a gradient."""
    after, _ = update(algorithm, state, batch)
    return tuple(
        jax.tree.map(lambda m: 10 * m, optax.tree.get(opt, "mu")) for opt in (after.nu_opt, after.actor_opt)
    )


def assert_same_trees(left: Any, right: Any) -> None:
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-10), left, right)


def test_the_residual_uses_the_slow_copy_at_the_next_state(batch, state):
    terms = residual_terms(
        state.nu, state.actor, DISCRETE, batch, state.key, GAMMA, target=state.nu_target, telescoped=True,
        standardize=True,
    )  # fmt: skip
    for source, x, here, after in zip(
        (batch.expert, batch.replay), terms.x, terms.nu_start, terms.nu_next, strict=True
    ):
        rows = jnp.concatenate([source.obs, source.action], axis=1)
        now = jax.vmap(lambda row: critic(state.nu, row, standardize=True))(rows)
        assert_allclose(x, now - GAMMA * value(state.nu_target, state.actor, source.next_obs))
        assert_allclose(here, value(state.nu, state.actor, source.obs))
        assert_allclose(after, value(state.nu_target, state.actor, source.next_obs))


def test_the_policy_descends_on_the_values_of_expert_and_replay_states_alike(batch, state):
    def gain(actor: Any) -> Any:
        costs = [jnp.mean(value(state.nu, actor, source.obs)) for source in (batch.expert, batch.replay)]
        return -(1 - ALPHA) * (costs[0] + costs[1]) / 2

    assert_same_trees(gradients(FORM, state, batch)[1], jax.grad(gain)(state.actor))


def test_nu_descends_on_the_objective_with_its_copy_held_fixed(batch, state):
    def loss(nu: Any) -> Any:
        x, linear = [], []
        for source in (batch.expert, batch.replay):
            now = jax.vmap(lambda row: critic(nu, row, standardize=True))(
                jnp.concatenate([source.obs, source.action], axis=1)
            )
            x.append(now - GAMMA * value(state.nu_target, state.actor, source.next_obs))
            after = value(state.nu_target, state.actor, source.next_obs)
            linear.append(jnp.mean(value(nu, state.actor, source.obs) - GAMMA * after))
        mixture = (1 - ALPHA) * jnp.mean(jnp.exp(x[0])) + ALPHA * jnp.mean(jnp.exp(x[1]))
        return jnp.log(mixture) - (1 - ALPHA) * (linear[0] + linear[1]) / 2 - ALPHA * jnp.mean(x[1])

    assert_same_trees(gradients(FORM, state, batch)[0], jax.grad(loss)(state.nu))


def test_a_constant_in_nu_has_no_gradient_although_its_copy_is_held_fixed(batch, state):
    def loss(constant: Any) -> Any:
        # The last hidden unit is always on, so its outgoing weight adds a constant to ν.
        first, last = state.nu
        bias = first.bias.at[-1].set(50.0)
        kernel = first.kernel.at[:, -1].set(0.0)
        nu = [first._replace(kernel=kernel, bias=bias), last._replace(kernel=last.kernel.at[-1, 0].add(constant))]
        algorithm = replace(FORM, standardize=False)
        terms = algorithm.terms(nu, state.actor, DISCRETE, batch, state.key, target=state.nu_target)
        return algorithm.objective(terms, batch)[0]

    assert_allclose(jax.grad(loss)(0.0), 0.0, atol=1e-9)


def test_the_copy_follows_nu_at_its_rate(batch, state):
    after, _ = update(replace(FORM, target_rate=0.25), state, batch)
    expected = jax.tree.map(lambda slow, fast: 0.75 * slow + 0.25 * fast, state.nu_target, after.nu)
    assert_same_trees(after.nu_target, expected)


def test_the_anchor_adds_the_loss_of_cloning_by_its_weight(batch, state):
    plain, anchored = (gradients(replace(FORM, anchor=weight), state, batch)[1] for weight in (0.0, 7.0))

    def cloning(actor: Any) -> Any:
        each = jax.vmap(lambda row, taken: categorical_policy(actor, row).log_prob(taken))
        return jnp.mean(each(jnp.asarray(batch.expert.obs), jnp.asarray(batch.expert.action)))

    assert_same_trees(
        optax.tree.sub(anchored, plain), jax.tree.map(lambda g: 7 * g, jax.grad(cloning)(state.actor))
    )


def test_the_anchor_is_the_squared_error_of_the_mean_action_and_omits_the_absorbing_state():
    rows = random_rows(0, GAUSSIAN, 5, absorbing=[1, 4])
    actor = FORM.init(jax.random.key(3), GAUSSIAN).actor
    (kernel, bias), (last, offset) = jax.tree.map(np.asarray, actor.layers)
    location = (np.maximum(rows.obs[:, :-1] @ kernel + bias, 0) @ last + offset)[:, :3]
    errors = np.sum((np.tanh(location) - rows.action) ** 2, axis=1)
    assert_allclose(anchor_loss(actor, GAUSSIAN, rows), errors[[0, 2, 3]].mean())


def test_a_target_rate_of_zero_and_the_other_switches_off_are_the_papers_update(batch, state):
    paper = replace(ValueDICE.paper(), **SMALL, discount=GAMMA)
    off: dict[str, Any] = {"target_rate": 0.0, "linear_term": "initial", "policy_gradient": "objective"}
    off |= {"anchor": 0.0, "standardize": False, "one_sided": False, "gradient_penalty": 10.0}
    ours = replace(FORM, **off, replay_regularization=0.1, orthogonal_penalty=1e-4)
    assert_same_trees(gradients(ours, state, batch), gradients(paper, state, batch))
