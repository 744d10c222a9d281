"""Behavioural cloning against closed forms: maximum likelihood, decay, and when it stops."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sample_rows import one_hots, one_state_rows, only_state, update
from small import same

import valuedice as vd
from valuedice.algorithms import BC
from valuedice.algorithms.bc import WINDOW, State
from valuedice.demos.rows import ExpertRows
from valuedice.losses import orthogonal_penalty
from valuedice.networks import Dense, PolicyNet, gaussian_policy, log_likelihood, squared_error
from valuedice.types import SQUASHED, Batch, Form, Normalizer, Sampling, Spec, Transition

DISCRETE, GAUSSIAN = Spec(1, 3, discrete=True), Spec(1, 1, low=(-1.0,), high=(1.0,))
FIRST, SECOND = (one_state_rows(DISCRETE, one_hots(counts)) for counts in ([2, 0, 0], [0, 2, 0]))
EACH = one_state_rows(DISCRETE, one_hots([1, 1, 1]))


def learned(algorithm: BC, spec: Spec, rows: Transition, updates: int, held_out: Transition | None = None) -> State:
    batch = Batch.of(spec, expert=rows, held_out=held_out)
    return update(algorithm, algorithm.init(jax.random.key(0), spec), batch, updates)[0]


def test_the_likeliest_categorical_policy_has_the_frequencies_of_the_data():
    counts = np.array([6, 3, 1])
    rows = one_state_rows(DISCRETE, one_hots(counts))
    state = learned(BC(lr=3e-3, hidden=(8,)), DISCRETE, rows, 2_000)
    entropy = -np.sum(counts / 10 * np.log(counts / 10))
    assert_allclose(-np.mean(log_likelihood(state.actor, DISCRETE, rows.obs, rows.action)), entropy, atol=1e-4)


def test_the_likeliest_gaussian_policy_has_the_moments_of_the_data_before_the_tanh():
    before = np.array([-0.2, 0.0, 0.3, 0.9])
    rows = one_state_rows(GAUSSIAN, np.tanh(before)[:, None])
    state = learned(BC(loss="likelihood", lr=3e-3, hidden=(8,), bounds="tanh"), GAUSSIAN, rows, 3_000)
    policy = gaussian_policy(state.actor, jnp.asarray(only_state(GAUSSIAN)))
    assert_allclose(policy.location[0], before.mean(), atol=1e-3)
    assert_allclose(np.exp(policy.log_std[0]), before.std(), atol=1e-3)


def test_the_likeliest_clipped_policy_solves_the_score_equations_of_a_censored_gaussian():
    # Half of the actions are at the upper bound, where only the probability of the tail counts.
    actions, gaps = np.array([1.0, 1.0, 0.6, 0.4]), np.array([0.4, 0.6])
    rows = one_state_rows(GAUSSIAN, actions[:, None])
    state = learned(BC(loss="likelihood", lr=3e-3, hidden=(8,), bounds="clip"), GAUSSIAN, rows, 3_000)
    policy = gaussian_policy(state.actor, jnp.asarray(only_state(GAUSSIAN)))
    location, std = float(policy.location[0]), float(np.exp(policy.log_std[0]))
    # The derivatives of Σ log Φ((location - 1) / std) + Σ log φ((a - location) / std) / std are zero.
    at = (location - 1) / std
    mills = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi) / (0.5 * (1 + math.erf(at / np.sqrt(2))))
    assert_allclose(2 * mills, np.sum(gaps + location - 1) / std, atol=0.02)
    assert_allclose(2 * mills * at + 2, np.sum((gaps + location - 1) ** 2) / std**2, atol=0.02)


@pytest.mark.parametrize("bounds", ["tanh", "clip"])
def test_the_squared_error_finds_the_mean_action_and_the_likeliest_spread_around_it(bounds):
    actions = np.array([-0.5, 0.1, 0.4, 0.8])
    algorithm = BC(lr=3e-3, hidden=(8,), bounds=bounds)
    state = learned(algorithm, GAUSSIAN, one_state_rows(GAUSSIAN, actions[:, None]), 3_000)
    policy = gaussian_policy(state.actor, jnp.asarray(only_state(GAUSSIAN)))
    assert_allclose(policy.mode()[0], actions.mean(), atol=1e-3)
    # Given its location, the likeliest variance is the mean square of what is left (before a tanh).
    before = np.arctanh if bounds == "tanh" else np.asarray
    spread = np.sqrt(np.mean((before(actions) - before(actions.mean())) ** 2))
    assert_allclose(np.exp(policy.log_std[0]), spread, atol=2e-3)


def test_a_clipped_policy_may_pass_a_bound_as_the_expert_does_and_no_other():
    def error(location: float, action: float) -> float:
        actor = PolicyNet([Dense(jnp.zeros((1, 2)), jnp.array([location, 0.0]))], Form("tanh", "clip"))
        return float(squared_error(actor, jnp.zeros((1, 2)), jnp.array([[action]]))[0])

    assert error(1.7, 1.0) == error(-1.7, -1.0) == 0
    assert_allclose(error(0.7, 1.0), 0.3**2, rtol=1e-5)
    assert_allclose([error(1.7, -1.0), error(1.7, 0.5)], [2.7**2, 1.2**2], rtol=1e-5)


def test_what_the_mean_learns_does_not_depend_on_the_spread():
    rows = one_state_rows(GAUSSIAN, np.array([[-0.5], [0.1], [1.0]]))
    # A clip of 0.5 makes -0.5 an action at its bound.
    states = [learned(BC(hidden=(8,), action_clip=clip), GAUSSIAN, rows, 50) for clip in (1e-6, 0.501)]
    means, spreads = (
        [getattr(gaussian_policy(state.actor, jnp.asarray(only_state(GAUSSIAN))), name) for state in states]
        for name in ("location", "log_std")
    )
    assert_array_equal(*means)
    one, other = (state.actor.layers[0].kernel for state in states)
    assert_array_equal(one, other)
    assert abs(spreads[0] - spreads[1]) > 1e-2


def test_the_step_decays_along_a_cosine():
    algorithm = BC(decay_updates=100)
    left = [float(algorithm.decay(jnp.asarray(updates))) for updates in (0, 50, 100, 500)]
    assert_allclose(left, [1, 0.5, 0, 0], atol=1e-6)


def test_noise_disturbs_observations_but_not_the_absorbing_mark():
    # The policy sees only noise: what it learns about the observation is nothing but the mean action.
    actions = np.array([[-0.5], [0.7]])
    rows = one_state_rows(GAUSSIAN, actions)._replace(obs=np.array([[-0.01, 0.0], [0.01, 0.0]]))
    plain, noisy = (
        learned(BC(lr=3e-3, hidden=(16,), observation_noise=noise), GAUSSIAN, rows, 2_000) for noise in (0.0, 3.0)
    )
    for state, expected in ((plain, actions[:, 0]), (noisy, [0.1, 0.1])):
        modes = [gaussian_policy(state.actor, jnp.asarray(obs)).mode()[0] for obs in rows.obs]
        assert_allclose(modes, expected, atol=0.15)


@pytest.mark.parametrize("clip", [1e-1, 1e-3])
def test_an_action_at_the_bound_counts_as_one_inside_it_by_the_clip(clip):
    actor = BC(hidden=(8,), bounds="tanh").init(jax.random.key(0), GAUSSIAN).actor
    obs = only_state(GAUSSIAN, 2)
    likelihood = log_likelihood(actor, GAUSSIAN, obs, jnp.array([[1.0], [-1.0]]), clip)
    assert_allclose(
        likelihood, log_likelihood(actor, GAUSSIAN, obs, jnp.array([[1 - clip], [clip - 1]])), rtol=1e-3
    )
    assert np.isfinite(likelihood).all()


def test_weights_decay_and_biases_do_not():
    free, decayed = (BC(lr=1e-2, weight_decay=decay, hidden=(8,)) for decay in (0.0, 0.5))
    state, batch = free.init(jax.random.key(0), DISCRETE), Batch.of(DISCRETE, expert=EACH)
    plain, short = (algorithm.update(state, batch)[0] for algorithm in (free, decayed))
    for old, without, with_decay in zip(*(each.actor.layers for each in (state, plain, short)), strict=True):
        assert_allclose(with_decay.kernel, without.kernel - 1e-2 * 0.5 * old.kernel, rtol=1e-5, atol=1e-7)
        assert_array_equal(with_decay.bias, without.bias)


def test_the_orthogonal_penalty_makes_columns_more_orthogonal():
    penalties = [
        orthogonal_penalty(learned(BC(hidden=(8,), orthogonal_penalty=weight), DISCRETE, EACH, 100).actor.layers)
        for weight in (0.0, 100.0)
    ]
    assert penalties[1] < 0.8 * penalties[0]


def test_the_policy_is_the_one_with_the_smallest_loss_on_held_out_actions():
    # Learning makes action 0 likelier and the held-out action 1 less likely: the first window stays the best.
    algorithm = BC(lr=1e-2, hidden=(8,), patience=2)
    early, late = (learned(algorithm, DISCRETE, FIRST, windows * WINDOW, SECOND) for windows in (1, 3))
    networks = (early.actor, late.actor, late.learning)
    for first, kept, moving in zip(*(each.layers for each in networks), strict=True):
        assert_allclose(first.kernel, kept.kernel, atol=1e-5)
        assert np.abs(moving.kernel - kept.kernel).max() > 1e-2
    assert int(late.stale) == 2
    batch = Batch.of(DISCRETE, expert=FIRST, held_out=SECOND)
    assert not algorithm.diagnose(early, batch).converged
    assert algorithm.diagnose(late, batch).converged


def test_the_policy_is_the_latest_in_the_first_window_and_never_changes_when_patience_has_run_out():
    algorithm = BC(lr=1e-2, hidden=(8,), patience=2)
    state = learned(algorithm, DISCRETE, FIRST, WINDOW - 1, FIRST)
    assert_array_equal(state.actor.layers[-1].kernel, state.learning.layers[-1].kernel)
    moved = jax.tree.map(lambda leaf: leaf + 1, state.learning)
    state = replace(state, learning=moved, updates=jnp.asarray(WINDOW), window_loss=jnp.zeros(()))
    for stale, changed, later in ((1, True, 0), (2, False, 3)):
        after = algorithm.compare(replace(state, stale=jnp.asarray(stale)), jnp.zeros(()))
        assert np.array_equal(after.actor.layers[0].kernel, moved.layers[0].kernel) == changed
        assert int(after.stale) == later


def test_training_ends_when_held_out_episodes_no_longer_become_likelier():
    demos = vd.load_demos("pendulum", episodes=3)
    algorithm = BC(lr=3e-2, hidden=(16,), patience=1)
    run = vd.train(algorithm, demos, updates=200 * WINDOW, eval_every=WINDOW, quiet=True)
    assert run.metrics[-1]["converged"]
    assert not run.metrics[-2]["converged"]
    assert run.metrics[-1]["updates"] < 200 * WINDOW


def test_a_share_of_the_episodes_is_held_out_and_none_of_a_single_one():
    demos = vd.load_demos("pendulum")
    kept, aside = demos.split(0.2, seed=0)
    assert aside is not None
    assert (len(kept), len(aside)) == (len(demos) - 2, 2)
    split = {id(episode) for part in (kept, aside) for episode in part.episodes}
    assert split == {id(episode) for episode in demos.episodes}
    assert demos.split(0.0, seed=0) == (demos, None)
    one = demos.select(1, 0)
    assert one.split(0.2, seed=0) == (one, None)
    two, other = demos.select(2, 0).split(0.9, seed=0)
    assert other is not None
    assert (len(two), len(other)) == (1, 1)


def test_the_absorbing_state_is_never_drawn_for_cloning():
    demos, spec = vd.collect_demos("random", "CartPole-v1", 4), Spec(4, 2, discrete=True)
    cloned, exact = (
        ExpertRows(demos, spec, Normalizer.none(4), sampling) for sampling in (BC().data.sampling, Sampling())
    )
    for rows, counts in ((cloned, False), (exact, True)):
        assert (rows.weight[rows.all().obs[:, -1] == 1].sum() > 0) == counts
        drawn, _ = rows.draw(np.random.default_rng(0), (4_000,))
        assert drawn.obs[:, -1].any() == counts


def test_an_environment_only_evaluates():
    demos = vd.load_demos("pendulum", episodes=1)
    options: dict[str, Any] = {"updates": 4, "eval_every": 4, "quiet": True}
    seeing = vd.train(BC(hidden=(8,)), demos, "Pendulum-v1", eval_episodes=1, **options)
    blind = vd.train(BC(hidden=(8,)), demos, **options)
    assert seeing.metrics[-1]["return_mean"] is not None
    assert seeing.metrics[-1]["step"] == 0
    assert same(seeing.policy, blind.policy)


@pytest.mark.slow
def test_cloning_reaches_the_expert_where_it_shows_enough():
    options: dict[str, Any] = {"updates": 3_000, "eval_every": 3_000, "quiet": True}
    run = vd.train(BC(hidden=(64, 64)), vd.load_demos("cartpole"), "CartPole-v1", **options)
    assert run.metrics[-1]["return_mean"] >= 450


@pytest.mark.parametrize(("algorithm", "widths"), [(BC, "hidden"), (vd.ValueDICE, "policy_hidden")])
def test_the_policy_network_follows_the_demonstrations_where_its_settings_are_open(algorithm, widths):
    def suited(clipped: bool, **given: Any) -> tuple[str, str, tuple[int, ...]]:
        found = algorithm(**given).suited(clipped=clipped)
        return found.units, found.bounds, getattr(found, widths)

    assert suited(True) == ("tanh", "clip", (100, 100))
    assert suited(False) == ("relu", "tanh", (256, 256))
    given: dict[str, Any] = {"units": "relu", "bounds": "clip", widths: (7,)}
    assert suited(True, **given) == suited(False, **given) == ("relu", "clip", (7,))
    # Without demonstrations to look at, it is the usual one of reinforcement learning.
    actor = algorithm().init(jax.random.key(0), GAUSSIAN).actor
    assert (actor.form, actor.hidden) == (SQUASHED, (256, 256))


@pytest.mark.parametrize(("name", "bounds"), [("mountaincar", "clip"), ("invertedpendulum", "tanh")])
def test_a_run_stores_the_policy_network_that_it_chose(name, bounds, tmp_path):
    run = vd.train(BC(), vd.load_demos(name, episodes=2), updates=1, out=tmp_path / "run", quiet=True)
    assert run.policy.form.bounds == bounds
    assert run.algorithm == BC().suited(clipped=bounds == "clip")
    assert vd.load_run(tmp_path / "run").algorithm == run.algorithm
    assert vd.load_run(tmp_path / "run").resume(updates=2, quiet=True).policy.form == run.policy.form
