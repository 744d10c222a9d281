"""`kill -9` at any moment, again and again: the run ends as if nothing had happened, bit for bit."""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL, SIGSTOP

import pytest
from conftest import Whole
from harness import Launcher, killed, options, rows, same, wait_until
from kills import Moment, Series, kill_series, plan_of

from valuedice.algorithms import ALGORITHMS

Report = list[Series]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_killed_three_times_ends_as_if_it_had_not_been(
    algorithm: str, launcher: Launcher, whole: Whole, report: Report, tmp_path: Path
):
    task = "quick-offline" if ALGORITHMS[algorithm].pace is None else "quick"
    moments: list[Moment] = ["start", "write", "end"]
    series = kill_series(launcher, algorithm, task, whole(algorithm, task), tmp_path / "run", moments, seed=1)
    report.append(series)
    assert series.identical
    assert series.kills >= 2
    assert series.kept >= 1


SERIES = [
    *((algorithm, "cloning" if kind.pace is None else "online") for algorithm, kind in ALGORITHMS.items()),
    ("value-dice", "offline"),
    ("value-dice", "discrete"),
    ("sac", "expert"),
]


@pytest.mark.faults
@pytest.mark.parametrize(("algorithm", "task"), SERIES)
def test_a_run_killed_twenty_times_ends_as_if_it_had_not_been(
    algorithm: str, task: str, launcher: Launcher, whole: Whole, report: Report, tmp_path: Path
):
    # Some more than twenty, since quick runs win a race or two.
    plan = plan_of(24, seed=len(algorithm + task))
    series = kill_series(launcher, algorithm, task, whole(algorithm, task), tmp_path / "run", plan, seed=2)
    report.append(series)
    assert series.identical
    assert series.kills >= 20
    assert series.kept >= 15
    assert series.torn >= 4


def test_a_folder_is_refused_while_a_run_uses_it_and_free_when_that_was_killed(
    launcher: Launcher, whole: Whole, tmp_path: Path
):
    reference, out = whole("value-dice", "quick"), tmp_path / "run"
    begun = [*options("value-dice", "quick"), "--out", str(out)]
    process = launcher.start("train", *begun)
    assert wait_until(process, lambda: rows(out) > 0)
    # It sleeps, so that it is still there when the others come.
    process.send_signal(SIGSTOP)
    for args, why in ((begun, "already holds a run"), (["--resume", str(out)], "another run is using")):
        ended = launcher.run("train", *args)
        assert ended.is_one_line()
        assert why in ended.said
    assert killed(process).code == -SIGKILL
    ended = launcher.run("train", "--resume", out)
    assert (ended.code, ended.said) == (0, "")
    assert same(out, reference)
