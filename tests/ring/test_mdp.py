"""The Ring MDP, checked by linear solves and convexity."""

from __future__ import annotations

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.errors import InputError
from valuedice.ring.mdp import (
    NEXT,
    ONLY_STATE_0,
    SPARSE,
    SPARSE_ACTIONS,
    STATES,
    STOCHASTIC,
    UNIFORM_POLICY,
    UNIFORM_REPLAY,
    UNIFORM_STATES,
    Study,
    clone,
    exact_objective,
    kl_divergence,
    mixture_kl,
    occupancy,
    run_ring,
    sparse_expert,
    stochastic_expert,
)

DISCOUNT = SPARSE.discount


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("ring") / "new" / "folder"


@pytest.fixture(scope="module")
def result(out):
    return run_ring(out)


def random_policy(seed):
    return np.random.default_rng(seed).dirichlet([1, 1], size=8)


def demonstrated_policy(seed):
    """Correct in states 0, 1 and 2, random elsewhere."""
    policy = random_policy(seed)
    policy[:3] = np.eye(2)[[0, 0, 1]]
    return policy


def test_sparse_policy_is_the_papers_figure_in_all_eight_states(result):
    # 0→1, 1→2, 2→1, 3→2, 4→3, 5→4, 6→7, 7→0.
    assert_array_equal(NEXT[STATES, SPARSE_ACTIONS], [1, 2, 1, 2, 3, 4, 7, 0])
    assert np.array(result["sparse"]["policy"])[STATES, SPARSE_ACTIONS].min() >= 0.95


def test_no_policy_has_a_lower_kl_of_the_mixtures_than_the_sparse_one(result):
    # The KL is convex in dπ, and every occupancy is a mixture of those of the 256 deterministic policies. So the
    # largest drop of the tangent towards one of them bounds the distance from the minimum.
    d = occupancy(np.array(result["sparse"]["policy"]), UNIFORM_STATES)
    mixture, expert = 0.9 * d + 0.1 * UNIFORM_REPLAY, 0.9 * SPARSE.expert + 0.1 * UNIFORM_REPLAY
    slope = 0.9 * np.log(mixture / expert)
    corners = [
        occupancy(np.eye(2)[list(actions)], UNIFORM_STATES) for actions in itertools.product((0, 1), repeat=8)
    ]
    assert max(np.sum(slope * (d - corner)) for corner in corners) < 1e-5


def test_stochastic_kl_falls_below_a_thousandth_and_the_policy_is_the_experts(result):
    updates, kl = np.array(result["stochastic"]["kl"]).T
    assert_array_equal(updates, np.linspace(0, STOCHASTIC.updates, len(updates)))
    assert len(kl) >= 40
    assert kl[0] > 0.1
    assert kl[-1] < 1e-3
    assert_allclose(result["stochastic"]["policy"], stochastic_expert(), atol=0.02)
    assert_array_equal(result["stochastic"]["expert"], stochastic_expert())


def test_bc_stays_uniform_in_states_without_data(result):
    assert_array_equal(result["sparse"]["bc_policy"], [[1, 0], [1, 0], [0, 1]] + 5 * [[0.5, 0.5]])


def test_bc_recovers_a_policy_from_its_occupancy():
    assert_allclose(clone(occupancy(random_policy(0), UNIFORM_STATES)), random_policy(0))


def test_run_writes_what_it_returns(result, out):
    assert json.loads((out / "ring.json").read_text()) == result
    assert (out / "ring.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    path = tmp_path / "taken"
    path.touch()
    with pytest.raises(InputError, match="taken"):
        run_ring(path)


@pytest.mark.parametrize("initial", [ONLY_STATE_0, UNIFORM_STATES])
def test_occupancy_satisfies_the_flow_equation(initial):
    policy = random_policy(1)
    d = occupancy(policy, initial)
    inflow = np.zeros(8)
    np.add.at(inflow, NEXT, d)
    assert_allclose(d.sum(), 1)
    assert_allclose(d, ((1 - DISCOUNT) * initial + DISCOUNT * inflow)[:, None] * policy)


def test_occupancy_of_always_clockwise_is_a_geometric_series():
    d = occupancy(np.tile([1.0, 0.0], (8, 1)), ONLY_STATE_0)
    assert_allclose(d[:, 0], (1 - DISCOUNT) * DISCOUNT**STATES / (1 - DISCOUNT**8))


def test_sparse_expert_counts_one_trajectory():
    visits = np.zeros((8, 2))
    state = 0
    for _ in range(11):
        visits[state, SPARSE_ACTIONS[state]] += 1
        state = NEXT[state, SPARSE_ACTIONS[state]]
    assert_allclose(sparse_expert(steps=11), visits / 11)
    assert_allclose(SPARSE.expert.sum(), 1)


def test_mixture_kl_mixes_the_replay_into_both_sides():
    d = occupancy(UNIFORM_POLICY, SPARSE.initial)
    own, expert = 0.9 * d + 0.1 / 16, 0.9 * SPARSE.expert + 0.1 / 16
    assert_allclose(mixture_kl(UNIFORM_POLICY, SPARSE), np.sum(own * np.log(own / expert)))


def test_from_state_0_the_kl_does_not_depend_on_states_3_to_7():
    expert = occupancy(demonstrated_policy(0), ONLY_STATE_0)
    for seed in range(1, 5):
        assert kl_divergence(occupancy(demonstrated_policy(seed), ONLY_STATE_0), expert) == pytest.approx(0)


def test_from_uniform_starts_the_kl_without_replay_is_infinite():
    assert kl_divergence(occupancy(random_policy(0), UNIFORM_STATES), SPARSE.expert) == np.inf


@pytest.mark.parametrize("seed", range(3))
def test_from_state_0_without_replay_states_3_to_7_get_no_gradient(seed):
    study = Study(occupancy(demonstrated_policy(0), ONLY_STATE_0), ONLY_STATE_0, alpha=0.0, updates=0)
    logits = jnp.log(demonstrated_policy(seed) + 1e-6)
    nu = jax.random.normal(jax.random.key(seed), (8, 2))
    gradient = np.asarray(jax.grad(exact_objective, argnums=1)(nu, logits, study))
    assert_array_equal(gradient[3:], 0)
    # The other states do have a gradient.
    assert np.all(gradient[:3] != 0)


@pytest.mark.parametrize("seed", range(3))
def test_from_state_0_with_replay_any_policy_correct_on_the_data_is_a_saddle_point(seed):
    study = Study(occupancy(demonstrated_policy(0), ONLY_STATE_0), ONLY_STATE_0, alpha=0.1, updates=0)
    # The occupancies agree, so the log ratio x* = ν* - Bν* is zero.
    gradients = jax.grad(exact_objective, argnums=(0, 1))(
        jnp.zeros((8, 2)), jnp.log(demonstrated_policy(seed) + 1e-30), study
    )
    assert_allclose(gradients[0], 0, atol=1e-6)
    assert_array_equal(gradients[1], 0)
