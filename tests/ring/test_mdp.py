"""The Ring MDP against what a linear solve and convexity say."""

from __future__ import annotations

import itertools
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.errors import InputError
from valuedice.ring import (
    NEXT,
    ONLY_STATE_0,
    SPARSE,
    STATES,
    STOCHASTIC,
    UNIFORM_REPLAY,
    UNIFORM_STATES,
    Study,
    clone,
    kl_divergence,
    objective,
    occupancy,
    run_ring,
    sparse_expert,
    stochastic_expert,
)

DISCOUNT = SPARSE.discount
# The paper's figure: 0→1, 1→2, 2→1, 3→2, 4→3, 5→4, 6→7, 7→0.
FIGURE = np.array([0, 0, 1, 1, 1, 1, 0, 0])


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("ring") / "new" / "folder"


@pytest.fixture(scope="module")
def result(out):
    start = time.perf_counter()
    result = run_ring(out)
    assert time.perf_counter() - start < 60
    return result


def random_policy(seed):
    return np.random.default_rng(seed).dirichlet([1, 1], size=8)


def demonstrated_policy(seed):
    """Right in states 0, 1 and 2, anything elsewhere."""
    policy = random_policy(seed)
    policy[:3] = np.eye(2)[FIGURE[:3]]
    return policy


def test_sparse_policy_is_the_papers_figure_in_all_eight_states(result):
    assert np.array(result["sparse"]["policy"])[STATES, FIGURE].min() >= 0.95


def test_no_policy_has_a_lower_kl_of_the_mixtures_than_the_sparse_one(result):
    # The KL is convex in dπ, and occupancies are the hull of those of the 256 deterministic policies: how far
    # the tangent falls towards any of them bounds how far the KL is from its minimum.
    d = occupancy(np.array(result["sparse"]["policy"]), UNIFORM_STATES)
    mixture, expert = 0.9 * d + 0.1 * UNIFORM_REPLAY, 0.9 * SPARSE.expert + 0.1 * UNIFORM_REPLAY
    slope = 0.9 * np.log(mixture / expert)
    corners = [
        occupancy(np.eye(2)[list(actions)], UNIFORM_STATES) for actions in itertools.product((0, 1), repeat=8)
    ]
    assert max(np.sum(slope * (d - corner)) for corner in corners) < 1e-5


def test_stochastic_kl_falls_below_a_thousandth(result):
    updates, kl = np.array(result["stochastic"]["kl"]).T
    assert_array_equal(updates, np.linspace(0, STOCHASTIC.updates, len(updates)))
    assert len(kl) >= 40
    assert kl[0] > 0.1
    assert kl[-1] < 1e-3
    policy = np.array(result["stochastic"]["policy"])
    assert kl[-1] == kl_divergence(occupancy(policy, ONLY_STATE_0), STOCHASTIC.expert)


def test_stochastic_policy_is_the_experts(result):
    assert_array_equal(result["stochastic"]["expert"], stochastic_expert())
    assert_allclose(result["stochastic"]["policy"], stochastic_expert(), atol=0.02)


def test_bc_learns_nothing_where_there_are_no_data(result):
    assert_array_equal(result["sparse"]["bc_policy"], [[1, 0], [1, 0], [0, 1]] + 5 * [[0.5, 0.5]])


def test_bc_recovers_a_policy_from_its_occupancy():
    assert_allclose(clone(occupancy(random_policy(0), UNIFORM_STATES)), random_policy(0))


def test_run_writes_what_it_returns(result, out):
    assert json.loads((out / "ring.json").read_text()) == result
    assert (out / "ring.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_in_the_way_of_the_folder_is_refused(tmp_path):
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
        visits[state, FIGURE[state]] += 1
        state = NEXT[state, FIGURE[state]]
    assert_allclose(sparse_expert(steps=11), visits / 11)
    assert_allclose(SPARSE.expert.sum(), 1)


def test_from_state_0_the_kl_is_zero_whatever_pi_does_in_states_3_to_7():
    expert = occupancy(demonstrated_policy(0), ONLY_STATE_0)
    for seed in range(1, 5):
        assert kl_divergence(occupancy(demonstrated_policy(seed), ONLY_STATE_0), expert) == pytest.approx(0)


def test_from_every_state_the_expert_without_replay_is_infinitely_far():
    assert kl_divergence(occupancy(random_policy(0), UNIFORM_STATES), SPARSE.expert) == np.inf


@pytest.mark.parametrize("seed", range(3))
def test_from_state_0_without_replay_states_3_to_7_get_no_gradient(seed):
    study = Study(occupancy(demonstrated_policy(0), ONLY_STATE_0), ONLY_STATE_0, alpha=0.0, updates=0)
    logits = jnp.log(demonstrated_policy(seed) + 1e-6)
    nu = jax.random.normal(jax.random.key(seed), (8, 2))
    gradient = np.asarray(jax.grad(objective, argnums=1)(nu, logits, study))
    assert_array_equal(gradient[3:], 0)
    # Not because nothing has: where there are data, π is still being corrected.
    assert np.all(gradient[:3] != 0)


@pytest.mark.parametrize("seed", range(3))
def test_from_state_0_with_replay_any_policy_right_on_the_data_is_a_saddle_point(seed):
    study = Study(occupancy(demonstrated_policy(0), ONLY_STATE_0), ONLY_STATE_0, alpha=0.1, updates=0)
    # The occupancies agree, so the log ratio x* = ν* - Bν* is zero.
    gradients = jax.grad(objective, argnums=(0, 1))(
        jnp.zeros((8, 2)), jnp.log(demonstrated_policy(seed) + 1e-30), study
    )
    assert_allclose(gradients[0], 0, atol=1e-6)
    assert_array_equal(gradients[1], 0)
