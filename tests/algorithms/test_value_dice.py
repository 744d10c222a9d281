"""ValueDICE's parts against plain numpy: a second, row by row, writing of every term on a few rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.algorithms.value_dice import State, ValueDICE, residual_terms
from valuedice.losses import interpolate
from valuedice.networks import Dense, Params, adam_init, expected_value, policy_entropy
from valuedice.types import Batch, Spec, Transition

GAMMA = 0.9
OBS, ACTIONS = 2, 3
# Compiled once for all tests of the same settings.
update = jax.jit(ValueDICE.update, static_argnums=0)
diagnose = jax.jit(ValueDICE.diagnose, static_argnums=0)
log_ratio = jax.jit(ValueDICE.log_ratio, static_argnums=(0, 3))
KINDS = pytest.mark.parametrize("discrete", [True, False])


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def state_of(spec, actor: Params, nu: Params) -> State:
    return State(
        actor=actor,
        nu=nu,
        actor_opt=adam_init(actor),
        nu_opt=adam_init(nu),
        log_partition=jnp.zeros(()),
        updates=jnp.zeros((), jnp.int32),
        key=jax.random.key(0),
        spec=spec,
    )


def random_state(rng, discrete) -> State:
    """As initialised, but with biases that would show."""

    def layer(inputs, outputs, bias=True):
        kernel, offset = rng.normal(size=(inputs, outputs)), rng.normal(size=outputs)
        return Dense(jnp.asarray(kernel), jnp.asarray(offset) if bias else None)

    nu = [layer(OBS + 1 + ACTIONS, 8), layer(8, 1, bias=False)]
    actor = [layer(OBS, 8), layer(8, ACTIONS if discrete else 2 * ACTIONS)]
    return state_of(Spec(OBS, ACTIONS, discrete), actor, nu)


def random_obs(rng, size, absorbing=()) -> np.ndarray:
    obs = np.append(rng.normal(size=(size, OBS)), np.zeros((size, 1)), axis=1)
    obs[list(absorbing)] = [*[0] * OBS, 1]
    return obs


def random_rows(rng, size, discrete=True) -> Transition:
    """The last row ends in the absorbing state."""
    action = np.eye(ACTIONS)[rng.integers(ACTIONS, size=size)] if discrete else rng.uniform(-1, 1, (size, ACTIONS))
    return Transition(random_obs(rng, size), action, random_obs(rng, size, [size - 1]))


def forward(params: Params, x) -> np.ndarray:
    (kernel, bias), (last, offset) = params
    hidden = np.maximum(x @ np.asarray(kernel) + np.asarray(bias), 0)
    return hidden @ np.asarray(last) + (0 if offset is None else np.asarray(offset))


def policy_probs(state, obs) -> np.ndarray:
    weights = np.exp(forward(state.actor, obs[:-1]))
    return weights / weights.sum()


def nu_at(state, obs, action) -> np.ndarray:
    return forward(state.nu, np.concatenate([obs, action]))[0]


def mean_nu(state, obs) -> np.ndarray:
    """E_{a~π} ν(s, a) over discrete actions; at no action in the absorbing state."""
    if obs[-1] == 1:
        return nu_at(state, obs, np.zeros(ACTIONS))
    return policy_probs(state, obs) @ [nu_at(state, obs, action) for action in np.eye(ACTIONS)]


def residuals(state, rows) -> np.ndarray:
    return np.array(
        [nu_at(state, s, a) - GAMMA * mean_nu(state, after) for s, a, after in zip(*rows[:3], strict=True)]
    )


def one_unit(state, weight, bias, height) -> State:
    """The state with ν(row) = height · max(weight · row + bias, 0)."""
    first, last = jax.tree.map(jnp.zeros_like, state.nu)
    first = Dense(first.kernel.at[:, 0].set(jnp.asarray(weight)), first.bias.at[0].set(bias))
    return replace(state, nu=[first, Dense(last.kernel.at[0].set(height), None)])


def assert_same_trees(left: Any, right: Any) -> None:
    jax.tree.map(assert_array_equal, left, right)


WEIGHT = np.array([0.0, 0.0, 0.0, 2.0, -1.0, 0.5])


def curved(row):
    """A value with a slope of `WEIGHT` + 2 a in the action and some curvature: means of actions are not enough."""
    return row @ WEIGHT + jnp.sum(row**2)


def curved_slope(action):
    return WEIGHT[OBS + 1 :] + 2 * action


def value_and_actor_gradient(state, obs, noise):
    def value(actor):
        return expected_value(curved, actor, jnp.asarray(obs), noise)

    (expectation, action), gradient = jax.jit(jax.value_and_grad(value, has_aux=True))(state.actor)
    return expectation, action, gradient


@KINDS
def test_the_absorbing_state_has_one_action_and_gives_the_policy_no_gradient(rng, discrete):
    state, obs = random_state(rng, discrete), np.array([0.7, -0.4, 1.0])
    noise = None if discrete else jnp.ones(ACTIONS)
    value, action, gradient = value_and_actor_gradient(state, obs, noise)
    assert_allclose(value, 0.7**2 + 0.4**2 + 1)
    assert_array_equal(action, np.zeros(ACTIONS))
    assert_same_trees(gradient, jax.tree.map(jnp.zeros_like, state.actor))


def test_expected_value_of_a_gaussian_policy_is_that_of_its_sample(rng):
    state, obs, noise = random_state(rng, False), np.array([0.7, -0.4, 0.0]), np.array([0.3, -1.0, 2.0])
    location, raw = np.split(forward(state.actor, obs[:-1]), 2)
    sample = np.tanh(location + np.exp(-5 + 3.5 * (np.tanh(raw) + 1)) * noise)
    value, action, gradient = value_and_actor_gradient(state, obs, jnp.asarray(noise))
    assert_allclose(action, sample)
    assert_allclose(value, curved(np.append(obs, sample)))
    # By the chain rule through the sample, with respect to the location's output bias.
    assert_allclose(gradient[-1].bias[:ACTIONS], curved_slope(sample) * (1 - sample**2))


def test_expected_value_of_a_categorical_policy_is_the_sum_over_its_actions(rng):
    state, obs = random_state(rng, True), np.array([0.7, -0.4, 0.0])
    probs = policy_probs(state, obs)
    values = np.array([curved(np.append(obs, action)) for action in np.eye(ACTIONS)])
    value, action, gradient = value_and_actor_gradient(state, obs, None)
    assert_allclose(action, probs)
    assert_allclose(value, probs @ values)
    # The gradient of an expectation with respect to logits.
    assert_allclose(gradient[-1].bias, probs * (values - probs @ values))


def test_entropy_of_a_categorical_policy_leaves_the_absorbing_state_out(rng):
    state, obs = random_state(rng, True), random_obs(rng, 5, absorbing=[1, 4])
    probs = np.array([policy_probs(state, row) for row in obs[[0, 2, 3]]])
    entropy = policy_entropy(state.actor, state.spec, jnp.asarray(obs), jax.random.key(0))
    assert_allclose(entropy, -np.sum(probs * np.log(probs)) / 3)


def test_entropy_of_a_gaussian_policy_leaves_the_absorbing_state_out():
    # Of location s + 3 and the smallest log-std, -5: so narrow that its sample hardly matters.
    actor = [Dense(jnp.array([[1.0, 0.0]]), jnp.array([3.0, -20.0]))]
    obs = jnp.array([[-3.0, 0.0], [0.0, 1.0], [-2.5, 0.0], [0.0, 1.0]])
    gaussian = 0.5 * np.log(2 * np.pi * np.e) - 5
    expected = gaussian + np.mean(np.log(1 - np.tanh([0.0, 0.5]) ** 2))
    entropy = policy_entropy(actor, Spec(1, 1), obs, jax.random.key(0))
    assert_allclose(entropy, expected, atol=0.03)


@pytest.mark.parametrize(("alpha", "replay", "share"), [(0.25, True, 0.25), (0.25, False, 0.0), (0.0, True, 0.0)])
def test_diagnose_measures_the_weighted_objective(rng, alpha, replay, share):
    state = random_state(rng, True)
    expert, initial, other = random_rows(rng, 4), random_obs(rng, 2), random_rows(rng, 3)
    weight, initial_weight = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.2, 0.8])
    batch = Batch(expert, initial, other if replay else None, weight, initial_weight)
    measured = diagnose(ValueDICE(discount=GAMMA, replay_regularization=alpha), state, batch)

    x, x_replay = residuals(state, expert), residuals(state, other)
    mixture = np.append((1 - share) * weight, np.full(3, share / 3))
    tilted = np.exp(np.append(x, x_replay))
    start = initial_weight @ [mean_nu(state, obs) for obs in initial]
    objective = np.log(mixture @ tilted) - (1 - share) * (1 - GAMMA) * start - share * x_replay.mean()
    nu = [nu_at(state, obs, action) for obs, action in zip(expert.obs, expert.action, strict=True)]
    probs = np.array([policy_probs(state, obs) for obs in expert.obs])
    expected = {
        "kl_estimate": -objective,
        "dv_value": objective,
        "effective_sample_size": (mixture @ tilted) ** 2 / (mixture @ tilted**2),
        "nu_mean": np.mean(nu),
        "nu_std": np.std(nu),
        "nu_min": min(nu),
        "nu_max": max(nu),
        "entropy": -np.sum(probs * np.log(probs)) / 4,
    }
    for name, value in expected.items():
        assert_allclose(measured[name], value, err_msg=name)


def test_log_ratio_is_the_residual_less_the_running_mean_of_the_log_terms(rng):
    algorithm = ValueDICE(discount=GAMMA, replay_regularization=0.0, nu_lr=0.1)
    first = random_state(rng, True)
    batches = [Batch(random_rows(rng, 4), random_obs(rng, 4), None) for _ in range(2)]
    second, _ = update(algorithm, first, batches[0])
    third, _ = update(algorithm, second, batches[1])
    log_terms = [
        np.log(np.mean(np.exp(residuals(state, batch.expert))))
        for state, batch in zip([first, second], batches, strict=True)
    ]
    rows = random_rows(rng, 5)
    # The second of two weighs 1, the first 0.99.
    constant = (0.99 * log_terms[0] + log_terms[1]) / 1.99
    assert abs(log_terms[0] - log_terms[1]) > 0.1
    assert_allclose(log_ratio(algorithm, third, rows), residuals(third, rows) - constant)
    assert_allclose(log_ratio(algorithm, first, rows), residuals(first, rows))


def test_log_ratio_rises_with_nu_of_the_row(rng):
    # ν(s, a) = 5 for the first action and 0 for the others, or none.
    state = one_unit(random_state(rng, True), np.eye(6)[OBS + 1], 0.0, 5.0)
    state = replace(state, log_partition=jnp.array(0.02), updates=jnp.array(2))
    ends = Transition(random_obs(rng, ACTIONS), np.eye(ACTIONS), random_obs(rng, ACTIONS, range(ACTIONS)))
    assert_allclose(log_ratio(ValueDICE(), state, ends), np.array([5, 0, 0]) - 0.02 / (1 - 0.99**2))


def test_log_ratio_of_a_gaussian_policy_is_a_mean_over_samples():
    # ν(s, a) = a + 1, and π is symmetric around 0: E ν(s′, a′) = 1, with a deviation near 0.9 of a sample.
    nu = [Dense(jnp.array([[0.0], [0.0], [1.0]]), jnp.ones(1)), Dense(jnp.ones((1, 1)), None)]
    actor = [Dense(jnp.zeros((1, 2)), jnp.array([0.0, 20.0]))]
    state = state_of(Spec(1, 1), actor, nu)
    row = Transition(np.zeros((1, 2)), np.array([[0.5]]), np.zeros((1, 2)))
    ratio = log_ratio(ValueDICE(discount=GAMMA), state, row, 4000)
    assert_allclose(ratio, [1.5 - GAMMA], atol=0.06)


def mixing_factor(point, start, end):
    """The t of point = t · start + (1 - t) · end, or None where the point is not on that segment."""
    factors = (point - end) / (start - end)
    return factors[0] if np.ptp(factors) < 1e-9 and 0 <= factors[0] <= 1 else None


def test_interpolation_mixes_each_expert_row_with_its_replay_row(rng):
    expert, other = rng.normal(size=(2, 40, 3))
    points = np.asarray(interpolate([jnp.asarray(expert), jnp.asarray(other)], jax.random.key(0)))
    factors = np.array([mixing_factor(*row) for row in zip(points, expert, other, strict=True)], float)
    assert np.all(np.isfinite(factors))
    # Uniform: a deviation of 0.29 around 1/2, each row's its own.
    assert len(set(factors)) == 40
    assert_allclose([factors.mean(), factors.std()], [1 / 2, 12**-0.5], atol=0.15)


def test_interpolation_without_replay_mixes_each_expert_row_with_another(rng):
    expert = rng.normal(size=(6, 3))
    points = np.asarray(interpolate([jnp.asarray(expert)], jax.random.key(0)))
    for row, point in enumerate(points):
        others = [other for index, other in enumerate(expert) if index != row]
        factors = [mixing_factor(point, expert[row], other) for other in others]
        assert sum(factor is not None for factor in factors) == 1


@KINDS
def test_penalised_rows_are_those_of_the_residual(rng, discrete):
    state = random_state(rng, discrete)
    sources = random_rows(rng, 4, discrete), random_rows(rng, 4, discrete)
    batch = Batch(sources[0], random_obs(rng, 4), sources[1])
    terms = jax.jit(residual_terms, static_argnums=2)(state.nu, state.actor, state.spec, batch, state.key, GAMMA)
    for source, rows, x in zip(sources, terms.rows, [terms.x_expert, terms.x_replay], strict=True):
        now, after = np.split(np.asarray(rows), 2)
        assert_array_equal(now, np.append(source.obs, source.action, axis=1))
        assert_array_equal(after[:, : OBS + 1], source.next_obs)
        if discrete:
            alive = [policy_probs(state, obs) for obs in source.next_obs[:-1]]
            assert_allclose(after[:, OBS + 1 :], [*alive, np.zeros(ACTIONS)])
        else:  # One sample a row, for residual and penalty alike.
            assert x is not None
            assert_allclose(x, (forward(state.nu, now) - GAMMA * forward(state.nu, after))[:, 0])


def test_replay_rows_change_nothing_where_alpha_is_zero(rng):
    algorithm = ValueDICE(discount=GAMMA, replay_regularization=0.0, nu_lr=0.1)
    old = random_state(rng, True)
    batch = Batch(random_rows(rng, 4), random_obs(rng, 4), None)
    without, _ = update(algorithm, old, batch)
    with_replay, _ = update(algorithm, old, batch._replace(replay=random_rows(rng, 4)))
    assert_same_trees((with_replay.nu, with_replay.actor), (without.nu, without.actor))
    assert_array_equal(with_replay.log_partition, without.log_partition)


def test_gradient_penalty_enters_by_its_weight(rng):
    # A unit that is always on makes ν linear: slope vw, v = 3, w of length 2, penalty (2v - 1)², in v 4 (2v - 1).
    old = one_unit(random_state(rng, True), np.full(6, 2 / 6**0.5), 100.0, 3.0)
    batch = Batch(random_rows(rng, 4), random_obs(rng, 4), random_rows(rng, 4))

    def slope(weight):
        """Of ν's loss in v: Adam's first moment is a tenth of it."""
        new, metrics = update(ValueDICE(gradient_penalty=weight), old, batch)
        assert_allclose(metrics["nu_penalty"], (6 - 1) ** 2)
        return 10 * optax.tree.get(new.nu_opt, "mu")[-1].kernel[0, 0]

    assert_allclose(slope(7.0) - slope(0.0), 7 * 20)


def test_gradient_penalty_looks_between_expert_and_replay(rng):
    # ν = 3 max(s₀, 0), with s₀ at -1 on the expert's side and 1 on the other: steep on half of the way.
    def side(value):
        rows = random_rows(rng, 4)
        rows.obs[:, 0] = rows.next_obs[:, 0] = value
        return rows

    old = one_unit(random_state(rng, True), np.eye(6)[0], 0.0, 3.0)
    batch = Batch(side(-1.0), random_obs(rng, 4), side(1.0))
    _, metrics = update(ValueDICE(gradient_penalty=7.0), old, batch)
    # 1 where ν is flat, (3 - 1)² where it is steep: some of eight rows are on either side.
    steep = 8 * (metrics["nu_penalty"] - 1) / 3
    assert_allclose(steep, np.round(steep), atol=1e-4)
    assert 1 <= np.round(steep) <= 7
