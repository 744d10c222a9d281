"""The replay buffer: which rows it keeps, where episodes begin and end, and how rows are drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from valuedice.replay import Replay
from valuedice.types import Sampling, Spec

SPEC = Spec(obs_size=2, action_size=1, low=(-1.0,), high=(1.0,))
GAMMA = 0.8
DRAWS = 200_000


class Row(NamedTuple):
    """What a row should be; all but the self-loops have an `obs` of their own."""

    obs: list[float]
    action: list[float]
    next_obs: list[float]
    reward: float
    first: int
    last: int
    looped: bool


def filled(capacity: int, episodes: list[tuple[int, str]]) -> tuple[Replay, list[Row]]:
    """A buffer after these episodes (length; terminated, truncated or open), and every row it was ever given."""
    replay, rows = Replay(SPEC, capacity), []
    for length, end in episodes:
        first, terminated = len(rows), end == "terminated"
        last = -1 if end == "open" else first + length - 1 + terminated
        for step in range(length):
            over = step == length - 1
            name = float(first + step + 1)
            obs, action, next_obs = np.array([name, -name]), np.array([1 / name]), np.array([name + 0.5, 0.0])
            ends = {"terminated": over and terminated, "truncated": over and end == "truncated"}
            replay.add(obs, action, next_obs, 2 * name, **ends)
            after = [0.0, 0.0, 1.0] if over and terminated else [*next_obs, 0.0]
            rows.append(Row([*obs, 0], [*action], after, 2 * name, first, last, terminated))
        if terminated:
            # The absorbing state gives nothing.
            rows.append(Row([0, 0, 1], [0], [0, 0, 1], 0, first, last, True))
    return replay, rows


def check(replay: Replay, kept: list[Row]) -> None:
    """The buffer holds exactly these rows, with the boundaries of their episodes."""
    numbers = np.arange(replay.oldest, replay.count)
    assert len(replay) == len(kept) == len(numbers)
    found, slots = replay.rows(numbers), numbers % replay.capacity
    for name in ("obs", "action", "next_obs", "reward"):
        assert_array_equal(getattr(found, name), np.array([getattr(row, name) for row in kept], np.float32))
    for name in ("first", "last", "looped"):
        assert_array_equal(getattr(replay, name)[slots], [getattr(row, name) for row in kept])


@st.composite
def episodes(draw: Any) -> list[tuple[int, str]]:
    """Whole episodes and perhaps an open one."""
    whole = st.tuples(st.integers(1, 6), st.sampled_from(["terminated", "truncated"]))
    tail = st.tuples(st.integers(1, 6), st.just("open"))
    some = draw(st.lists(whole, max_size=5)) + draw(st.lists(tail, max_size=1))
    return some or [(1, "truncated")]


def close(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Frequencies within five standard deviations of their probabilities."""
    total = counts.sum()
    return bool((np.abs(counts / total - expected) <= 5 * np.sqrt(expected * (1 - expected) / total)).all())


@given(capacity=st.integers(2, 15), episodes=episodes())
def test_the_newest_rows_are_kept_with_the_boundaries_of_their_episodes_also_through_a_checkpoint(
    capacity, episodes
):
    replay, rows = filled(capacity, episodes)
    check(replay, rows[-capacity:])
    again = Replay(SPEC, capacity)
    again.restore(replay.oldest, replay.export(replay.oldest, replay.count))
    for name in ("obs", "action", "next_obs", "reward", "last", "looped"):
        numbers = np.arange(replay.oldest, replay.count) % capacity
        assert_array_equal(getattr(again, name)[numbers], getattr(replay, name)[numbers])


def test_a_step_both_terminated_and_truncated_is_terminated():
    replay = Replay(SPEC, 4)
    replay.add(np.ones(2), np.ones(1), np.ones(2), terminated=True, truncated=True)
    assert_array_equal(replay.looped, [True, True, False, False])


def test_a_capacity_of_one_still_holds_the_two_rows_of_a_termination():
    replay, rows = filled(1, [(3, "terminated")])
    check(replay, rows[-2:])


# From the second of four rows, or of an open episode's four so far: three rows are left.
@pytest.mark.parametrize(
    ("end", "beyond", "mass"),
    [("terminated", [GAMMA**3], 1), ("truncated", [], 1 - GAMMA**3), ("open", [], 1 - GAMMA**3)],
)
def test_offsets_are_geometric_with_the_self_loop_beyond_a_termination_and_renormalised_otherwise(
    end, beyond, mass
):
    replay, _ = filled(20, [(2, "terminated"), (4, end)])
    counts = np.bincount(replay.ahead(np.random.default_rng(0), np.full(DRAWS, 4), GAMMA) - 4)
    expected = np.array([*(1 - GAMMA) * GAMMA ** np.arange(3), *beyond]) / mass
    assert len(counts) == len(expected)
    assert close(counts, expected)


@given(capacity=st.integers(2, 15), episodes=episodes(), discount=st.floats(0.01, 0.9999), seed=st.integers(0, 99))
def test_an_offset_never_leaves_its_episode(capacity, episodes, discount, seed):
    replay, rows = filled(capacity, episodes)
    numbers = np.tile(np.arange(replay.oldest, replay.count), (50, 1))
    ahead = replay.ahead(np.random.default_rng(seed), numbers, discount)
    assert (ahead >= numbers).all()
    assert (ahead < replay.count).all()
    first = np.array([row.first for row in rows])
    assert_array_equal(first[ahead], first[numbers])


@given(
    capacity=st.integers(2, 15),
    episodes=episodes(),
    scheme=st.sampled_from(["uniform", "geometric"]),
    initial_states=st.sampled_from(["all", "starts"]),
)
def test_only_live_rows_are_drawn(capacity, episodes, scheme, initial_states):
    replay, rows = filled(capacity, episodes)
    sampling = Sampling(GAMMA, scheme=scheme, initial_states=initial_states)
    drawn = replay.draw(np.random.default_rng(0), (4, 25), sampling)
    assert (drawn.obs.shape, drawn.action.shape, drawn.reward.shape) == ((4, 25, 3), (4, 25, 1), (4, 25))
    live = {tuple(np.array([*row.obs, *row.action, *row.next_obs], np.float32)) for row in rows[-capacity:]}
    found = np.concatenate(drawn[:3], axis=-1).reshape(100, -1)
    assert {tuple(row) for row in found} <= live


def test_a_uniform_draw_takes_all_rows_alike():
    replay, _ = filled(5, [(2, "terminated"), (3, "truncated"), (2, "open")])
    drawn = replay.draw(np.random.default_rng(0), (DRAWS,), Sampling(GAMMA))
    # The five newest of eight rows have the names 4 to 8.
    assert close(np.bincount(drawn.obs[:, 0].astype(int))[4:], np.full(5, 1 / 5))


def test_geometric_draws_from_starts_see_the_occupancy_of_an_episode():
    replay, _ = filled(10, [(3, "terminated")])
    sampling = Sampling(GAMMA, scheme="geometric", initial_states="starts")
    drawn = replay.draw(np.random.default_rng(0), (DRAWS,), sampling)
    counts = np.bincount(drawn.obs[:, 0].astype(int))  # 0 is the absorbing state
    assert close(counts, np.append(GAMMA**3, (1 - GAMMA) * GAMMA ** np.arange(3)))


def test_if_an_episodes_start_was_overwritten_its_oldest_row_stands_in():
    replay, _ = filled(3, [(5, "truncated")])
    sampling = Sampling(1e-6, scheme="geometric", initial_states="starts")  # so small that every offset is 0
    drawn = replay.draw(np.random.default_rng(0), (100,), sampling)
    assert_array_equal(drawn.obs[:, 0], np.full(100, 3))
