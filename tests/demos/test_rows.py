"""Demonstrations as weighted rows: absorbing states, exact weights, draws, normalisation, and what fits a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.demos import Demos, Episode
from valuedice.demos.rows import ExpertRows, check_fit, demos_spec, episode_weights
from valuedice.errors import InputError
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
}
exact = pytest.mark.parametrize("sampling", EXACT.values(), ids=EXACT)
every_sampling = pytest.mark.parametrize("sampling", (EXACT | OTHERS).values(), ids=EXACT | OTHERS)


def episode(number: int, length: int, terminated: bool, **changes: Any) -> Episode:
    """Observations 100, 101, … of episode 1, 200, … of episode 2."""
    path = 100.0 * number + np.arange(length + 1, dtype=np.float32)[:, None]
    plain = Episode(path[:-1], 0.01 * (1 + np.arange(length)[:, None]), path[1:], None, terminated)
    return replace(plain, **changes)


def demos_of(shapes: list[tuple[int, bool]]) -> Demos:
    return Demos.from_episodes([episode(1 + i, *shape) for i, shape in enumerate(shapes)], "some")


def rows_of(shapes: list[tuple[int, bool]], sampling: Sampling) -> ExpertRows:
    return ExpertRows(demos_of(shapes), SPEC, PLAIN, sampling)


def close(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Frequencies within five standard deviations of their probabilities."""
    total = counts.sum()
    return bool((np.abs(counts / total - expected) <= 5 * np.sqrt(expected * (1 - expected) / total)).all())


def test_each_terminated_episode_gets_its_self_loop_and_no_truncated_one_does():
    rows = rows_of([(2, True), (2, False), (1, True)], Sampling()).all()
    names = [[100, 0], [101, 0], [0, 1], [200, 0], [201, 0], [300, 0], [0, 1]]
    after = [[101, 0], [0, 1], [0, 1], [201, 0], [202, 0], [0, 1], [0, 1]]
    assert_array_equal(rows.obs, names)
    assert_array_equal(rows.next_obs, after)
    assert_allclose(rows.action[:, 0], [0.01, 0.02, 0, 0.01, 0.02, 0.01, 0], rtol=1e-6)


@given(st.permutations(range(len(MIXED))))
def test_the_order_of_episodes_does_not_matter(order):
    there = rows_of(MIXED, Sampling(GAMMA))
    parts = [episode(1 + i, *MIXED[i]) for i in order]
    here = ExpertRows(Demos.from_episodes(parts, "shuffled"), SPEC, PLAIN, Sampling(GAMMA))

    def content(rows: ExpertRows) -> list[tuple[float, ...]]:
        return sorted(
            tuple(np.round(row, 12))
            for row in np.column_stack([*rows.all()[:3], rows.weight, rows.initial_weight]).astype(float)
        )

    assert content(here) == content(there)


@given(shapes=st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=5))
def test_each_episode_is_treated_on_its_own(shapes):
    together = rows_of(shapes, Sampling(GAMMA)).all()
    alone = [
        ExpertRows(Demos.from_episodes([episode(1 + i, *shape)], "one"), SPEC, PLAIN, Sampling(GAMMA)).all()
        for i, shape in enumerate(shapes)
    ]
    for name in ("obs", "action", "next_obs"):
        assert_array_equal(getattr(together, name), np.concatenate([getattr(rows, name) for rows in alone]))


def test_what_was_recorded_behind_a_termination_is_never_seen():
    strange = episode(1, 2, True, next_observations=np.array([[101.0], [7e7]]))
    rows = ExpertRows(Demos.from_episodes([strange], "one"), SPEC, PLAIN, Sampling()).all()
    assert_array_equal(rows.next_obs, [[101, 0], [0, 1], [0, 1]])


def test_the_discrete_action_of_the_absorbing_state_is_none_of_the_actions():
    one = episode(1, 2, True, actions=np.array([1, 0]))
    spec = Spec(obs_size=1, action_size=2, discrete=True)
    rows = ExpertRows(Demos.from_episodes([one], "one"), spec, PLAIN, Sampling()).all()
    assert_array_equal(rows.action, [[0, 1], [1, 0], [0, 0]])


@exact
@settings(max_examples=50)
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4), discount=st.floats(0.05, 0.99))
def test_weights_of_terminated_episodes_satisfy_the_flow_equation_in_every_state(sampling, lengths, discount):
    rows = rows_of([(length, True) for length in lengths], replace(sampling, discount=discount))
    transitions = rows.all()
    states = np.unique(transitions.obs, axis=0)
    assert states[0].tolist() == [0, 1]  # the absorbing one, which all episodes share
    for state in states:
        here = (transitions.obs == state).all(1)
        into = (transitions.next_obs == state).all(1)
        start = rows.initial_weight[here].sum()
        flow = (1 - discount) * start + discount * rows.weight[into].sum()
        assert rows.weight[here].sum() == pytest.approx(flow, rel=1e-9)


@exact
@given(length=st.integers(1, 30), discount=st.floats(0.05, 0.99))
def test_a_terminated_episode_weighs_as_much_in_transitions_as_in_initial_states(sampling, length, discount):
    weights, initial = episode_weights(length, True, replace(sampling, discount=discount))
    assert weights.sum() == pytest.approx(initial.sum(), rel=1e-9)


def test_uniform_weights_are_one_but_for_the_self_loop_and_the_start():
    weights, initial = episode_weights(4, True, Sampling(GAMMA))
    assert_allclose(weights, [1, 1, 1, 1, GAMMA / (1 - GAMMA)])
    assert_allclose(initial, [1 / (1 - GAMMA), 1, 1, 1, 0])


def test_geometric_weights_from_all_states_are_those_of_the_design():
    weights, initial = episode_weights(4, True, Sampling(GAMMA, scheme="geometric"))
    rows = 1 - GAMMA ** np.arange(1, 5)
    assert_allclose(weights, np.append(rows, GAMMA * (1 - GAMMA**4) / (1 - GAMMA)))
    assert_allclose(initial, [1, 1, 1, 1, 0])


def test_geometric_weights_from_the_start_are_the_discounted_occupancy():
    sampling = Sampling(GAMMA, scheme="geometric", initial_states="starts")
    weights, initial = episode_weights(4, True, sampling)
    assert_allclose(weights / weights.sum(), np.append((1 - GAMMA) * GAMMA ** np.arange(4), GAMMA**4))
    assert_allclose(initial, [1, 0, 0, 0, 0])


def test_the_crude_alternative_gives_the_self_loop_one_row():
    weights, initial = episode_weights(3, True, Sampling(GAMMA, absorbing="single"))
    assert_array_equal(weights, [1, 1, 1, 1])
    assert_array_equal(initial, [1, 1, 1, 0])


def test_rows_of_a_truncated_episode_weigh_alike_under_uniform_sampling():
    weights, initial = episode_weights(3, False, Sampling(GAMMA))
    assert_array_equal(weights, [1, 1, 1])
    assert_array_equal(initial, [1, 1, 1])


@given(length=st.integers(1, 12), discount=st.floats(0.05, 0.99))
def test_each_virtual_trajectory_of_a_truncated_episode_is_renormalised_to_what_was_recorded(length, discount):
    weights, initial = episode_weights(length, False, Sampling(discount, scheme="geometric"))
    expected = [
        sum(
            (1 - discount) * discount ** (row - start) / (1 - discount ** (length - start))
            for start in range(row + 1)
        )
        for row in range(length)
    ]
    assert_allclose(weights, expected, rtol=1e-9)
    assert_array_equal(initial, np.ones(length))


@every_sampling
def test_the_absorbing_state_is_never_an_initial_state(sampling):
    rows = rows_of(MIXED, sampling)
    absorbing = rows.all().obs[:, -1] == 1
    assert absorbing.sum() == 3
    assert_array_equal(rows.initial_weight[absorbing], 0)
    _, initial = rows.draw(np.random.default_rng(0), (1000,))
    assert_array_equal(initial[:, -1], 0)


@every_sampling
def test_draws_come_in_proportion_to_the_weights(sampling):
    rows = rows_of(MIXED, sampling)
    transitions, initial = rows.draw(np.random.default_rng(0), (2, DRAWS // 2))
    assert transitions.obs.shape == initial.shape == (2, DRAWS // 2, 2)
    names = rows.all().obs[:, 0]
    states = np.unique(names)  # 0 is the absorbing one, where self-loops cannot be told apart
    for drawn, weight in ((transitions.obs, rows.weight), (initial, rows.initial_weight)):
        expected = np.array([weight[names == state].sum() for state in states])
        assert expected.sum() == pytest.approx(1)
        assert close(np.array([(drawn[..., 0] == state).sum() for state in states]), expected)


def test_geometric_draws_take_the_initial_state_from_the_same_episode_and_not_after_the_transition():
    rows = rows_of(MIXED, Sampling(GAMMA, scheme="geometric"))
    transitions, initial = rows.draw(np.random.default_rng(0), (5000,))
    absorbed = transitions.obs[:, -1] == 1
    row, start = transitions.obs[:, 0], initial[:, 0]
    assert_array_equal(row[~absorbed] // 100, start[~absorbed] // 100)
    assert (row[~absorbed] >= start[~absorbed]).all()
    terminated = [1 + i for i, (_, end) in enumerate(MIXED) if end]
    assert set(start[absorbed] // 100) == set(terminated)


def test_rows_are_normalised_and_encoded():
    normalizer = Normalizer(np.array([100], np.float32), np.array([2], np.float32))
    spec = replace(SPEC, low=(0.0,), high=(0.02,))
    rows = ExpertRows(demos_of([(2, True)]), spec, normalizer, Sampling()).all()
    assert_allclose(rows.obs, [[0, 0], [0.5, 0], [0, 1]])
    assert_allclose(rows.action[:, 0], [0, 1, 0], atol=1e-6)


def test_the_normaliser_has_the_mean_and_deviation_of_the_observations():
    normalizer = Normalizer.fit(np.array([[1.0, -4], [3, 4]]))
    assert_array_equal(normalizer.mean, [2, 0])
    assert_array_equal(normalizer.std, [1, 4])
    assert_array_equal(normalizer(np.array([4.0, 2])), [2, 0.5])


def test_a_constant_feature_keeps_its_own_units():
    normalizer = Normalizer.fit(np.array([[7.0, -1], [7, 1]]))
    assert_array_equal(normalizer.std, [1, 1])
    assert_array_equal(normalizer(np.array([8.5, 0])), [1.5, 0])
    assert_array_equal(Normalizer.fit(np.full((3, 2), 5.0)).std, [1, 1])


def test_a_deviation_that_is_tiny_beside_the_feature_itself_is_floored_at_a_thousandth_of_its_size():
    swing = np.array([[-1.0], [1]])
    assert_allclose(Normalizer.fit(50 + 0.01 * swing).std, [0.05001], rtol=1e-6)


def test_the_scale_of_a_feature_does_not_depend_on_the_units_of_others():
    swing = np.array([[-1.0], [1]])
    assert_allclose(Normalizer.fit(swing * [1e-4, 1, 1e4, 0]).std, [1e-4, 1, 1e4, 1], rtol=1e-6)


def test_normalised_observations_are_clipped():
    normalizer = Normalizer.fit(np.array([[-1.0], [1]]))
    assert_array_equal(normalizer(np.array([[1e9], [-1e9], [9.0]])), [[10], [-10], [9]])


def test_absorbing_rows_are_left_out_of_the_normaliser():
    ended, cut = demos_of([(3, True), (2, True)]), demos_of([(3, False), (2, False)])
    assert_array_equal(ended.normalizer().mean, cut.normalizer().mean)
    assert_array_equal(ended.normalizer().std, cut.normalizer().std)
    assert ended.normalizer().mean == pytest.approx((100 + 101 + 102 + 200 + 201) / 5)


CONTINUOUS = demos_of([(2, True)])
DISCRETE = Demos.from_episodes([episode(1, 3, True, actions=np.array([0, 2, 1]))], "discrete")


@pytest.mark.parametrize(
    ("demos", "spec", "says"),
    [
        (CONTINUOUS, replace(SPEC, obs_size=17), "some has observations of 1 features, Task-v0 of 17"),
        (
            CONTINUOUS,
            Spec(1, 3, low=(-1.0,) * 3, high=(1.0,) * 3),
            "some has actions of 1 dimensions, Task-v0 of 3",
        ),
        (CONTINUOUS, Spec(1, 3, discrete=True), "some has continuous actions, Task-v0 takes discrete ones"),
        (DISCRETE, SPEC, "discrete has discrete actions, Task-v0 takes continuous ones"),
        (
            CONTINUOUS,
            replace(SPEC, high=(0.015,)),
            "outside the bounds of Task-v0: 0.02 in episode 0, row 1, dimension 0; allowed is -1 to 0.015",
        ),
        (
            DISCRETE,
            Spec(1, 2, discrete=True),
            "outside the bounds of Task-v0: 2 in episode 0, row 1; allowed is 0 to 1",
        ),
        (DISCRETE, Spec(1, 3, discrete=True, first_action=1), "0 in episode 0, row 0; allowed is 1 to 3"),
    ],
)
def test_demonstrations_that_do_not_fit_are_refused_with_both_sizes(demos, spec, says):
    with pytest.raises(InputError) as caught:
        check_fit(demos, spec, "Task-v0")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_demonstrations_that_fit_pass_also_exactly_at_the_bounds():
    check_fit(CONTINUOUS, replace(SPEC, high=(0.02,)), "Task-v0")  # 0.02 in float32 is below 0.02
    check_fit(CONTINUOUS, replace(SPEC, low=(0.01,)), "Task-v0")
    check_fit(DISCRETE, Spec(1, 3, discrete=True), "Task-v0")


def test_without_an_environment_actions_span_minus_one_to_one_or_the_range_that_was_seen():
    actions = np.array([[0.5, -3, 0.2, 4], [-0.5, 1, 0.2, 4]])
    spec = demos_spec([Demos.from_episodes([episode(1, 2, False, actions=actions)], "wide")])
    assert (spec.obs_size, spec.action_size, spec.discrete) == (1, 4, False)
    assert spec.low == (-1, -3, -1, 4)
    assert spec.high == (1, 1, 1, 5)


def test_without_an_environment_the_largest_action_seen_counts_the_discrete_ones():
    assert demos_spec([DISCRETE]) == Spec(1, 3, discrete=True)


def test_without_an_environment_other_data_may_go_beyond_the_actions_of_the_expert():
    near = Demos.from_episodes([episode(1, 2, False, actions=np.array([[-1.5], [1.5]]))], "expert")
    far = Demos.from_episodes([episode(1, 2, False, actions=np.array([[-2.0], [1.0]]))], "logs")
    assert (demos_spec([near, far]).low, demos_spec([near, far]).high) == ((-2,), (1.5,))
    few = Demos.from_episodes([episode(1, 2, False, actions=np.array([0, 1]))], "expert")
    assert demos_spec([few, DISCRETE]).action_size == 3


def test_demonstrations_fit_the_task_that_they_describe():
    for demos in (CONTINUOUS, DISCRETE):
        check_fit(demos, demos_spec([demos]), "itself")
