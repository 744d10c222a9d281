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
from sample_rows import random_obs, random_rows, update

from valuedice.algorithms.dice import residual_terms
from valuedice.algorithms.value_dice import State, ValueDICE
from valuedice.losses import interpolate
from valuedice.networks import Dense, Params, PolicyNet, expected_value, policy_entropy
from valuedice.types import SQUASHED, Batch, InitialStates, Spec, Transition

GAMMA = 0.9
PAPER = ValueDICE.paper()
DISCRETE, GAUSSIAN = Spec(2, 3, discrete=True), Spec(2, 3)
# Compiled once for all tests of the same settings.
diagnose = jax.jit(ValueDICE.diagnose, static_argnums=0)
log_ratio = jax.jit(ValueDICE.log_ratio, static_argnums=(0, 3))
KINDS = pytest.mark.parametrize("spec", [DISCRETE, GAUSSIAN], ids=["discrete", "gaussian"])


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_state(rng, spec) -> State:
    """As initialised, but with random biases."""
    state = replace(PAPER, hidden=(8,), policy_hidden=(8,)).init(jax.random.key(0), spec)
    nu, actor = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), (state.nu, state.actor))
    return replace(state, nu=nu, actor=actor)


def rows_with_end(rng, size, spec=DISCRETE) -> Transition:
    """Random rows, the last of which ends in the absorbing state."""
    return random_rows(rng, spec, size, ends=[size - 1])


def batch_of(rng, spec=DISCRETE, replay=True) -> Batch:
    """Four rows of each source."""
    expert, other = rows_with_end(rng, 4, spec), rows_with_end(rng, 4, spec)
    initial = InitialStates(random_obs(rng, spec, 4))
    return Batch.of(spec, expert=expert, initial=initial, replay=other if replay else None)


def forward(params: Params, x) -> np.ndarray:
    (kernel, bias), (last, offset) = params
    hidden = np.maximum(x @ np.asarray(kernel) + np.asarray(bias), 0)
    return hidden @ np.asarray(last) + (0 if offset is None else np.asarray(offset))


def policy_probs(state, obs) -> np.ndarray:
    weights = np.exp(forward(state.actor.layers, obs[:-1]))
    return weights / weights.sum()


def nu_at(state, obs, action) -> np.ndarray:
    return forward(state.nu, np.concatenate([obs, action]))[0]


def mean_nu(state, obs) -> np.ndarray:
    """E_{a~π} ν(s, a) over discrete actions; at no action in the absorbing state."""
    if obs[-1] == 1:
        return nu_at(state, obs, np.zeros(3))
    return policy_probs(state, obs) @ [nu_at(state, obs, action) for action in np.eye(3)]


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


def value_and_actor_gradient(state, obs, noise):
    def value(actor):
        return expected_value(curved, actor, jnp.asarray(obs), noise)

    (expectation, action), gradient = jax.jit(jax.value_and_grad(value, has_aux=True))(state.actor)
    return expectation, action, gradient


@KINDS
def test_the_absorbing_state_has_one_action_and_gives_the_policy_no_gradient(rng, spec):
    state, obs = random_state(rng, spec), np.array([0.7, -0.4, 1.0])
    noise = None if spec.discrete else jnp.ones(3)
    value, action, gradient = value_and_actor_gradient(state, obs, noise)
    assert_allclose(value, 0.7**2 + 0.4**2 + 1)
    assert_array_equal(action, np.zeros(3))
    assert_same_trees(gradient, jax.tree.map(jnp.zeros_like, state.actor))


def test_expected_value_of_a_gaussian_policy_is_that_of_its_sample(rng):
    state, obs, noise = random_state(rng, GAUSSIAN), np.array([0.7, -0.4, 0.0]), np.array([0.3, -1.0, 2.0])
    location, raw = np.split(forward(state.actor.layers, obs[:-1]), 2)
    sample = np.tanh(location + np.exp(-5 + 3.5 * (np.tanh(raw) + 1)) * noise)
    value, action, gradient = value_and_actor_gradient(state, obs, jnp.asarray(noise))
    assert_allclose(action, sample)
    assert_allclose(value, curved(np.append(obs, sample)))
    # By the chain rule through the sample, with respect to the location's output bias.
    assert_allclose(gradient.layers[-1].bias[:3], (WEIGHT[3:] + 2 * sample) * (1 - sample**2))


def test_expected_value_of_a_categorical_policy_is_the_sum_over_its_actions(rng):
    state, obs = random_state(rng, DISCRETE), np.array([0.7, -0.4, 0.0])
    probs = policy_probs(state, obs)
    values = np.array([curved(np.append(obs, action)) for action in np.eye(3)])
    value, action, gradient = value_and_actor_gradient(state, obs, None)
    assert_allclose(action, probs)
    assert_allclose(value, probs @ values)
    # The gradient of an expectation with respect to logits.
    assert_allclose(gradient.layers[-1].bias, probs * (values - probs @ values))


def test_entropy_of_a_categorical_policy_omits_the_absorbing_state(rng):
    state, obs = random_state(rng, DISCRETE), random_obs(rng, DISCRETE, 5, absorbing=[1, 4])
    probs = np.array([policy_probs(state, row) for row in obs[[0, 2, 3]]])
    entropy = policy_entropy(state.actor, state.spec, jnp.asarray(obs), jax.random.key(0))
    assert_allclose(entropy, -np.sum(probs * np.log(probs)) / 3)


def test_entropy_of_a_gaussian_policy_omits_the_absorbing_state():
    # Its location is s + 3, and its log-std the smallest, -5: so narrow that the sample hardly matters.
    actor = PolicyNet([Dense(jnp.array([[1.0, 0.0]]), jnp.array([3.0, -20.0]))], SQUASHED)
    obs = jnp.array([[-3.0, 0.0], [0.0, 1.0], [-2.5, 0.0], [0.0, 1.0]])
    gaussian = 0.5 * np.log(2 * np.pi * np.e) - 5
    expected = gaussian + np.mean(np.log(1 - np.tanh([0.0, 0.5]) ** 2))
    entropy = policy_entropy(actor, Spec(1, 1), obs, jax.random.key(0))
    assert_allclose(entropy, expected, atol=0.03)


@pytest.mark.parametrize(("alpha", "replay", "share"), [(0.25, True, 0.25), (0.25, False, 0.0), (0.0, True, 0.0)])
def test_diagnose_measures_the_weighted_objective(rng, alpha, replay, share):
    state, other = random_state(rng, DISCRETE), rows_with_end(rng, 3)
    weight, initial_weight = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.2, 0.8])
    expert = rows_with_end(rng, 4)._replace(weight=weight)
    initial = InitialStates(random_obs(rng, DISCRETE, 2), initial_weight)
    batch = Batch.of(DISCRETE, expert=expert, initial=initial, replay=other if replay else None)
    measured = diagnose(replace(PAPER, discount=GAMMA, replay_regularization=alpha), state, batch)

    x, x_replay = residuals(state, expert), residuals(state, other)
    mixture = np.append((1 - share) * weight, np.full(3, share / 3))
    tilted = np.exp(np.append(x, x_replay))
    start = initial_weight @ [mean_nu(state, obs) for obs in initial.obs]
    objective = np.log(mixture @ tilted) - (1 - share) * (1 - GAMMA) * start - share * x_replay.mean()
    nu = [nu_at(state, obs, action) for obs, action in zip(expert.obs, expert.action, strict=True)]
    probs = np.array([policy_probs(state, obs) for obs in expert.obs])
    expected = {"dv_value": objective, "nu_mean": np.mean(nu), "nu_std": np.std(nu), "nu_min": min(nu)}
    expected |= {"nu_max": max(nu), "entropy": -np.sum(probs * np.log(probs)) / 4}
    assert set(measured.metrics) == set(expected)
    for name, value in expected.items():
        assert_allclose(measured.metrics[name], value, err_msg=name)
    assert_allclose(measured.kl_estimate, -objective)
    assert_allclose(measured.effective_sample_size, (mixture @ tilted) ** 2 / (mixture @ tilted**2))


def test_log_ratio_is_the_residual_less_the_running_mean_of_the_log_terms(rng):
    algorithm = replace(PAPER, discount=GAMMA, replay_regularization=0.0, nu_lr=0.1)
    state = first = random_state(rng, DISCRETE)
    log_terms = []
    for _ in range(2):
        batch = batch_of(rng, replay=False)
        log_terms.append(np.log(np.mean(np.exp(residuals(state, batch.expert)))))
        state, _ = update(algorithm, state, batch)
    rows = rows_with_end(rng, 5)
    # The second of two weighs 1, the first 0.99.
    constant = (0.99 * log_terms[0] + log_terms[1]) / 1.99
    assert abs(log_terms[0] - log_terms[1]) > 0.1
    assert_allclose(log_ratio(algorithm, state, rows), residuals(state, rows) - constant)
    assert_allclose(log_ratio(algorithm, first, rows), residuals(first, rows))


def test_log_ratio_of_a_gaussian_policy_is_a_mean_over_samples():
    # ν(s, a) = a + 1, and π is symmetric around 0: E ν(s′, a′) = 1, with a deviation near 0.9 of a sample.
    nu = [Dense(jnp.array([[0.0], [0.0], [1.0]]), jnp.ones(1)), Dense(jnp.ones((1, 1)), None)]
    actor = PolicyNet([Dense(jnp.zeros((1, 2)), jnp.array([0.0, 20.0]))], SQUASHED)
    state = replace(PAPER.init(jax.random.key(0), Spec(1, 1)), actor=actor, nu=nu)
    row = Transition(np.zeros((1, 2)), np.array([[0.5]]), np.zeros((1, 2)), np.zeros(1))
    ratio = log_ratio(replace(PAPER, discount=GAMMA), state, row, 4000)
    assert_allclose(ratio, [1.5 - GAMMA], atol=0.06)


def mixing_factor(point, start, end):
    """The t of point = t · start + (1 - t) · end, or None if the point is not on that segment."""
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
def test_penalised_rows_are_those_of_the_residual(rng, spec):
    state, batch = random_state(rng, spec), batch_of(rng, spec)
    terms = jax.jit(residual_terms, static_argnums=2)(state.nu, state.actor, spec, batch, state.key, GAMMA)
    for source, rows, x in zip([batch.expert, batch.replay], terms.rows, terms.x, strict=True):
        now, after = np.split(np.asarray(rows), 2)
        assert_array_equal(now, np.append(source.obs, source.action, axis=1))
        assert_array_equal(after[:, :3], source.next_obs)
        if spec.discrete:
            alive = [policy_probs(state, obs) for obs in source.next_obs[:-1]]
            assert_allclose(after[:, 3:], [*alive, np.zeros(3)])
        else:  # One sample a row, for residual and penalty alike.
            assert_allclose(x, (forward(state.nu, now) - GAMMA * forward(state.nu, after))[:, 0])


def test_replay_rows_change_nothing_if_alpha_is_zero(rng):
    algorithm = replace(PAPER, discount=GAMMA, replay_regularization=0.0, nu_lr=0.1)
    state, batch = random_state(rng, DISCRETE), batch_of(rng)
    states = [update(algorithm, state, each)[0] for each in (batch, batch.without_replay())]
    assert_same_trees(*[(after.nu, after.actor, after.log_partition) for after in states])


def test_gradient_penalty_enters_by_its_weight(rng):
    # A unit that is always on makes ν linear: slope vw, v = 3, w of length 2, penalty (2v - 1)², in v 4 (2v - 1).
    old, batch = one_unit(random_state(rng, DISCRETE), np.full(6, 2 / 6**0.5), 100.0, 3.0), batch_of(rng)

    def slope(weight):
        """The slope of ν's loss in v: Adam's first moment is a tenth of it."""
        new, metrics = update(replace(PAPER, gradient_penalty=weight), old, batch)
        assert_allclose(metrics["nu_penalty"], (6 - 1) ** 2)
        return 10 * optax.tree.get(new.nu_opt, "mu")[-1].kernel[0, 0]

    assert_allclose(slope(7.0) - slope(0.0), 7 * 20)


def test_gradient_penalty_looks_between_expert_and_replay(rng):
    # ν = 3 max(s₀, 0), with s₀ at -1 on the expert's side and 1 on the other: steep on half of the way.
    batch = batch_of(rng)
    for rows, value in ((batch.expert, -1.0), (batch.replay, 1.0)):
        rows.obs[:, 0] = rows.next_obs[:, 0] = value
    old = one_unit(random_state(rng, DISCRETE), np.eye(6)[0], 0.0, 3.0)
    _, metrics = update(replace(PAPER, gradient_penalty=7.0), old, batch)
    # 1 where ν is flat, (3 - 1)² where it is steep: some of eight rows are on either side.
    steep = 8 * (metrics["nu_penalty"] - 1) / 3
    assert_allclose(steep, np.round(steep), atol=1e-4)
    assert 1 <= np.round(steep) <= 7
