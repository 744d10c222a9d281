"""`kill -9` at any moment, again and again: the run ends as if nothing had happened, bit for bit."""

from __future__ import annotations

from dataclasses import asdict
from signal import SIGKILL, SIGSTOP

import pytest
from faults.harness import end_of, kill_series, options, plan_of, resumed
from resuming import same

from valuedice.algorithms import ALGORITHMS


@pytest.mark.parametrize("algorithm", ["value-dice", "gail"])
def test_a_run_killed_three_times_ends_as_if_it_had_not_been(algorithm, launcher, whole, tmp_path):
    reference = whole(algorithm, "quick")
    series = kill_series(
        launcher, algorithm, "quick", reference, tmp_path / "run", ["start", "write", "end"], seed=1
    )
    assert series.identical
    assert series.kills >= 2
    assert series.kept >= 1


SERIES = [
    *((algorithm, "cloning" if algorithm == "bc" else "online") for algorithm in ALGORITHMS),
    ("value-dice", "offline"),
    ("value-dice", "discrete"),
    ("sac", "expert"),
]


@pytest.mark.faults
@pytest.mark.parametrize(("algorithm", "task"), SERIES)
def test_a_run_killed_twenty_times_ends_as_if_it_had_not_been(algorithm, task, launcher, whole, report, tmp_path):
    # Some more than twenty, because quick runs win a race or two.
    plan = plan_of(24, seed=len(algorithm + task))
    series = kill_series(launcher, algorithm, task, whole(algorithm, task), tmp_path / "run", plan, seed=2)
    report["kills"].append(asdict(series))
    assert series.identical
    assert series.kills >= 20
    assert series.kept >= 15
    assert series.torn >= 4


def test_a_folder_is_refused_while_a_run_uses_it_and_free_when_that_was_killed(launcher, whole, tmp_path):
    out = tmp_path / "run"
    begun = [*options("value-dice", "quick"), "--out", str(out)]
    process = launcher.until_row(out, *begun)
    # It sleeps, so that it is still there when the others come.
    process.send_signal(SIGSTOP)
    for args, why in ((begun, "already holds a run"), (resumed(out), "another run is using")):
        ended = launcher.run(*args)
        assert ended.refused
        assert why in ended.said
    assert end_of(process, SIGKILL).code == -SIGKILL
    assert launcher.run(*resumed(out)).done
    assert same(out, whole("value-dice", "quick"))
