"""The report on demonstrations: numbers of hand-built arrays, and what counts as a finding."""

import numpy as np
import pytest

from valuedice.demos import Demos, Episode
from valuedice.demos.inspect import format_report, inspect
from valuedice.errors import InputError


def demos_of(actions, rewards=True, **options) -> Demos:
    """Two episodes, of 3 and 1 steps; the first feature counts, the second is constant."""
    path = np.array([[0, 7], [1, 7], [2, 7], [3, 7]], np.float32)
    actions = np.asarray(actions)
    first = Episode(path[:-1], actions[:3], path[1:], np.array([1, 2, 3]) if rewards else None, True)
    second = Episode(path[:1], actions[3:], path[1:2], np.array([2]) if rewards else None, False)
    return Demos.from_episodes([first, second], "hand-built", **options)


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


def test_share_at_the_bound_assumes_unit_bounds_when_the_actions_lie_in_them():
    report = inspect(demos_of(ACTIONS))
    assert report.at_bound == 3 / 8
    assert report.bounds == "[-1, 1]"


def test_share_at_the_bound_falls_back_to_the_range_of_the_data():
    report = inspect(demos_of([[2.0], [0.0], [1.0], [2.0]]))
    assert report.at_bound == 3 / 4
    assert "data" in report.bounds


def test_share_at_the_bound_uses_the_bounds_given():
    # 0.4 is not representable: float32 rounds it up, and it still is on the bound and not outside.
    report = inspect(demos_of([[0.4], [0.0], [-0.4], [0.1]]), low=-0.4, high=[0.4])
    assert report.at_bound == 1 / 2
    assert report.findings == []


def test_actions_out_of_the_given_bounds_are_a_finding():
    findings = inspect(demos_of(ACTIONS), low=[-0.5, -1], high=[1, 0.5]).findings
    assert findings == ["actions out of bounds: 2 entries, first -1 at row 1, column 0 of episode 0"]


def test_bounds_of_another_dimension_are_refused():
    with pytest.raises(InputError, match="2 dimensions, the bounds 3"):
        inspect(demos_of(ACTIONS), low=[0, 0, 0])


def test_discrete_actions_are_counted():
    report = inspect(demos_of([0, 2, 2, 2]))
    assert report.action_counts == (1, 0, 3)
    assert report.actions == ()
    assert report.at_bound is None
    assert "times taken" in format_report(report)


def test_discrete_actions_beyond_the_bounds_are_a_finding():
    findings = inspect(demos_of([0, 2, 1, 0]), low=0, high=1).findings
    assert findings == ["actions out of bounds: 1 entry, first 2 at row 1, column 0 of episode 0"]


def test_gaps_inside_an_episode_are_a_finding_with_their_first_place():
    states = np.array([[0], [1], [5], [6]], np.float32)
    broken = Episode(states, np.zeros((4, 1)), states + 1)
    whole = Episode(states[:2], np.zeros((2, 1)), states[:2] + 1)
    findings = inspect(Demos.from_episodes([whole, broken], "gap")).findings
    assert len(findings) == 1
    assert "after 1 row inside" in findings[0]
    assert "row 1 of episode 1" in findings[0]
    assert "difference is 3" in findings[0]


def test_what_is_not_finite_is_a_finding_and_left_out_of_the_statistics():
    actions = [[1.0, 0.5], [np.nan, 0.25], [0.0, -np.inf], [0.5, np.inf]]
    report = inspect(demos_of(actions, check=False))
    assert report.findings == [
        "actions: 3 entries that are no finite number, first NaN at row 1, column 0 of episode 0"
    ]
    assert report.actions[0].mean == 0.5
    assert "NaN at row 1" in format_report(report)


def test_infinities_of_both_signs_are_reported_without_a_warning():
    states = np.array([[np.inf], [-np.inf], [np.nan]])
    bad = Episode(states, np.full((3, 1), np.nan), states, np.array([np.inf, -np.inf, 0]))
    report = inspect(Demos.from_episodes([bad], "bad", check=False))
    assert [finding.split(":")[0] for finding in report.findings] == [
        "observations",
        "actions",
        "next_observations",
        "rewards",
    ]
    assert format_report(report)


def test_the_text_fits_a_hundred_columns_and_sums_up_many_dimensions():
    states = np.random.default_rng(0).normal(size=(5, 200)) * 1e-30
    states[:, ::3] = 1234.5678
    demos = Demos.from_episodes([Episode(states, np.zeros((5, 40)), states)], "wide")
    text = format_report(inspect(demos))
    assert max(map(len, text.splitlines())) <= 100
    assert "30 to 199 together" in text
    assert "30 to 39 together" in text


def test_runs_of_constant_features_are_shortened():
    states = np.arange(5.0)[:, None] * np.array([1, 0, 0, 0, 1, 0])
    demos = Demos.from_episodes([Episode(states, np.zeros((5, 1)), states)], "flat")
    assert "4 of 6 features: 1-3, 5" in format_report(inspect(demos))
