"""The energy distance between recordings, against closed forms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import valuedice as vd
from valuedice.demos import Demos, Episode
from valuedice.energy import ABSORBING_MARK, ROWS, Reference, distance, weighted_rows
from valuedice.errors import InputError


def episode(values: Any, terminated: bool = False, actions: Any = None) -> Episode:
    """Rows of observations, one feature each if they are numbers; the action is 0 unless given."""
    observations = np.asarray(values, np.float32)
    observations = observations[:, None] if observations.ndim == 1 else observations
    actions = np.zeros((len(observations), 1), np.float32) if actions is None else np.asarray(actions)
    return Episode(observations, actions, observations, None, terminated)


def recording(*episodes: Episode) -> Demos:
    return Demos.from_episodes(episodes, "recording")


def gaussian(seed: int, episodes: int, steps: int, shift: float = 0.0, size: int = 4) -> Demos:
    rng = np.random.default_rng(seed)
    return recording(*(episode(rng.normal(shift, 1, (steps, size))) for _ in range(episodes)))


UNIT = recording(episode([-1, 1]))
"""Mean 0, standard deviation 1, E|Y-Y'| = 1."""
NOUGHT = recording(episode([0, 0]))
"""One point. A feature that never changes keeps its units."""
NUMBERS = st.lists(st.integers(-5, 5), min_size=1, max_size=6)


@pytest.mark.parametrize("gap", [0.5, 3.0, 1e-6, 1e6])
def test_two_points_lie_twice_their_gap_apart(gap):
    assert distance(recording(episode([gap])), NOUGHT) == pytest.approx(2 * gap)


def test_two_values_against_a_point_have_their_closed_form():
    # 2 · 1/2 - 1/2 - 0
    assert distance(recording(episode([0, 1])), NOUGHT) == pytest.approx(1 / 2)


def test_the_reference_standardises_observations():
    # The values 10 ± 4 become ±1, and 22 becomes 3: 2 · (4 + 2) / 2 - 0 - 1.
    reference = recording(episode([6, 14]))
    assert distance(recording(episode([22])), reference) == pytest.approx(5)


def test_the_reference_standardises_continuous_actions_and_nothing_is_clipped():
    reference = recording(episode([0, 0], actions=[[-2.0], [2.0]]))
    for action, scaled in ((6.0, 3.0), (2e4, 1e4)):
        # 2 · ((scaled + 1) + (scaled - 1)) / 2 - 0 - 1
        found = distance(recording(episode([0], actions=[[action]])), reference)
        assert found == pytest.approx(2 * scaled - 1)


def test_discrete_actions_lie_a_root_of_two_apart_also_if_the_reference_lacks_them():
    reference = recording(episode([0, 0], actions=[1, 1]))
    assert distance(recording(episode([0], actions=[0])), reference) == pytest.approx(2 * sqrt(2))
    assert distance(recording(episode([0, 0], actions=[1, 4])), reference) == pytest.approx(sqrt(2) / 2)
    assert distance(reference, recording(episode([0, 0], actions=[1, 4]))) == pytest.approx(sqrt(2) / 2)


def test_a_terminated_episode_is_filled_with_the_absorbing_row_up_to_the_horizon():
    reference = Reference(recording(episode([-1, 1, -1, 1])))
    assert reference.horizon == 4
    # One step at 1 and three in the absorbing state, which lies √(1 + 25) from both values of the reference.
    far = sqrt(1 + ABSORBING_MARK**2)
    expected = 2 * (1 / 4 * 1 + 3 / 4 * far) - 2 * 1 / 4 * 3 / 4 * far - 1
    assert reference.distance([episode([1], terminated=True)]) == pytest.approx(expected)


def test_a_truncated_episode_is_not_filled():
    # 2 · 1 - 0 - 1
    assert Reference(recording(episode([-1, 1, -1, 1]))).distance([episode([1])]) == pytest.approx(1)


def test_the_reference_is_filled_too():
    reference = recording(episode([0, 0, 0, 0]), episode([0], terminated=True))
    # Five steps at 0 and three in the absorbing state, against 0: 2 · 3/8 · 5 - 2 · 3/8 · 5/8 · 5.
    expected = 2 * ABSORBING_MARK * 3 / 8 * (1 - 5 / 8)
    assert distance(NOUGHT, reference) == pytest.approx(expected)


@pytest.mark.parametrize("terminated", [False, True])
def test_steps_beyond_the_horizon_do_not_count(terminated):
    reference = Reference(UNIT)
    # 2 · (0 + 2 + 2 + 0) / 4 - 1 - 1: the first two steps are the reference's.
    assert reference.distance([episode([1, -1, 7, nan], terminated)]) == 0
    assert reference.distance([episode([1, -1], True)]) == 0


@pytest.mark.parametrize("every", [2, 3, 5])
def test_the_parts_of_all_offsets_together_weigh_what_the_whole_episodes_weigh(every):
    whole = recording(episode(np.arange(11)), episode(np.arange(20, 27), terminated=True))
    parts = [each.every_nth(every, offset) for each in whole.episodes for offset in range(every)]
    assert Reference(whole).distance(parts) == pytest.approx(0, abs=1e-12)
    assert Reference(whole).distance(parts[:-1]) > 1e-4
    # A reference of parts has the horizon and the weights of the whole.
    reference = Reference(recording(*parts))
    assert reference.horizon == 11
    assert reference.distance(whole) == pytest.approx(0, abs=1e-12)


def test_the_weights_of_a_part_have_their_closed_form():
    # Steps 1, 4 and 5 of six; the horizon is 9.
    part = episode(np.arange(6), terminated=True).every_nth(3, 1)
    rows = weighted_rows([part], 9)
    assert_allclose(rows.observations[:, 0], [1, 4, 5])
    assert_allclose(rows.weights, [3, 3, 1])
    assert rows.absorbing == 3
    assert_allclose(weighted_rows([part], 5).weights, [3, 3])


def test_a_choice_of_rows_keeps_the_weight_of_the_absorbing_row():
    reference = Reference(recording(episode(np.zeros(2_000))))
    steps, gap = 1_500, 2.0
    assert 2 * steps > ROWS
    found = reference.distance([episode(np.full(steps, gap), terminated=True)] * 2)
    there, absorbed, mark = 3 / 4, 1 / 4, ABSORBING_MARK
    expected = 2 * (there * gap + absorbed * mark) - 2 * there * absorbed * sqrt(gap**2 + mark**2)
    assert found == pytest.approx(expected)


def squared_difference(x: Sequence[float], y: Sequence[float]) -> float:
    """2 ∫ (F - G)², for the distribution functions of two samples."""
    ends = np.sort([*x, *y])
    f, g = (np.searchsorted(np.sort(sample), ends[:-1], side="right") / len(sample) for sample in (x, y))
    return 2 * float(((f - g) ** 2) @ np.diff(ends))


@given(x=NUMBERS, y=NUMBERS)
def test_in_one_dimension_it_is_twice_the_squared_difference_of_the_distribution_functions(x, y):
    scale = np.std(y) or 1.0
    expected = squared_difference(x, y) / scale
    # Each value is an episode, so that the horizon cuts nothing.
    found = distance(recording(*(episode([value]) for value in x)), recording(episode(y)))
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-12)
    # It is zero for equal distributions only.
    assert (found > 1e-6) == (expected > 0)


@given(st.lists(st.tuples(*[st.floats(-9, 9, width=32)] * 2), min_size=1, max_size=8), st.randoms())
def test_recordings_of_one_scale_can_be_swapped(rows, random):
    # A permutation of one column changes how the columns go together, but neither mean nor scale.
    left, right = np.array(rows).T
    x = recording(episode(rows))
    y = recording(episode(np.stack([left, random.sample(list(right), len(right))], 1)))
    assert distance(x, y) == pytest.approx(distance(y, x), rel=1e-5, abs=1e-9)


@given(st.lists(st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=5), min_size=1, max_size=4), st.randoms())
def test_it_is_zero_for_itself_never_negative_and_ignores_the_order(paths, random):
    x = recording(*map(episode, paths))
    mixed = recording(*(episode(random.sample(path, len(path))) for path in random.sample(paths, len(paths))))
    assert distance(x, x) == 0
    assert distance(mixed, x) == pytest.approx(0, abs=1e-9)
    found = distance(x, UNIT)
    assert found >= 0
    shortened = recording(*(episode(path[: len(UNIT.episodes[0])]) for path in paths))
    assert found == pytest.approx(distance(shortened, UNIT), abs=1e-9)


def test_many_columns_and_more_rows_than_are_chosen_are_zero_for_themselves():
    x = gaussian(0, 3, 1_000, size=110)
    assert 0 <= distance(x, x) < 1e-10


def test_a_difference_of_a_millionth_is_measured():
    steps, gap = 200, 1e-6
    grid = np.linspace(-1, 1, steps)
    x, y = (episode(np.stack([path, np.zeros(steps)], 1)) for path in (grid, grid))
    x.observations[:, 1] += gap
    # A row and the same row moved lie `gap` apart; for other pairs the change is of order gap².
    assert distance(recording(x), recording(y)) == pytest.approx(2 * gap / steps, rel=0.05)


def test_the_choice_of_rows_is_the_same_every_time():
    one, two = (distance(gaussian(1, 3, 1_000), gaussian(2, 3, 1_000)) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_recording_that_is_not_finite_is_infinitely_far(value):
    steps = 3 * ROWS  # the choice of rows must not hide it
    values = np.zeros(steps)
    values[-1] = value
    reference = Reference(recording(episode(np.zeros(steps))))
    assert reference.distance([episode(values)]) == inf
    assert reference.distance([episode(np.zeros(steps), actions=values[:, None])]) == inf
    unchecked = Demos.from_episodes([episode(values)], "unchecked", check=False)
    assert distance(NOUGHT, unchecked) == inf


def test_a_simulation_that_blew_up_is_far_but_no_error():
    assert distance(recording(episode([3e38, -3e38])), UNIT) > 1e37
    huge = replace(episode([0]), observations=np.array([[1e300]]))
    assert Reference(UNIT).distance([huge]) == inf


def test_other_tasks_and_empty_recordings_are_refused():
    reference = Reference(UNIT)
    with pytest.raises(InputError, match="observations have 2 features, those of recording 1; compare"):
        reference.distance([episode([[0, 0]])])
    with pytest.raises(InputError, match="actions are discrete, those of recording are of 1 dimensions; compare"):
        reference.distance([episode([0], actions=[0])])
    with pytest.raises(InputError, match="actions are of 2 dimensions, those of recording are of 1 dimensions"):
        reference.distance(recording(episode([0], actions=[[0.0, 0.0]])))
    with pytest.raises(InputError, match="the recording: holds no episodes; record at least one"):
        reference.distance([])
    late = episode(np.zeros(9)).every_nth(5, 4)
    with pytest.raises(InputError, match="no row is among the first 2 steps; record whole episodes"):
        reference.distance([late])


def test_an_evaluation_is_measured_quickly():
    reference = Reference(gaussian(0, 10, 1_000, size=118))
    policy = gaussian(1, 10, 1_000, size=118).episodes
    start = time.perf_counter()
    reference.distance(policy)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(("episodes", "steps"), [(10, 100), (7, 50), (1, 1_000)])
def test_the_floor_is_what_two_recordings_of_one_behaviour_have(episodes, steps):
    reference = Reference(gaussian(0, episodes, steps, size=20))
    same, other = (
        np.mean([reference.distance(gaussian(seed, episodes, steps, shift, size=20)) for seed in (1, 2, 3)])
        for shift in (0.0, 1.0)
    )
    floor = reference.floor
    assert floor is not None
    # Halves hold half as many rows: the expected ratio is 2.
    assert same < floor < 3 * same
    assert other > 20 * floor


def test_the_floor_of_one_episode_compares_even_with_odd_blocks():
    # Blocks of two steps: the first is left out, the others are in turn at -1 and at 1, so 2 · 2 - 0 - 0. So is the
    # absorbing row. The first is at ±1, which keeps the mean 0 and the deviation 1.
    values = np.append([-1, 1], np.tile([-1, -1, 1, 1], 5))
    assert Reference(recording(episode(values))).floor == pytest.approx(4)
    assert Reference(recording(episode(values, terminated=True))).floor == pytest.approx(4)


def test_the_floor_of_two_episodes_compares_one_with_the_other():
    # One stays at -1, the other ends after 10 of 20 steps at 1. The mean of all rows is -1/3, the deviation √8/3.
    reference = Reference(recording(episode(-np.ones(20)), episode(np.ones(10), terminated=True)))
    mark, low, high = ABSORBING_MARK, -2 / 3 / (sqrt(8) / 3), 4 / 3 / (sqrt(8) / 3)
    cross = (high - low) / 2 + sqrt(low**2 + mark**2) / 2
    assert reference.floor == pytest.approx(2 * cross - sqrt(high**2 + mark**2) / 2)


@pytest.mark.parametrize("lengths", [(21,), (10, 11)])
def test_there_is_no_floor_below_two_rows_for_each_of_eleven_blocks(lengths):
    assert Reference(recording(*(episode(np.arange(length)) for length in lengths))).floor is None
    longer = (lengths[0] + 1, *lengths[1:])
    assert Reference(recording(*(episode(np.arange(length)) for length in longer))).floor is not None


def test_it_is_public():
    assert vd.distance is distance
