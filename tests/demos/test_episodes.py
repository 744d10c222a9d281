"""Demonstrations in memory: what is derived from them, selection, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from valuedice.demos import Demos, Episode
from valuedice.errors import InputError


def episode(start: int, steps: int = 2, terminated: bool = False, **changes) -> Episode:
    """Steps of a counter; the reward is 1 a step."""
    counter = np.arange(start, start + steps + 1, dtype=np.float32)[:, None]
    plain = Episode(counter[:-1], np.zeros((steps, 1)), counter[1:], np.ones(steps), terminated)
    return replace(plain, **changes)


@pytest.fixture
def demos() -> Demos:
    return Demos.from_episodes([episode(10 * i, steps=i + 1) for i in range(6)], "six")


def test_sizes_and_returns_follow_from_the_episodes(demos):
    assert (len(demos), demos.rows, demos.obs_size, demos.action_size) == (6, 21, 1, 1)
    assert not demos.discrete
    assert demos.expert_return == 3.5
    assert demos.episodes[2].total_reward == 3
    assert len(demos.episodes[2]) == 3


def test_episodes_are_cast_to_float32(demos):
    first = demos.episodes[0]
    assert first.rewards is not None
    assert {a.dtype for a in (first.observations, first.actions, first.rewards)} == {np.dtype(np.float32)}


def test_without_rewards_there_is_no_expert_return():
    demos = Demos.from_episodes([episode(0, rewards=None)], "bare")
    assert demos.expert_return is None
    assert demos.episodes[0].total_reward is None


@given(count=st.integers(1, 6), seed=st.integers(0, 1000))
def test_selection_is_distinct_in_file_order_and_repeatable(count, seed):
    demos = Demos.from_episodes([episode(10 * i, steps=i + 1) for i in range(6)], "six")
    starts = [chosen.observations[0, 0] for chosen in demos.select(count, seed).episodes]
    assert len(set(starts)) == count
    assert starts == sorted(starts)
    assert starts == [chosen.observations[0, 0] for chosen in demos.select(count, seed).episodes]


def test_seeds_select_different_episodes(demos):
    assert len({demos.select(1, seed).rows for seed in range(50)}) == 6


def test_a_selection_keeps_the_return_of_the_whole_file(demos):
    assert demos.select(1, 0).expert_return == 3.5


def test_a_selection_keeps_the_number_of_actions_of_the_whole_file():
    parts = [episode(0, actions=np.array([a, 0])) for a in range(4)]
    demos = Demos.from_episodes(parts, "discrete")
    assert demos.discrete
    assert {demos.select(1, seed).action_size for seed in range(20)} == {4}


@pytest.mark.parametrize("count", [0, -1, 7])
def test_asking_for_an_impossible_number_of_episodes_says_both_numbers(demos, count):
    with pytest.raises(InputError, match=rf"^{count} episodes .*holds 6"):
        demos.select(count, 0)


def test_a_negative_seed_is_refused(demos):
    with pytest.raises(InputError, match="seed -1"):
        demos.select(1, -1)


def test_the_normalizer_sees_only_the_selected_episodes():
    demos = Demos.from_episodes([episode(0), episode(100)], "two")
    one = demos.select(1, 0)
    start = one.episodes[0].observations[0, 0]
    assert_allclose(one.normalizer().mean, [start + 0.5])
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
        (episode(0, steps=0), "episode 1: holds no rows"),
        (episode(0, actions=np.array([[0], [np.nan]])), "episode 1: actions holds NaN at row 1, column 0"),
        (episode(0, rewards=np.array([1e39, 0])), "episode 1: rewards holds infinity .*float32.* at row 0"),
        (episode(0, actions=np.array([0, -2])), "episode 1: actions holds the discrete action -2 at row 1"),
    ],
)
def test_an_episode_unlike_the_others_is_refused_with_its_place(second, says):
    with pytest.raises(InputError, match=says):
        Demos.from_episodes([episode(0), second], "two")


def test_no_episodes_are_refused():
    with pytest.raises(InputError, match="no episodes"):
        Demos.from_episodes([], "none")
