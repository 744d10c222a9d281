"""Behavioural cloning against closed forms: maximum likelihood, decay, and when it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import valuedice as vd
from valuedice.algorithms import BC
from valuedice.algorithms.bc import WINDOW, State
from valuedice.demos.rows import ExpertRows
from valuedice.errors import InputError
from valuedice.networks import gaussian_policy, log_likelihood
from valuedice.types import Batch, Normalizer, Sampling, Spec, Transition

DISCRETE, GAUSSIAN = Spec(1, 3, discrete=True), Spec(1, 1, low=(-1.0,), high=(1.0,))


def rows_of(action: Any) -> Transition:
    """One state, these actions."""
    obs = np.tile(np.array([1.0, 0.0], np.float32), (len(action), 1))
    return Transition(obs, np.asarray(action, np.float32), obs)


def learned(algorithm: BC, spec: Spec, rows: Transition, updates: int, held_out: Transition | None = None) -> State:
    state = algorithm.init(jax.random.key(0), spec)
    batch = Batch(rows, None, None, held_out=held_out)

    def step(carry: State, _: None) -> tuple[State, None]:
        return algorithm.update(carry, batch)[0], None

    return jax.jit(lambda start: jax.lax.scan(step, start, length=updates)[0])(state)


def test_the_likeliest_categorical_policy_has_the_frequencies_of_the_data():
    frequencies = np.array([6, 3, 1])
    rows = rows_of(np.repeat(np.eye(3), frequencies, axis=0))
    state = learned(BC(lr=3e-3, hidden=(8,)), DISCRETE, rows, 2_000)
    entropy = -np.sum(frequencies / 10 * np.log(frequencies / 10))
    assert_allclose(-np.mean(log_likelihood(state.actor, DISCRETE, rows.obs, rows.action)), entropy, atol=1e-4)


def test_the_likeliest_gaussian_policy_has_the_moments_of_the_data_before_the_tanh():
    before = np.array([-0.2, 0.0, 0.3, 0.9])
    state = learned(BC(lr=3e-3, hidden=(8,)), GAUSSIAN, rows_of(np.tanh(before)[:, None]), 3_000)
    policy = gaussian_policy(state.actor, jnp.array([1.0, 0.0]))
    assert_allclose(policy.location[0], before.mean(), atol=1e-3)
    assert_allclose(np.exp(policy.log_std[0]), before.std(), atol=1e-3)


@pytest.mark.parametrize("clip", [1e-1, 1e-3])
def test_an_action_at_the_bound_counts_as_one_inside_it_by_the_clip(clip):
    actor = BC(hidden=(8,)).init(jax.random.key(0), GAUSSIAN).actor
    at_bounds, inside = (rows_of([[bound], [-bound]]) for bound in (1.0, 1 - clip))
    likelihood = log_likelihood(actor, GAUSSIAN, at_bounds.obs, at_bounds.action, clip)
    assert_allclose(likelihood, log_likelihood(actor, GAUSSIAN, inside.obs, inside.action), rtol=1e-3)
    assert np.isfinite(likelihood).all()


def test_weights_decay_and_biases_do_not():
    rows = rows_of(np.eye(3))
    free, decayed = (BC(lr=1e-2, weight_decay=decay, hidden=(8,)) for decay in (0.0, 0.5))
    state = free.init(jax.random.key(0), DISCRETE)
    batch = Batch(rows, None, None)
    plain, _ = free.update(state, batch)
    short, _ = decayed.update(state, batch)
    for old, without, with_decay in zip(state.actor, plain.actor, short.actor, strict=True):
        assert_allclose(with_decay.kernel, without.kernel - 1e-2 * 0.5 * old.kernel, rtol=1e-5, atol=1e-7)
        assert_array_equal(with_decay.bias, without.bias)


def test_the_orthogonal_penalty_moves_kernels_towards_orthogonal_columns():
    rows = rows_of(np.eye(3))
    algorithm = BC(lr=1e-3, hidden=(8,), orthogonal_penalty=100.0)
    state = algorithm.init(jax.random.key(0), DISCRETE)
    skew = [layer._replace(kernel=layer.kernel + 0.5) for layer in state.learning]
    state = replace(state, learning=skew)
    _, first = algorithm.update(state, Batch(rows, None, None))
    for _ in range(50):
        state, _ = algorithm.update(state, Batch(rows, None, None))
    assert algorithm.update(state, Batch(rows, None, None))[1]["actor_penalty"] < 0.8 * first["actor_penalty"]


def test_the_policy_is_the_one_that_knew_held_out_actions_best():
    # Learning makes action 0 likelier and the held-out action 1 less likely: the first window stays the best.
    algorithm = BC(lr=1e-2, hidden=(8,), patience=2)
    seen, unseen = rows_of(np.eye(3)[[0, 0]]), rows_of(np.eye(3)[[1, 1]])
    after = {windows: learned(algorithm, DISCRETE, seen, windows * WINDOW, unseen) for windows in (1, 3)}
    for early, late, moving in zip(after[1].actor, after[3].actor, after[3].learning, strict=True):
        assert_allclose(early.kernel, late.kernel, atol=1e-5)
        assert np.abs(moving.kernel - late.kernel).max() > 1e-2
    assert int(after[3].stale) == 2
    batch = Batch(seen, None, None, expert_weight=jnp.full(2, 0.5), held_out=unseen)
    assert algorithm.diagnose(after[1], batch)["converged"] == 0
    assert algorithm.diagnose(after[3], batch)["converged"] == 1


def test_in_the_first_window_the_policy_is_the_latest():
    rows = rows_of(np.eye(3)[[0, 0]])
    state = learned(BC(lr=1e-2, hidden=(8,)), DISCRETE, rows, WINDOW - 1, rows)
    assert_array_equal(state.actor[-1].kernel, state.learning[-1].kernel)


def test_nothing_changes_the_policy_when_patience_has_run_out():
    algorithm = BC(hidden=(8,), patience=2)
    state = learned(algorithm, DISCRETE, rows_of(np.eye(3)[[0, 0]]), WINDOW - 1, rows_of(np.eye(3)[[0, 0]]))
    moved = jax.tree.map(lambda leaf: leaf + 1, state.learning)
    state = replace(state, learning=moved, updates=jnp.asarray(WINDOW), window_loss=jnp.zeros(()))
    for stale, changed in ((1, True), (2, False)):
        after = algorithm.compare(replace(state, stale=jnp.asarray(stale)), jnp.zeros(()))
        assert np.array_equal(after.actor[0].kernel, moved[0].kernel) == changed
    assert int(after.stale) == 3


def test_training_ends_when_held_out_episodes_have_not_become_likelier():
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
    demos = vd.collect_demos("random", "CartPole-v1", 4)
    rows = ExpertRows(demos, Spec(4, 2, discrete=True), Normalizer.none(4), BC.rows)
    assert rows.weight[rows.all().obs[:, -1] == 1].sum() == 0
    drawn, _ = rows.draw(np.random.default_rng(0), (4_000,))
    assert not drawn.obs[:, -1].any()
    exact = ExpertRows(demos, Spec(4, 2, discrete=True), Normalizer.none(4), Sampling())
    assert exact.weight[exact.all().obs[:, -1] == 1].sum() > 0


def test_an_environment_is_only_looked_at(tmp_path):
    demos = vd.load_demos("pendulum", episodes=1)
    options: dict[str, Any] = {"updates": 4, "eval_every": 4, "quiet": True}
    seeing = vd.train(BC(hidden=(8,)), demos, "Pendulum-v1", eval_episodes=1, **options)
    blind = vd.train(BC(hidden=(8,)), demos, **options)
    assert seeing.metrics[-1]["return_mean"] is not None
    assert seeing.metrics[-1]["step"] == 0
    assert_array_equal(seeing.policy.layers[0][0], blind.policy.layers[0][0])
    with pytest.raises(InputError, match="takes no steps"):
        vd.train(BC(), demos, "Pendulum-v1", steps=10, quiet=True)
    with pytest.raises(InputError, match="no use of replay data"):
        vd.train(BC(), demos, replay_data=demos, **options)


@pytest.mark.parametrize(
    ("slip", "what"), [({"action_clip": 1.0}, "action_clip"), ({"held_out": 1.0}, "held_out"), ({"lr": 0.0}, "lr")]
)
def test_bad_settings_are_refused(slip, what):
    with pytest.raises(InputError, match=what):
        BC(**slip)


@pytest.mark.slow
def test_cloning_reaches_the_expert_where_it_shows_enough():
    run = vd.train(
        BC(hidden=(64, 64)), vd.load_demos("cartpole"), "CartPole-v1", updates=3_000, eval_every=3_000, quiet=True
    )
    assert run.metrics[-1]["return_mean"] >= 450
