"""Statistics of a report: closed forms, and agreement with the package rliable."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from run_folders import finished_run

from valuedice.report.records import Regime, Run
from valuedice.report.statistics import (
    Estimate,
    Scores,
    aggregates,
    estimate,
    group_statistics,
    improvement,
    improvements,
    interquartile_mean,
    late_values,
    task_mean,
    weights_of,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from rliable import library, metrics

ONE = Regime(1, 1)
UNEQUAL = [np.array([0.0, 1, 2, 3]), np.array([10.0, 20])]
"""Four runs of one task and two of another."""


def strata(scores: Any) -> list[Scores]:
    """Columns of a matrix of runs and tasks, as rliable takes it."""
    return [np.asarray(column, np.float64) for column in scores.T]


def test_tasks_count_alike_however_many_runs_they_have():
    assert estimate(UNEQUAL, task_mean).value == (1.5 + 15) / 2


def test_the_interquartile_mean_drops_a_quarter_of_the_weight_at_each_end():
    one = [np.arange(8.0)]
    assert interquartile_mean(one[0], weights_of(one)) == np.mean([2, 3, 4, 5])
    # Of the first task the runs weigh 1/8, of the second 1/4: 0, 1 and 20 go.
    assert estimate(UNEQUAL, interquartile_mean).value == pytest.approx((2 / 8 + 3 / 8 + 10 / 4) / (1 / 2))


def test_the_interval_of_two_runs_is_that_of_a_coin():
    # A resample has the mean 0, ½ or 1, with probabilities ¼, ½ and ¼.
    assert estimate([np.array([0.0, 1.0])], task_mean) == Estimate(0.5, 0.0, 1.0)


def test_strata_are_resampled_apart():
    # Each task alone never varies; only a bootstrap over all runs would.
    assert estimate([np.zeros(3), np.ones(3)], task_mean) == Estimate(0.5, 0.5, 0.5)


def test_single_runs_have_no_interval():
    assert estimate([np.array([0.25]), np.array([0.75])], interquartile_mean) == Estimate(0.5, None, None)
    assert improvement([np.array([0.25])], [np.array([0.75])]) == Estimate(0.0, None, None)


def test_a_tie_is_half_an_improvement():
    assert improvement([np.array([1.0, 3])], [np.array([2.0, 3])]).value == (0 + 0 + 1 + 0.5) / 4


def test_an_improvement_and_its_opposite_add_up_to_one():
    ours, theirs = [np.array([1.0, 5, 2]), np.array([4.0])], [np.array([2.0, 3]), np.array([4.0, 1])]
    forth, back = improvement(ours, theirs).value, improvement(theirs, ours).value
    assert forth + back == pytest.approx(1)


MATRICES = st.tuples(st.integers(1, 6), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(-8, 8).map(float))
)


@given(MATRICES)
def test_means_are_those_of_rliable(scores):
    values, weights = np.concatenate(strata(scores)), weights_of(strata(scores))
    assert_allclose(task_mean(values, weights), metrics.aggregate_mean(scores), atol=1e-12)
    assert_allclose(interquartile_mean(values, weights), metrics.aggregate_iqm(scores), atol=1e-12)


@given(MATRICES, st.integers(1, 5), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_probabilities_of_improvement_are_those_of_rliable(scores, runs, random):
    other = np.array([[random.choice((-1.0, 0.0, 2.0)) for _ in range(scores.shape[1])] for _ in range(runs)])
    expected = metrics.probability_of_improvement(scores, other)
    assert_allclose(improvement(strata(scores), strata(other)).value, expected, atol=1e-12)


def test_intervals_are_those_of_rliable():
    generator = np.random.default_rng(7)
    ours, theirs = generator.normal(0.6, 0.3, (8, 3)), generator.normal(0.4, 0.3, (6, 3))
    np.random.seed(3)  # noqa: NPY002 (rliable draws from the global generator)
    known = library.get_interval_estimates(
        {"x": ours}, lambda x: np.array([metrics.aggregate_mean(x), metrics.aggregate_iqm(x)]), reps=2000
    )[1]["x"]
    found = [estimate(strata(ours), statistic) for statistic in (task_mean, interquartile_mean)]
    assert_allclose(np.array([e[1:] for e in found], float).T, known, atol=0.015)
    known = library.get_interval_estimates(
        {"pair": [ours, theirs]}, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=1000
    )[1]["pair"]
    assert_allclose(np.array(improvement(strata(ours), strata(theirs))[1:], float), known[:, 0], atol=0.03)


def runs_of_two_tasks() -> list[Run]:
    """The contestant `ours` has two tasks, `theirs` one of them."""
    ours = [finished_run("A", "ours", seed, 0.0, score) for seed, score in enumerate((0.5, 0.7))]
    ours += [finished_run("B", "ours", 0, 1.0)]
    return [*ours, finished_run("A", "theirs", 0, 0.6)]


def test_a_group_is_measured_at_its_last_evaluation():
    first = group_statistics(runs_of_two_tasks())[0]
    assert first.group == ("A", "ours", ONE)
    assert (first.runs, first.expert) == (2, 100.0)
    assert first.mean == pytest.approx(60)
    assert first.std == pytest.approx(10 * 2**0.5)
    assert first.normalized_mean == pytest.approx(0.6)


def test_one_run_has_no_deviation():
    assert [s.std for s in group_statistics(runs_of_two_tasks()) if s.runs == 1] == [None, None]


def test_late_is_the_mean_over_the_last_quarter():
    run = finished_run("A", "ours", 0, *range(8))
    assert list(late_values([run], "normalized_return")) == [6.5]
    assert list(late_values([finished_run("A", "ours", 0, 1.0, 5.0)], "normalized_return")) == [5.0]


def test_runs_that_are_not_finished_are_in_no_number():
    runs = [
        finished_run("A", "ours", 0, 0.5),
        finished_run("A", "ours", 1, 9.0, status="unfinished"),
        finished_run("A", "ours", 2, 9.0, status="failed"),
    ]
    assert [(s.runs, s.normalized_mean) for s in group_statistics(runs)] == [(1, 0.5)]
    assert [(a.runs, a.mean.value) for a in aggregates(runs)] == [(1, 0.5)]


def test_an_aggregate_says_on_how_many_tasks_and_runs_it_stands():
    found = {a.contestant: a for a in aggregates(runs_of_two_tasks())}
    assert (found["ours"].tasks, found["ours"].of_tasks, found["ours"].runs) == (2, 2, 3)
    assert (found["theirs"].tasks, found["theirs"].of_tasks, found["theirs"].runs) == (1, 2, 1)
    assert found["ours"].mean.value == pytest.approx((0.6 + 1.0) / 2)


def test_contestants_are_compared_on_the_tasks_that_both_have():
    forth = next(i for i in improvements(runs_of_two_tasks()) if i.contestant == "ours")
    assert (forth.tasks, forth.runs, forth.other_runs) == (1, 2, 1)
    assert forth.probability.value == 0.5


def test_numbers_of_different_amounts_of_data_are_kept_apart():
    runs = [finished_run("A", "ours", 0, 0.25), finished_run("A", "ours", 0, 0.75, episodes=10)]
    assert [(a.regime, a.mean.value) for a in aggregates(runs)] == [(ONE, 0.25), (Regime(10, 1), 0.75)]
    assert improvements(runs) == []
