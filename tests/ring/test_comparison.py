"""DAC and the f-divergence form on the ring, against brute force, convexity and closed forms."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from valuedice import ring_comparison
from valuedice.commands.others import ring_command
from valuedice.errors import InputError
from valuedice.ring import (
    NEXT,
    ONLY_STATE_0,
    SPARSE,
    STOCHASTIC,
    exact_weights,
    occupancy,
    stochastic_expert,
    terms,
)
from valuedice.ring_comparison import (
    ALPHAS,
    HINDSIGHT,
    REPLAYS,
    Sampled,
    compare_replays,
    divergence,
    donsker_varadhan,
    draw_minibatch,
    f_divergence,
    learn_exactly,
    learn_from_minibatches,
    run_comparison,
    true_kl,
)
from valuedice.ring_dac import action_values, alternate, best_response, discriminator_reward, improve

EXPERT = STOCHASTIC.expert
UNIFORM = np.full((8, 2), 0.5)
DETERMINISTIC = [np.eye(2)[list(actions)] for actions in itertools.product((0, 1), repeat=8)]
CORNERS = np.array([occupancy(policy, ONLY_STATE_0) for policy in DETERMINISTIC])
"""All occupancies are mixtures of these."""
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
    # By far: E_dE log dE/dRB is what the expert itself would get.
    assert found > 1.1 * np.sum(EXPERT * reward)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@EACH_REPLAY
def test_no_policy_is_better_for_dac_with_entropy(replay, temperature):
    # The objective is concave in dπ, its slope is reward - temperature · log π: no corner lies above the tangent.
    reward = discriminator_reward(EXPERT, replay)
    policy = best_response(reward, temperature)
    slope = reward - temperature * np.log(policy)
    assert np.max(np.sum(slope * (CORNERS - occupancy(policy, ONLY_STATE_0)), axis=(1, 2))) < 1e-9
    assert soft_objective(policy, reward, temperature) > soft_objective(stochastic_expert(), reward, temperature)


def test_the_discriminator_reward_is_where_its_objective_has_no_slope():
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
    # KL of pairs = KL of states + E[-log πE(a|s)], and no action of the expert has more than 0.75.
    least = min(np.sum(d[d > 0] * np.log(d[d > 0] / EXPERT[d > 0])) for d in CORNERS)
    assert least > np.log(4 / 3)


def test_dac_without_entropy_stays_as_far_as_every_deterministic_policy(rows):
    for row in rows.values():
        assert row["dac"]["0.0"]["kl"] > np.log(4 / 3)


def distance_implied(reward, temperature):
    """A bound from below on KL(dπ ‖ dE) for the π that is best for the reward, without looking for it.

    Any policy that beats the expert by G shows that the best one lies G above the expert at least, and, the
    objective being concave, that its mean of v = reward - temperature · log πE does. By Donsker and Varadhan
    KL(dπ ‖ dE) ≥ λ E_dπ v - log E_dE e^(λv) for every λ.
    """
    expert = stochastic_expert()
    rival = expert
    for state in 2 * list(range(8)):  # By trial, one state at a time.
        trials = [np.where(np.arange(8)[:, None] == state, [p, 1 - p], rival) for p in np.linspace(0.02, 0.98, 49)]
        rival = max(trials, key=lambda trial: soft_objective(trial, reward, temperature))
    best = soft_objective(rival, reward, temperature)
    v = reward - temperature * np.log(expert)
    mean = best - soft_objective(expert, reward, temperature) + np.sum(EXPERT * v)
    return max(lam * mean - np.log(np.sum(EXPERT * np.exp(lam * v))) for lam in np.geomspace(1e-3, 10, 60))


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@EACH_REPLAY
def test_dac_with_entropy_is_as_far_from_the_expert_as_donsker_and_varadhan_imply(replay, temperature):
    reward = discriminator_reward(EXPERT, replay)
    bound = distance_implied(reward, temperature)
    assert bound > 1e-3
    assert true_kl(best_response(reward, temperature)) >= bound


def test_no_temperature_makes_dac_match_the_expert(rows):
    for name, row in rows.items():
        best = row["dac_in_hindsight"]
        bound = distance_implied(discriminator_reward(EXPERT, REPLAYS[name]), best["temperature"])
        assert HINDSIGHT[0] < best["temperature"] < HINDSIGHT[-1]
        assert best["kl"] >= bound > 1e-4
        assert best["kl"] <= min(dac["kl"] for dac in row["dac"].values()) + 1e-3


@pytest.mark.parametrize("alpha", ALPHAS)
def test_value_dice_finds_the_expert_whatever_the_replay(rows, alpha):
    for row in rows.values():
        learned = row["value_dice"][str(alpha)]
        assert learned["kl"] < 1e-3
        assert_allclose(learned["policy"], stochastic_expert(), atol=0.02)


def test_replays_are_far_from_the_expert(rows):
    assert min(row["kl"] for row in rows.values()) > 0.5


def test_with_a_fresh_replay_the_expert_is_where_dac_rests():
    assert_allclose(improve(discriminator_reward(EXPERT, EXPERT), stochastic_expert()), stochastic_expert())
    # A fixed replay moves it away.
    moved = improve(discriminator_reward(EXPERT, REPLAYS["clockwise"]), stochastic_expert())
    assert np.abs(moved - stochastic_expert()).max() > 0.01


def kls(occupancies):
    return np.array([np.sum(d[d > 0] * np.log(d[d > 0] / EXPERT[d > 0])) for d in occupancies])


def test_with_a_fresh_replay_and_small_steps_dac_finds_the_expert():
    policy_kl = kls(alternate(1000, growing=False, solved=False)[0])
    assert np.all(np.diff(policy_kl) < 0)
    assert policy_kl[-1] < 1e-6


def test_with_all_rounds_in_the_replay_and_rl_solved_the_replay_matches_but_no_policy_does():
    # This is Frank and Wolfe's method on the convex KL(dRB ‖ dE): its tangent is minus DAC's reward.
    own, replays = alternate(1000, growing=True, solved=True)
    assert_allclose(replays[-1], np.mean(own, axis=0))
    assert kls(replays)[-1] < 1e-3
    assert kls(own)[1:].min() > np.log(4 / 3)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_least_value_of_the_f_form_is_one_minus_the_kl(alpha):
    study = replace(STOCHASTIC, alpha=alpha, replay=REPLAYS["clockwise"])
    policy = np.random.default_rng(0).dirichlet([2, 2], size=8)
    own, expert = ((1 - alpha) * d + alpha * study.replay for d in (occupancy(policy, study.initial), study.expert))
    kl = np.sum(own * np.log(own / expert))
    # ν* of x* = log dπ/dE: the flow matrix of the pairs, inverted.
    flow = np.zeros((8, 2, 8, 2))
    for pair in np.ndindex(8, 2):
        flow[pair][NEXT[pair]] = policy[NEXT[pair]]
    best = np.linalg.solve(np.eye(16) - study.discount * flow.reshape(16, 16), np.log(own / expert).ravel())
    with jax.enable_x64(True):

        def value(nu, form=f_divergence):
            return form(terms(nu.reshape(8, 2), jnp.log(jnp.asarray(policy)), exact_weights(study), study))

        assert kl > 0.05
        assert_allclose(value(best), 1 - kl)
        assert_allclose(jax.grad(value)(jnp.asarray(best)), 0, atol=1e-12)
        # Its level matters, where Donsker and Varadhan's does not: at ν + 100 is x + 1.
        assert_allclose(value(best + 100), np.e - 1 - kl)
        assert_allclose(value(best + 100, donsker_varadhan), -kl)


def test_divergence_is_that_of_the_mixtures():
    d = occupancy(UNIFORM, SPARSE.initial)
    own, expert = 0.9 * d + 0.1 / 16, 0.9 * SPARSE.expert + 0.1 / 16
    assert_allclose(divergence(UNIFORM, SPARSE), np.sum(own * np.log(own / expert)))


def test_exact_f_form_finds_the_expert_too():
    curve = learn_exactly(f_divergence, STOCHASTIC, records=2)
    assert [updates for updates, _ in curve] == [0, 2500, 5000]
    assert_allclose(curve[0][1], true_kl(UNIFORM))
    assert curve[-1][1] < 1e-3


def test_a_minibatch_holds_what_was_drawn():
    weights = exact_weights(SPARSE)
    batch = draw_minibatch(jax.random.key(0), weights, 8)
    for shares, probabilities in zip(batch, weights, strict=True):
        assert_allclose(shares.sum(), 1)
        assert_array_equal(shares * 8, np.round(shares * 8))
        assert not np.any(shares[probabilities == 0])
    many = draw_minibatch(jax.random.key(1), weights, 100_000)
    for shares, probabilities in zip(many, weights, strict=True):
        assert_allclose(shares, probabilities, atol=5 * np.sqrt(0.25 / 100_000))


def test_each_seed_sees_its_own_minibatches_and_always_the_same(monkeypatch):
    monkeypatch.setattr(ring_comparison, "SEEDS", 2)
    sampled = Sampled(replace(STOCHASTIC, updates=40), batch_size=4)
    paths = learn_from_minibatches(donsker_varadhan, sampled, records=2)
    assert paths[0][0] == paths[1][0] == pytest.approx(true_kl(UNIFORM))
    assert paths[0][2] != paths[1][2]
    assert paths == learn_from_minibatches(donsker_varadhan, sampled, records=2)


@pytest.fixture
def short(monkeypatch, rows):
    """The whole command, in which the forms hardly train."""
    brief = replace(STOCHASTIC, updates=40)
    monkeypatch.setattr(ring_comparison, "compare_replays", lambda: rows)
    monkeypatch.setattr(ring_comparison, "SPARSE", replace(SPARSE, updates=50))
    monkeypatch.setattr(ring_comparison, "ROUNDS", 20)
    monkeypatch.setattr(ring_comparison, "SEEDS", 2)
    monkeypatch.setattr(ring_comparison, "LEVELS", (-300.0,))
    sampled = {f"stochastic, batch {size}": Sampled(brief, size) for size in (4, 64)}
    monkeypatch.setattr(ring_comparison, "SAMPLED", sampled)


def test_the_command_prints_and_writes_the_comparison(short, rows, tmp_path, capsys):
    assert ring_command(["--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for name in rows:
        assert name in printed
    assert json.loads((tmp_path / "comparison.json").read_text())["replay"] == rows
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "ring.json").is_file()


def test_a_folder_in_the_way_of_the_comparison_is_refused(short, tmp_path, monkeypatch):
    monkeypatch.setattr(ring_comparison, "compare_forms", dict)
    (tmp_path / "comparison.json").mkdir()
    with pytest.raises(InputError, match="--out"):
        run_comparison(tmp_path)
