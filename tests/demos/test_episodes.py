"""Demonstrations in memory: derived quantities, selection, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from valuedice.demos import Demos, Episode
from valuedice.errors import InputError


def episode(start: int, steps: int = 2, **changes: Any) -> Episode:
    """Steps of a counter; the reward is 1 per step."""
    counter = np.arange(start, start + steps + 1, dtype=np.float32)[:, None]
    return replace(Episode(counter[:-1], np.zeros((steps, 1)), counter[1:], np.ones(steps)), **changes)


SIX = Demos.from_episodes([episode(10 * number, steps=number + 1) for number in range(6)], "six")


def starts(demos: Demos) -> list[float]:
    return [float(chosen.observations[0, 0]) for chosen in demos.episodes]


def test_sizes_and_returns_follow_from_the_episodes_which_are_cast_to_float32():
    assert (len(SIX), SIX.rows, SIX.obs_size, SIX.action_size, SIX.discrete) == (6, 21, 1, 1, False)
    assert SIX.expert_return == 3.5
    third = SIX.episodes[2]
    assert (len(third), third.total_reward) == (3, 3)
    assert third.rewards is not None
    assert {a.dtype for a in (third.observations, third.actions, third.rewards)} == {np.dtype(np.float32)}


def test_without_rewards_there_is_no_expert_return():
    demos = Demos.from_episodes([episode(0, rewards=None)], "bare")
    assert demos.expert_return is None
    assert demos.episodes[0].total_reward is None


@given(count=st.integers(1, 6), seed=st.integers(0, 1000))
def test_selection_is_distinct_in_file_order_and_repeatable_and_keeps_the_return_of_the_file(count, seed):
    chosen = SIX.select(count, seed)
    assert len(chosen) == len(set(starts(chosen))) == count
    assert starts(chosen) == sorted(starts(chosen)) == starts(SIX.select(count, seed))
    assert chosen.expert_return == 3.5


def test_seeds_select_different_episodes():
    assert len({SIX.select(1, seed).rows for seed in range(50)}) == 6


def test_a_selection_keeps_the_number_of_actions_of_the_whole_file():
    demos = Demos.from_episodes([episode(0, actions=np.array([action, 0])) for action in range(4)], "discrete")
    assert demos.discrete
    assert {demos.select(1, seed).action_size for seed in range(20)} == {4}


@pytest.mark.parametrize(
    ("count", "seed", "says"),
    [
        *[(count, 0, f"`episodes` is {count}; it must be 1 to 6, the episodes of six") for count in (0, -1, 7)],
        (1, -1, "`seed` is -1; it must be at least 0"),
    ],
)
def test_an_impossible_selection_is_refused(count, seed, says):
    with pytest.raises(InputError, match=says):
        SIX.select(count, seed)


def test_the_normalizer_sees_only_the_selected_episodes():
    one = Demos.from_episodes([episode(0), episode(100)], "two").select(1, 0)
    assert_allclose(one.normalizer().mean, [starts(one)[0] + 0.5])
    assert_allclose(one.normalizer().std, [0.5])


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (episode(0, observations=np.zeros((2, 3))), "episode 1: observations has 3 columns, .* have 1"),
        (episode(0, next_observations=np.zeros((2, 3))), "episode 1: next_observations has 3 columns"),
        (episode(0, actions=np.zeros((2, 2))), "episode 1: actions are of 2 dimensions, .* of 1 dimensions"),
        (episode(0, actions=np.zeros(2, int)), "episode 1: actions are discrete"),
        (episode(0, rewards=None), "episode 1: only some episodes have rewards"),
        (episode(0, actions=np.zeros((3, 1))), "episode 1: rows of different length: .*actions 3"),
        (episode(0, actions=np.array([[0], [np.nan]])), "episode 1: actions holds NaN at row 1, column 0"),
    ],
)
def test_an_episode_unlike_the_others_is_refused_with_its_place(second, says):
    with pytest.raises(InputError, match=says):
        Demos.from_episodes([episode(0), second], "two")


def test_no_episodes_are_refused():
    with pytest.raises(InputError, match="no episodes"):
        Demos.from_episodes([], "none")


@pytest.mark.parametrize(
    ("actions", "clipped"),
    [
        ([1.0, 1.0, 1.0, 0.3, -1.0, -1.0, 0.1, 0.2, 0.4, 0.5], True),
        (np.linspace(-1, 1, 10), False),
        # One entry of fifty is a repetition: just enough.
        ([1.0, 1.0, *np.linspace(-0.9, 0.8, 48)], True),
        ([1.0, 1.0, *np.linspace(-0.9, 0.8, 49)], False),
        # Values inside may repeat, and a dimension that never moves says nothing.
        ([0.0] * 8 + [1.0, -1.0], False),
        ([0.7] * 10, False),
    ],
)
def test_actions_were_clipped_if_one_in_fifty_stays_at_the_ends_of_their_range(actions, clipped):
    column = np.asarray(actions, np.float32)[:, None]
    rows = np.zeros((len(column), 2), np.float32)
    # The bounds may be other ones in each dimension.
    for scaled in (column, 2 * column + 5, np.hstack([column, -3 * column]), np.hstack([column, 0 * column])):
        assert Demos.from_episodes([Episode(rows, scaled, rows)], "here").clipped == clipped
