"""Every Nth step of an episode: which steps these are, what they weigh, and what stays known of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.demos import Demos, Episode, load_demos
from valuedice.demos.inspect import inspect
from valuedice.demos.rows import ExpertRows, episode_weights, kept_weights
from valuedice.errors import InputError
from valuedice.types import Normalizer, Sampling, Spec

GAMMA, DRAWS = 0.8, 200_000
SPEC = Spec(obs_size=1, action_size=1, low=(-1.0,), high=(1.0,))
PLAIN = Normalizer(np.zeros(1, np.float32), np.ones(1, np.float32), clip=np.inf)
EXACT = [
    Sampling(GAMMA),
    Sampling(GAMMA, scheme="geometric"),
    Sampling(GAMMA, scheme="geometric", initial_states="starts"),
]
SAMPLINGS = [
    *EXACT,
    Sampling(GAMMA, initial_states="starts"),
    Sampling(GAMMA, absorbing="single"),
    Sampling(GAMMA, absorbing="none"),
]


def episode(number: int, length: int, terminated: bool = False) -> Episode:
    """Observations 100, 101, … of episode 1, 200, … of episode 2; the reward is 1 per step."""
    path = 100.0 * number + np.arange(length + 1, dtype=np.float32)[:, None]
    return Episode(path[:-1], np.zeros((length, 1)), path[1:], np.ones(length), terminated)


TWO = Demos.from_episodes([episode(1, 12), episode(2, 10, True)], "two")


def steps(part: Episode) -> list[int]:
    """Which steps of its episode are kept, by the observations."""
    return [int(value) % 100 for value in part.observations[:, 0]]


@given(length=st.integers(1, 30), every=st.integers(1, 9), offset=st.integers(0, 8), terminated=st.booleans())
def test_every_nth_step_is_kept_and_the_last_one_if_the_task_ended_there(length, every, offset, terminated):
    offset = min(offset, length - 1)
    part = episode(1, length, terminated).every_nth(every, offset)
    expected = {t for t in range(offset, length) if (t - offset) % every == 0} | (
        {length - 1} if terminated else set()
    )
    assert steps(part) == sorted(expected)
    assert part.part is not None
    assert_array_equal(part.part.times, steps(part))
    assert (part.part.length, part.part.start[0], part.terminated) == (length, 100, terminated)
    assert_array_equal(part.next_observations, part.observations + 1)


# Every offset once is every row once: what is learned from is the whole episode, on average.
@pytest.mark.parametrize("sampling", SAMPLINGS)
@given(length=st.integers(1, 14), every=st.integers(2, 5), terminated=st.booleans())
def test_the_mean_of_the_weights_over_all_offsets_is_that_of_the_whole_episode(sampling, length, every, terminated):
    every = min(every, length)
    rows, initial = episode_weights(length, terminated, sampling)
    mean_rows, mean_initial = np.zeros_like(rows), np.zeros_like(initial)
    for offset in range(every):
        part = episode(1, length, terminated).every_nth(every, offset)
        numbers = [*steps(part), *([length] if terminated else [])]
        weights, states, start = kept_weights(part, sampling)
        mean_rows[numbers] += weights / every
        mean_initial[numbers] += states / every
        mean_initial[0] += start[0] / every
    assert_allclose(mean_rows, rows, atol=1e-12)
    assert_allclose(mean_initial, initial, atol=1e-12)


@pytest.mark.parametrize("sampling", EXACT)
@pytest.mark.parametrize("offset", range(4))
def test_the_flow_into_the_absorbing_state_is_exact_with_every_offset(sampling, offset):
    *_, entry, loop = kept_weights(episode(1, 11, True).every_nth(4, offset), sampling)[0]
    assert loop == pytest.approx(GAMMA * (entry + loop))


@pytest.mark.parametrize(
    ("sampling", "rows", "states", "start"),
    [
        # Steps 1, 4 and 5 of six; the last leads to the absorbing state, whose self-loop follows.
        (Sampling(GAMMA), [3, 3, 1, GAMMA / (1 - GAMMA)], [3, 3, 1, 0], GAMMA / (1 - GAMMA)),
        (Sampling(GAMMA, absorbing="single"), [3, 3, 1, 1], [3, 3, 1, 0], 0),
        (
            Sampling(GAMMA, scheme="geometric"),
            [3 * (1 - GAMMA**2), 3 * (1 - GAMMA**5), 1 - GAMMA**6, GAMMA * (1 - GAMMA**6) / (1 - GAMMA)],
            [3, 3, 1, 0],
            0,
        ),
        (
            Sampling(GAMMA, scheme="geometric", initial_states="starts"),
            [3 * (1 - GAMMA) * GAMMA, 3 * (1 - GAMMA) * GAMMA**4, (1 - GAMMA) * GAMMA**5, GAMMA**6],
            [0, 0, 0, 0],
            1,
        ),
    ],
)
def test_the_weights_of_a_part_have_their_closed_form(sampling, rows, states, start):
    found = kept_weights(episode(1, 6, True).every_nth(3, 1), sampling)
    for weights, expected in zip(found, (rows, states, [start]), strict=True):
        assert_allclose(weights, expected, atol=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_draws_come_in_proportion_to_the_weights(sampling):
    # A whole episode may stand beside parts.
    parts = [episode(1, 12).every_nth(5, 3), episode(2, 10, True).every_nth(4, 2), episode(3, 3, True)]
    rows = ExpertRows(Demos.from_episodes(parts, "parts"), SPEC, PLAIN, sampling)
    drawn, begun = rows.draw(np.random.default_rng(0), (DRAWS,))
    everything, states = rows.all(), rows.initial()
    for found, known, weight in ((drawn.obs, everything.obs, rows.weight), (begun.obs, states.obs, states.weight)):
        assert weight is not None
        for name in np.unique(known[:, 0]):  # 0 is the absorbing state
            expected = weight[known[:, 0] == name].sum()
            share, noise = (found[:, 0] == name).mean(), np.sqrt(expected * (1 - expected) / DRAWS)
            assert abs(share - expected) <= 5 * noise + 1e-12


def test_the_true_start_is_an_initial_state_though_it_is_no_row():
    parts = [episode(1, 12).every_nth(5, 3), episode(2, 10, True).every_nth(4, 2)]
    sampling = Sampling(GAMMA, initial_states="starts")
    rows = ExpertRows(Demos.from_episodes(parts, "parts"), SPEC, PLAIN, sampling)
    begun = rows.draw(np.random.default_rng(0), (100,))[1].obs
    assert {tuple(row) for row in begun.tolist()} == {(100, 0), (200, 0)}
    assert not np.isin(rows.all().obs[:, 0], [100, 200]).any()


def test_the_last_row_of_an_ended_task_leads_to_the_absorbing_state_and_no_other_does():
    demos = Demos.from_episodes([episode(1, 6, True).every_nth(4, 1), episode(2, 6).every_nth(4, 1)], "parts")
    rows = ExpertRows(demos, SPEC, PLAIN, Sampling(GAMMA)).all()
    assert_array_equal(rows.obs, [[101, 0], [105, 0], [0, 1], [201, 0], [205, 0]])
    assert_array_equal(rows.next_obs, [[102, 0], [0, 1], [0, 1], [202, 0], [206, 0]])


def test_a_seed_chooses_an_offset_for_each_episode():
    demos = Demos.from_episodes([episode(number, 10) for number in range(5)], "five")
    firsts = [[steps(part)[0] for part in demos.subsample(5, seed).episodes] for seed in range(40)]
    assert firsts[0] == [steps(part)[0] for part in demos.subsample(5, 0).episodes]
    assert all({row[number] for row in firsts} == set(range(5)) for number in range(5))
    assert any(len(set(row)) > 1 for row in firsts)


def test_the_expert_keeps_its_return_and_the_normaliser_sees_kept_rows_only():
    part = TWO.subsample(5, 0)
    assert (part.expert_return, part.every, TWO.every) == (11, 5, 1)
    assert [each.total_reward for each in part.episodes] == [None, None]
    kept = np.concatenate([each.observations for each in part.episodes])
    assert len(kept) == part.rows < 7
    assert_allclose(part.normalizer().mean, kept.mean(0))
    assert TWO.subsample(1, 0) is TWO


def test_steps_that_were_left_out_are_no_gaps_but_gaps_between_neighbours_are():
    assert inspect(TWO.subsample(3, 0)).findings == []
    jump = replace(episode(1, 5, True), next_observations=np.full((5, 1), 7.0))
    part = Demos.from_episodes([jump.every_nth(3, 0)], "jump")
    assert_array_equal(part.episodes[0].part.times, [0, 3, 4])  # pyright: ignore[reportOptionalMemberAccess]
    assert "after 1 row inside episodes, first row 1 of" in inspect(part).findings[0]


@pytest.mark.parametrize("every", [0, -1, 1.5, 11, np.nan, np.inf])
def test_an_impossible_number_is_refused(every):
    says = (
        f"`subsample` is {every}; it must be a whole number from 1 to 10, the steps of the shortest episode of two"
    )
    with pytest.raises(InputError, match=says):
        TWO.subsample(every, 0)


def test_what_cannot_be_done_to_a_part_is_refused(tmp_path):
    part = TWO.subsample(5, 0)
    with pytest.raises(InputError, match="two was subsampled already, to 1 step in 5; load it again"):
        part.subsample(2, 0)
    with pytest.raises(InputError, match="these hold 1 step in 5; save them whole, and give `subsample` when"):
        part.save(tmp_path / "part.npz")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="`seed` is -1"):
        TWO.subsample(5, -1)


def test_other_steps_have_another_fingerprint_even_if_the_rows_are_the_same():
    long, short = episode(1, 6, True), episode(1, 5, True)
    parts = [long.every_nth(3, 2), long.every_nth(4, 2), long.every_nth(3, 1), short.every_nth(3, 1)]
    assert [steps(part) for part in parts] == [[2, 5], [2, 5], [1, 4, 5], [1, 4]]
    prints = [Demos.from_episodes([part], "part").fingerprint() for part in [*parts, replace(parts[0], part=None)]]
    assert len(set(prints)) == 5
    assert prints[0] == Demos.from_episodes([long.every_nth(3, 2)], "again").fingerprint()


@pytest.mark.parametrize("given", [{}, {"episodes": 2, "seed": 4}, {"seed": 4}])
def test_loading_is_selecting_and_then_subsampling_and_the_origin_tells_how(given):
    demos = load_demos("pendulum", **given, subsample=20)
    settings: dict[str, Any] = {"episodes": None, "seed": 0} | given
    whole = load_demos("pendulum", **given)
    assert demos.fingerprint() == whole.subsample(20, settings["seed"]).fingerprint()
    assert demos.origin is not None
    assert (demos.origin.subsample, demos.origin.episodes, demos.origin.seed) == (20, *settings.values())
    assert [len(each) for each in demos.episodes] == [10] * len(demos)


def test_what_one_seed_cannot_tell_has_no_origin():
    assert load_demos("pendulum", 2, seed=4).subsample(20, 5).origin is None
    assert load_demos("pendulum", subsample=20).select(2, 0).origin is None
