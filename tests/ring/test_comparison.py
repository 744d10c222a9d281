"""DAC and the f-divergence form on the ring, checked by brute force, convexity and closed forms."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.ring import comparison
from valuedice.ring.comparison import (
    ALPHAS,
    HINDSIGHT,
    REPLAYS,
    compare_replays,
    donsker_varadhan,
    draw_minibatch,
    f_divergence,
    learn_exactly,
    learn_from_minibatches,
    run_comparison,
)
from valuedice.ring.dac import action_values, alternate, best_response, discriminator_reward, improve
from valuedice.ring.mdp import (
    NEXT,
    ONLY_STATE_0,
    SPARSE,
    STOCHASTIC,
    UNIFORM_POLICY,
    exact_weights,
    kl_divergence,
    mixture_kl,
    objective_terms,
    occupancy,
    stochastic_expert,
)

EXPERT = STOCHASTIC.expert
DETERMINISTIC = [np.eye(2)[list(actions)] for actions in itertools.product((0, 1), repeat=8)]
CORNERS = np.array([occupancy(policy, ONLY_STATE_0) for policy in DETERMINISTIC])
"""Every occupancy is a mixture of these."""
EACH_REPLAY = pytest.mark.parametrize("replay", REPLAYS.values(), ids=list(REPLAYS))


@pytest.fixture(scope="module")
def rows():
    return compare_replays()


def soft_objective(policy, reward, temperature):
    """E_dπ[reward - temperature · log π]."""
    return np.sum(occupancy(policy, ONLY_STATE_0) * (reward - temperature * np.log(policy)))


@EACH_REPLAY
def test_dac_without_entropy_finds_the_best_of_all_256_deterministic_policies(replay):
    reward = discriminator_reward(EXPERT, replay)
    found = np.sum(occupancy(best_response(reward), ONLY_STATE_0) * reward)
    assert_allclose(found, max(np.sum(corner * reward) for corner in CORNERS), rtol=1e-12)
    # E_dE log dE/dRB is the value of the expert itself.
    assert found > 1.1 * np.sum(EXPERT * reward)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@EACH_REPLAY
def test_no_policy_is_better_than_the_best_response_with_entropy(replay, temperature):
    # The objective is concave in dπ with slope reward - temperature · log π, so no corner lies above the tangent.
    reward = discriminator_reward(EXPERT, replay)
    policy = best_response(reward, temperature)
    slope = reward - temperature * np.log(policy)
    assert np.max(np.sum(slope * (CORNERS - occupancy(policy, ONLY_STATE_0)), axis=(1, 2))) < 1e-9
    assert soft_objective(policy, reward, temperature) > soft_objective(stochastic_expert(), reward, temperature)


def test_the_discriminator_objective_is_stationary_at_its_reward():
    replay = REPLAYS["clockwise"]
    h = 1 / (1 + np.exp(-discriminator_reward(EXPERT, replay)))
    assert_allclose(EXPERT / h, replay / (1 - h))


def test_action_values_solve_the_bellman_equation_with_entropy():
    rng = np.random.default_rng(0)
    reward, policy = rng.normal(size=(8, 2)), rng.dirichlet([1, 1], size=8)
    values = action_values(reward, policy, temperature=0.7)
    state_values = np.sum(policy * (values - 0.7 * np.log(policy)), axis=1)
    assert_allclose(values, reward + 0.99 * state_values[NEXT])


def test_no_deterministic_policy_comes_closer_than_log_four_thirds():
    # KL of pairs = KL of states + E[-log πE(a|s)], and πE(a|s) is at most 0.75.
    assert min(kl_divergence(d, EXPERT) for d in CORNERS) > np.log(4 / 3)


def distance_implied(reward, temperature):
    """A lower bound on KL(dπ ‖ dE) for the π that is best for the reward, computed without that π.

    If any policy beats the expert by G, the best one does so by at least G. The objective is concave, so the best
    policy's mean of v = reward - temperature · log πE also exceeds the expert's by at least G. By Donsker and
    Varadhan, KL(dπ ‖ dE) ≥ λ E_dπ v - log E_dE e^(λv) for every λ.
    """
    expert = stochastic_expert()
    rival = expert
    for state in 2 * list(range(8)):  # A grid search, one state at a time.
        trials = [np.where(np.arange(8)[:, None] == state, [p, 1 - p], rival) for p in np.linspace(0.02, 0.98, 49)]
        rival = max(trials, key=lambda trial: soft_objective(trial, reward, temperature))
    best = soft_objective(rival, reward, temperature)
    v = reward - temperature * np.log(expert)
    mean = best - soft_objective(expert, reward, temperature) + np.sum(EXPERT * v)
    return max(lam * mean - np.log(np.sum(EXPERT * np.exp(lam * v))) for lam in np.geomspace(1e-3, 10, 60))


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@EACH_REPLAY
def test_dac_with_entropy_misses_the_expert_by_at_least_the_bound(replay, temperature):
    reward = discriminator_reward(EXPERT, replay)
    bound = distance_implied(reward, temperature)
    assert bound > 1e-3
    assert mixture_kl(best_response(reward, temperature), STOCHASTIC) >= bound


def test_no_temperature_makes_dac_match_the_expert(rows):
    for name, row in rows.items():
        best = row["dac_in_hindsight"]
        bound = distance_implied(discriminator_reward(EXPERT, REPLAYS[name]), best["temperature"])
        assert HINDSIGHT[0] < best["temperature"] < HINDSIGHT[-1]
        assert best["kl"] >= bound > 1e-4
        assert best["kl"] <= min(dac["kl"] for dac in row["dac"].values()) + 1e-3


@pytest.mark.parametrize("alpha", ALPHAS)
def test_value_dice_finds_the_expert_with_every_replay(rows, alpha):
    for row in rows.values():
        assert row["kl"] > 0.5
        learned = row["value_dice"][str(alpha)]
        assert learned["kl"] < 1e-3
        assert_allclose(learned["policy"], stochastic_expert(), atol=0.02)


def test_dac_stays_at_the_expert_with_a_fresh_replay_only():
    assert_allclose(improve(discriminator_reward(EXPERT, EXPERT), stochastic_expert()), stochastic_expert())
    moved = improve(discriminator_reward(EXPERT, REPLAYS["clockwise"]), stochastic_expert())
    assert np.abs(moved - stochastic_expert()).max() > 0.01


def test_with_a_fresh_replay_and_small_steps_dac_finds_the_expert():
    policy_kl = [kl_divergence(d, EXPERT) for d in alternate(1000, growing=False, solved=False)[0]]
    assert np.all(np.diff(policy_kl) < 0)
    assert policy_kl[-1] < 1e-6


def test_with_all_rounds_in_the_replay_and_rl_solved_the_replay_matches_but_no_policy_does():
    # This is the Frank-Wolfe method on the convex KL(dRB ‖ dE), whose slope is minus DAC's reward.
    own, replays = alternate(1000, growing=True, solved=True)
    assert_allclose(replays[-1], np.mean(own, axis=0))
    assert kl_divergence(replays[-1], EXPERT) < 1e-3
    assert min(kl_divergence(d, EXPERT) for d in own[1:]) > np.log(4 / 3)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_minimum_of_the_f_form_is_one_minus_the_kl(alpha):
    study = replace(STOCHASTIC, alpha=alpha, replay=REPLAYS["clockwise"])
    policy = np.random.default_rng(0).dirichlet([2, 2], size=8)
    own, expert = ((1 - alpha) * d + alpha * study.replay for d in (occupancy(policy, study.initial), study.expert))
    kl = np.sum(own * np.log(own / expert))
    # ν* solves ν - Bπν = x* = log dπ/dE, a linear system.
    flow = np.zeros((8, 2, 8, 2))
    for pair in np.ndindex(8, 2):
        flow[pair][NEXT[pair]] = policy[NEXT[pair]]
    best = np.linalg.solve(np.eye(16) - study.discount * flow.reshape(16, 16), np.log(own / expert).ravel())
    with jax.enable_x64(True):

        def value(nu, form=f_divergence):
            return form(*objective_terms(nu.reshape(8, 2), jnp.log(policy), exact_weights(study), study))

        assert kl > 0.05
        assert_allclose(value(best), 1 - kl)
        assert_allclose(jax.grad(value)(jnp.asarray(best)), 0, atol=1e-12)
        # Adding 100 to ν adds 1 to x, which matters to the f-form only.
        assert_allclose(value(best + 100), np.e - 1 - kl)
        assert_allclose(value(best + 100, donsker_varadhan), -kl)


def test_the_f_form_on_exact_tables_finds_the_expert_too():
    curve = learn_exactly(f_divergence, STOCHASTIC, records=2)
    assert [updates for updates, _ in curve] == [0, 2500, 5000]
    assert_allclose(curve[0][1], mixture_kl(UNIFORM_POLICY, STOCHASTIC))
    assert curve[-1][1] < 1e-3


def test_a_minibatch_holds_whole_rows_in_proportion_to_their_probabilities():
    weights = exact_weights(SPARSE)
    batch = draw_minibatch(jax.random.key(0), weights, 8)
    for shares, probabilities in zip(batch, weights, strict=True):
        assert_allclose(shares.sum(), 1)
        assert_array_equal(shares * 8, np.round(shares * 8))
        assert not np.any(shares[probabilities == 0])
    many = draw_minibatch(jax.random.key(1), weights, 100_000)
    for shares, probabilities in zip(many, weights, strict=True):
        assert_allclose(shares, probabilities, atol=5 * np.sqrt(0.25 / 100_000))


def test_minibatches_depend_on_the_seed_alone(monkeypatch):
    monkeypatch.setattr(comparison, "SEEDS", 2)
    study = replace(STOCHASTIC, updates=40)
    paths = learn_from_minibatches(donsker_varadhan, study, batch_size=4, records=2)
    assert paths[0][0] == paths[1][0] == pytest.approx(mixture_kl(UNIFORM_POLICY, STOCHASTIC))
    assert paths[0][2] != paths[1][2]
    assert paths == learn_from_minibatches(donsker_varadhan, study, batch_size=4, records=2)


def test_the_comparison_writes_what_it_returns_and_a_figure(rows, tmp_path, monkeypatch):
    brief = replace(STOCHASTIC, updates=50)
    short: dict[str, Any] = {"SPARSE": brief, "ROUNDS": 20, "SEEDS": 2, "LEVELS": (-300.0,)}
    short["compare_replays"] = lambda: rows
    short["SAMPLED"] = {f"stochastic, batch {size}": (brief, size) for size in (4, 64)}
    for name, value in short.items():
        monkeypatch.setattr(comparison, name, value)
    result = run_comparison(tmp_path / "new")
    assert json.loads((tmp_path / "new" / "comparison.json").read_text()) == result
    assert (tmp_path / "new" / "comparison.png").read_bytes().startswith(b"\x89PNG")
