"""The report on demonstrations: statistics of hand-built arrays, and findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from valuedice.demos import Demos, Episode
from valuedice.demos.inspect import format_report, inspect
from valuedice.types import Spec


def demos_of(actions: Any, rewards: bool = True, **options: Any) -> Demos:
    """Two episodes, of 3 and 1 steps; the first feature counts, the second is constant."""
    path = np.array([[0, 7], [1, 7], [2, 7], [3, 7]], np.float32)
    actions = np.asarray(actions)
    first = Episode(path[:-1], actions[:3], path[1:], np.array([1, 2, 3]) if rewards else None, True)
    second = Episode(path[:1], actions[3:], path[1:2], np.array([2]) if rewards else None, False)
    return Demos.from_episodes([first, second], "hand-built", **options)


def one_episode(observations: np.ndarray, actions: np.ndarray, next_observations: np.ndarray) -> Demos:
    return Demos.from_episodes([Episode(observations, actions, next_observations)], "one")


ACTIONS = [[1.0, 0.5], [-1.0, 0.25], [0.0, 0.0], [0.5, 1.0]]


def test_statistics_are_those_of_the_arrays():
    report = inspect(demos_of(ACTIONS))
    assert (report.episodes, report.rows, report.terminated, report.time_limit) == (2, 4, 1, 1)
    assert (report.lengths.min, report.lengths.mean, report.lengths.max) == (1, 2, 3)
    assert report.returns is not None
    assert (report.returns.mean, report.returns.std) == (4, 2)
    assert (report.returns.min, report.returns.max) == (2, 6)
    assert report.constant == (1,)
    counter = report.observations[0]
    assert (counter.min, counter.mean, counter.max) == (0, 0.75, 2)
    assert counter.std == pytest.approx(np.sqrt(0.6875))
    assert (report.actions[0].min, report.actions[1].max) == (-1, 1)
    assert report.findings == []


def test_without_rewards_returns_are_none():
    report = inspect(demos_of(ACTIONS, rewards=False))
    assert report.returns is None
    assert "not recorded" in format_report(report)


TENTHS = [[0.4], [0.0], [-0.4], [0.1]]


@pytest.mark.parametrize(
    ("actions", "spec", "share", "bounds"),
    [
        (ACTIONS, None, 3 / 8, "[-1, 1]"),
        ([[2.0], [0.0], [1.0], [2.0]], None, 3 / 4, "the data's own range"),
        # 0.4 is not representable: float32 rounds it up, and it still is at the bound.
        (TENTHS, Spec(2, 1, low=(-0.4,), high=(0.4,)), 1 / 2, "the environment's"),
        (TENTHS, Spec(2, 3, low=(-0.4,) * 3, high=(0.4,) * 3), 0, "[-1, 1]"),
    ],
)
def test_the_share_at_the_bound_uses_the_tasks_bounds_or_unit_bounds_or_the_range(actions, spec, share, bounds):
    report = inspect(demos_of(actions), spec)
    assert (report.at_bound, report.bounds) == (share, bounds)


def test_discrete_actions_are_counted():
    report = inspect(demos_of([0, 2, 2, 2]))
    assert (report.action_counts, report.actions, report.at_bound) == ((1, 0, 3), (), None)
    assert "times taken" in format_report(report)


def test_gaps_inside_an_episode_are_a_finding_with_their_first_place():
    states = np.array([[0], [1], [5], [6]], np.float32)
    broken = Episode(states, np.zeros((4, 1)), states + 1)
    whole = Episode(states[:2], np.zeros((2, 1)), states[:2] + 1)
    assert inspect(Demos.from_episodes([whole, broken], "gap")).findings == [
        "gaps: s′ differs from the next s after 1 row inside episodes, first row 1 of episode 1; "
        "the largest difference is 3"
    ]


def test_non_finite_entries_are_a_finding_and_left_out_of_the_statistics():
    actions = [[1.0, 0.5], [np.nan, 0.25], [0.0, -np.inf], [0.5, np.inf]]
    report = inspect(demos_of(actions, check=False))
    assert report.findings == ["actions: 3 non-finite entries, first NaN at row 1, column 0 of episode 0"]
    assert report.actions[0].mean == 0.5
    assert "NaN at row 1" in format_report(report)


def test_infinities_of_both_signs_are_reported_without_a_warning():
    states = np.array([[np.inf], [-np.inf], [np.nan]])
    bad = Episode(states, np.full((3, 1), np.nan), states, np.array([np.inf, -np.inf, 0]))
    report = inspect(Demos.from_episodes([bad], "bad", check=False))
    names = [finding.partition(":")[0] for finding in report.findings]
    assert names == ["observations", "actions", "next_observations", "rewards"]
    assert format_report(report)


def test_the_text_fits_a_hundred_columns_and_sums_up_many_dimensions():
    states = np.random.default_rng(0).normal(size=(5, 200)) * 1e-30
    states[:, ::3] = 1234.5678
    text = format_report(inspect(one_episode(states, np.zeros((5, 40)), states)))
    assert max(map(len, text.splitlines())) <= 100
    assert "30 to 199 together" in text
    assert "30 to 39 together" in text


def test_runs_of_constant_features_are_shortened():
    states = np.arange(5.0)[:, None] * np.array([1, 0, 0, 0, 1, 0])
    assert "4 of 6 features: 1-3, 5" in format_report(inspect(one_episode(states, np.zeros((5, 1)), states)))
