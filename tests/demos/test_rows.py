"""Demonstrations as weighted rows: absorbing states, exact weights, draws and normalisation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.demos import Demos, Episode
from valuedice.demos.rows import ExpertRows, episode_weights
from valuedice.types import Normalizer, Sampling, Spec

GAMMA = 0.8
DRAWS = 200_000
SPEC = Spec(obs_size=1, action_size=1, low=(-1.0,), high=(1.0,))
PLAIN = Normalizer(np.zeros(1, np.float32), np.ones(1, np.float32), clip=np.inf)
MIXED = [(2, True), (3, False), (1, True), (1, False), (4, True)]
EXACT = {
    "uniform from all": Sampling(GAMMA),
    "geometric from all": Sampling(GAMMA, scheme="geometric"),
    "geometric from starts": Sampling(GAMMA, scheme="geometric", initial_states="starts"),
}
OTHERS = {
    "uniform from starts": Sampling(GAMMA, initial_states="starts"),
    "uniform with one absorbing row": Sampling(GAMMA, absorbing="single"),
    "uniform without absorbing rows": Sampling(GAMMA, absorbing="none"),
}
exact = pytest.mark.parametrize("sampling", EXACT.values(), ids=EXACT)
every_sampling = pytest.mark.parametrize("sampling", (EXACT | OTHERS).values(), ids=EXACT | OTHERS)


def episode(number: int, length: int, terminated: bool, **changes: Any) -> Episode:
    """Observations 100, 101, … of episode 1, 200, … of episode 2."""
    path = 100.0 * number + np.arange(length + 1, dtype=np.float32)[:, None]
    plain = Episode(path[:-1], 0.01 * (1 + np.arange(length)[:, None]), path[1:], None, terminated)
    return replace(plain, **changes)


def episodes(shapes: list[tuple[int, bool]]) -> list[Episode]:
    return [episode(1 + number, *shape) for number, shape in enumerate(shapes)]


def rows_of(parts: list[Episode], sampling: Sampling = Sampling(GAMMA), spec: Spec = SPEC) -> ExpertRows:  # noqa: B008
    return ExpertRows(Demos.from_episodes(parts, "some"), spec, PLAIN, sampling)


def content(rows: ExpertRows) -> np.ndarray:
    """Every row with its weights, in an order of its own."""
    obs, action, next_obs, *_ = rows.all()
    columns = np.column_stack([obs, action, next_obs, rows.weight, rows.initial_weight])
    return np.array(sorted(columns.tolist()))


def close(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Frequencies within five standard deviations of their probabilities."""
    total = counts.sum()
    return bool((np.abs(counts / total - expected) <= 5 * np.sqrt(expected * (1 - expected) / total)).all())


def test_each_terminated_episode_gets_its_self_loop_and_no_truncated_one_does():
    rows = rows_of(episodes([(2, True), (2, False), (1, True)]))
    obs = [[100, 0], [101, 0], [0, 1], [200, 0], [201, 0], [300, 0], [0, 1]]
    assert_array_equal(rows.all().obs, obs)
    assert_array_equal(rows.initial().obs, obs)
    assert rows.all().weight is rows.weight
    assert rows.initial().weight is rows.initial_weight
    after = [[101, 0], [0, 1], [0, 1], [201, 0], [202, 0], [0, 1], [0, 1]]
    assert_array_equal(rows.all().next_obs, after)
    assert_allclose(rows.all().action[:, 0], [0.01, 0.02, 0, 0.01, 0.02, 0.01, 0], rtol=1e-6)


@given(st.permutations(range(len(MIXED))))
def test_the_order_of_episodes_does_not_matter(order):
    parts = episodes(MIXED)
    assert_allclose(content(rows_of([parts[i] for i in order])), content(rows_of(parts)), rtol=1e-12)


def test_what_was_recorded_after_a_termination_is_never_seen():
    strange = episode(1, 2, True, next_observations=np.array([[101.0], [7e7]]))
    assert_array_equal(rows_of([strange]).all().next_obs, [[101, 0], [0, 1], [0, 1]])


def test_the_discrete_action_of_the_absorbing_state_is_none_of_the_actions():
    discrete = episode(1, 2, True, actions=np.array([1, 0]))
    rows = rows_of([discrete], spec=Spec(obs_size=1, action_size=2, discrete=True))
    assert_array_equal(rows.all().action, [[0, 1], [1, 0], [0, 0]])


@exact
@settings(max_examples=50)
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4), discount=st.floats(0.05, 0.99))
def test_weights_of_terminated_episodes_satisfy_the_flow_equation_in_every_state(sampling, lengths, discount):
    rows = rows_of(episodes([(length, True) for length in lengths]), replace(sampling, discount=discount))
    assert (rows.weight.sum(), rows.initial_weight.sum()) == (pytest.approx(1), pytest.approx(1))
    transitions = rows.all()
    states = np.unique(transitions.obs, axis=0)
    assert states[0].tolist() == [0, 1]  # the absorbing one, which all episodes share
    for state in states:
        here, into = ((part == state).all(1) for part in (transitions.obs, transitions.next_obs))
        flow = (1 - discount) * rows.initial_weight[here].sum() + discount * rows.weight[into].sum()
        assert rows.weight[here].sum() == pytest.approx(flow, rel=1e-9)


# An episode of four rows, and its self-loop if it terminated.
@pytest.mark.parametrize(
    ("sampling", "terminated", "rows", "initial"),
    [
        (Sampling(GAMMA), True, [1, 1, 1, 1, GAMMA / (1 - GAMMA)], [1 / (1 - GAMMA), 1, 1, 1, 0]),
        (Sampling(GAMMA, absorbing="single"), True, [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]),
        (Sampling(GAMMA, absorbing="none"), True, [1, 1, 1, 1, 0], [1, 1, 1, 1, 0]),
        (Sampling(GAMMA), False, [1, 1, 1, 1], [1, 1, 1, 1]),
        (
            Sampling(GAMMA, scheme="geometric"),
            True,
            [*(1 - GAMMA ** np.arange(1, 5)), GAMMA * (1 - GAMMA**4) / (1 - GAMMA)],
            [1, 1, 1, 1, 0],
        ),
        (
            Sampling(GAMMA, scheme="geometric", initial_states="starts"),
            True,
            [*((1 - GAMMA) * GAMMA ** np.arange(4)), GAMMA**4],
            [1, 0, 0, 0, 0],
        ),
    ],
)
def test_the_weights_of_an_episode_have_their_closed_form(sampling, terminated, rows, initial):
    found = episode_weights(4, terminated, sampling)
    assert_allclose(found[0], rows)
    assert_allclose(found[1], initial)


@given(length=st.integers(1, 12), discount=st.floats(0.05, 0.99))
def test_each_virtual_trajectory_of_a_truncated_episode_is_renormalised_to_what_was_recorded(length, discount):
    weights, initial = episode_weights(length, False, Sampling(discount, scheme="geometric"))
    expected = np.zeros(length)
    for start in range(length):
        trajectory = discount ** np.arange(length - start)
        expected[start:] += trajectory / trajectory.sum()
    assert_allclose(weights, expected, rtol=1e-9)
    assert_array_equal(initial, np.ones(length))


@every_sampling
def test_draws_come_in_proportion_to_the_weights_and_never_begin_in_the_absorbing_state(sampling):
    rows = rows_of(episodes(MIXED), sampling)
    transitions, initial = rows.draw(np.random.default_rng(0), (2, DRAWS // 2))
    assert transitions.obs.shape == initial.obs.shape == (2, DRAWS // 2, 2)
    assert transitions.weight is initial.weight is None
    assert_array_equal(initial.obs[..., -1], 0)
    names = rows.all().obs[:, 0]
    states = np.unique(names)  # 0 is the absorbing one, where self-loops cannot be told apart
    for drawn, weight in ((transitions.obs, rows.weight), (initial.obs, rows.initial_weight)):
        expected = np.array([weight[names == state].sum() for state in states])
        assert close(np.array([(drawn[..., 0] == state).sum() for state in states]), expected)


def test_geometric_draws_take_the_initial_state_from_the_same_episode_and_not_after_the_transition():
    rows = rows_of(episodes(MIXED), Sampling(GAMMA, scheme="geometric"))
    transitions, initial = rows.draw(np.random.default_rng(0), (5000,))
    absorbed = transitions.obs[:, -1] == 1
    row, start = transitions.obs[:, 0], initial.obs[:, 0]
    assert_array_equal(row[~absorbed] // 100, start[~absorbed] // 100)
    assert (row[~absorbed] >= start[~absorbed]).all()
    assert set(start[absorbed] // 100) == {1 + i for i, (_, terminated) in enumerate(MIXED) if terminated}


def test_rows_are_normalised_and_encoded():
    normalizer = Normalizer(np.array([100], np.float32), np.array([2], np.float32))
    demos = Demos.from_episodes(episodes([(2, True)]), "one")
    rows = ExpertRows(demos, replace(SPEC, low=(0.0,), high=(0.02,)), normalizer, Sampling()).all()
    assert_allclose(rows.obs, [[0, 0], [0.5, 0], [0, 1]])
    assert_allclose(rows.action[:, 0], [0, 1, 0], atol=1e-6)


SWING = np.array([[-1.0], [1]])


@pytest.mark.parametrize(
    ("observations", "mean", "std"),
    [
        ([[1.0, -4], [3, 4]], [2, 0], [1, 4]),
        ([[7.0, -1], [7, 1]], [7, 0], [1, 1]),  # a constant feature keeps its own units
        (np.full((3, 1), 0.1, np.float32), [0.1], [1]),
        (50 + 0.01 * SWING, [50], [0.05001]),  # at least a thousandth of the feature's own size
        (SWING * [1e-4, 1, 1e4, 0], [0] * 4, [1e-4, 1, 1e4, 1]),  # whatever the units of the other features
    ],
)
def test_the_normaliser_scales_each_feature_by_its_deviation_unless_it_is_tiny(observations, mean, std):
    normalizer = Normalizer.fit(np.asarray(observations))
    assert_allclose(normalizer.mean, mean, rtol=1e-6)
    assert_allclose(normalizer.std, std, rtol=1e-6)


def test_normalised_observations_are_clipped():
    normalizer = Normalizer.fit(100 + 4 * SWING)
    assert_array_equal(normalizer(np.array([[1e9], [-1e9], [102.0]])), [[10], [-10], [0.5]])
