"""Curves: means over runs, where all of them have been."""

from __future__ import annotations

import numpy as np
import pytest
from run_folders import finished_run

from valuedice.report.curves import curve, panels_of
from valuedice.report.records import Regime, Row, Run


def measured(*points: tuple[int, float | None]) -> Run:
    """A run with a return at some steps."""
    return Run("run", "A", "c", rows=tuple(Row(step, step, return_mean=value) for step, value in points))


def test_a_curve_is_the_mean_with_the_sample_deviation():
    found = curve([measured((10, 1.0), (20, 5.0)), measured((10, 3.0), (20, 5.0))], "return_mean", "step")
    assert found is not None
    assert (found.x.tolist(), found.mean.tolist(), found.runs) == ([10, 20], [2, 5], 2)
    assert found.std is not None
    np.testing.assert_allclose(found.std, [2**0.5, 0])


def test_one_run_has_no_deviation():
    found = curve([measured((10, 1.0))], "return_mean", "step")
    assert found is not None
    assert found.std is None


def test_a_curve_ends_with_its_shortest_run():
    found = curve(
        [measured((10, 1.0), (20, 2.0), (30, 3.0)), measured((10, 3.0), (20, 4.0))], "return_mean", "step"
    )
    assert found is not None
    assert found.x.tolist() == [10, 20]


def test_runs_that_are_measured_at_other_moments_are_interpolated():
    found = curve([measured((0, 0.0), (20, 20.0)), measured((0, 0.0), (10, 0.0), (20, 0.0))], "return_mean", "step")
    assert found is not None
    assert (found.x.tolist(), found.mean.tolist()) == ([0, 10, 20], [0, 5, 10])


def test_what_was_not_measured_makes_no_curve():
    assert curve([measured((10, None))], "return_mean", "step") is None
    assert curve([measured((10, 1.0)), measured((20, 1.0))], "return_mean", "step") is None


def test_a_contestant_without_steps_is_a_level_where_others_take_steps():
    cloning = Run("b", "A", "bc", algorithm="bc", episodes=1, rows=(Row(0, 10, return_mean=7.0),))
    (panel,) = panels_of([finished_run("A", "dac", 0, 0.5), cloning])
    assert panel.axis == "step"
    assert (panel.task, panel.regime, panel.expert) == ("A", Regime(1, 1), 100.0)
    assert [(line.contestant, list(line.curves), line.levels) for line in panel.lines] == [
        ("dac", ["return_mean", "normalized_return"], {}),
        ("bc", [], {"return_mean": (7.0, None)}),
    ]


def test_where_nobody_takes_steps_updates_are_counted():
    rows = (Row(0, 10, return_mean=7.0), Row(0, 20, return_mean=8.0))
    (panel,) = panels_of([Run("b", "A", "bc", rows=rows)])
    assert panel.axis == "updates"
    assert panel.lines[0].curves["return_mean"].x.tolist() == [10, 20]


@pytest.mark.parametrize(("others", "means"), [(("finished",), [0.2, 0.4]), (("unfinished", "failed"), [0.1, 0.3])])
def test_unfinished_runs_are_drawn_only_until_one_is_finished(others, means):
    runs = [finished_run("A", "c", 0, 0.1, 0.3, status="unfinished")]
    runs += [finished_run("A", "c", 1, 0.2, 0.4, status="finished")] if others[0] == "finished" else []
    runs += [finished_run("A", "c", 2, 9.0, 9.0, status="failed")]
    (panel,) = panels_of(runs)
    assert panel.lines[0].finished is (others[0] == "finished")
    assert panel.lines[0].curves["normalized_return"].mean.tolist() == means


def test_a_task_with_failed_runs_alone_has_no_panel():
    assert panels_of([finished_run("A", "c", 0, 1.0, status="failed")]) == []
