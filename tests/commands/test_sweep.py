"""`valuedice sweep`: the grid, its estimate, its status, and bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commanding import pendulum
from sweeping import SUITE, suite

from valuedice.sweep.plan import About, checked_data, write_sweep
from valuedice.sweep.store import FolderStore
from valuedice.sweep.suite import load_suite, shipped_suites

pytestmark = pytest.mark.usefixtures("own_folder")


def test_a_dry_run_shows_the_grid_and_the_hours_and_runs_nothing(run):
    path = suite(Path())
    result = run("sweep", path, "--seeds", "0-2", "--steps", 2000, "--jobs", 2, "--dry-run")
    assert result.code == 0
    assert result.out.count("value-dice-seed") == 3
    assert "steps 2000" in result.out
    assert re.search(r"3 runs, \d+\.\d core hours: about \d+ (s|min) with 2 at once here", result.out)
    assert [entry.name for entry in Path().iterdir()] == ["small.toml"]


def test_only_some_of_the_runs_can_be_asked_for(run, refused):
    path = suite(Path())
    result = run("sweep", path, "--only", "*seed1", "--dry-run")
    assert result.out.count("-seed") == 1
    message = refused("sweep", path, "--only", "Ant*")
    assert "no run matches Ant*; their names look like CartPole-v1-2ep-value-dice-seed0" in message


@pytest.mark.parametrize("given", [(), ("{}",), ("x",), ("--help",)], ids=" ".join)
def test_the_command_of_the_sweep_itself_says_what_to_use_instead(refused, given):
    assert "use valuedice sweep" in refused("sweep-run", *given)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ((), "no suite given; name a .toml file, or one of: ablations"),
        (("paper-2",), "no suite 'paper-2'"),
        (("small.toml", "--seeds", "2-0"), "'2-0' is no range of seeds; write for example 0-2"),
        (("small.toml", "--jobs", "0"), "--jobs is 0; it must be at least 1"),
        (("small.toml", "--threads", "0"), "--threads is 0"),
        (("small.toml", "--threads", "1000"), "--threads is 1000, but this machine has"),
        (("small.toml", "--steps", "0"), "--steps is 0"),
        (("small.toml", "--steps", "5"), "5 steps end before the first update"),
        (("small.toml", "--demos", "nowhere"), "no demonstrations of CartPole-v1 in nowhere"),
        (("unshipped.toml",), "give a folder that holds Acrobot-v1.npz with --demos"),
        (("small.toml", "--jobs", "2", "--ray", "auto"), "--jobs is for this machine"),
        (("small.toml", "--out", "nowhere://x"), "cannot use nowhere://x"),
        (("small.toml", "--out", "small.toml"), "cannot write to"),
        (("small.toml", "--out", "file:///proc/x/y"), "cannot use file:///proc/x/y"),
        (("offline", "--demos", ".", "--steps", "5"), "no demonstrations of HalfCheetah-v5"),
        (("ring", "--steps", "5"), "no run of ring counts steps; omit --steps"),
        (("missing.toml",), "Nope-v0"),
        (("--status", "nowhere"), "nowhere does not exist"),
        (("--status", "."), ". holds no sweep that has begun"),
        (("--no-such-flag",), "unrecognized"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line(refused, args, reason):
    suite(Path())
    Path("missing.toml").write_text(SUITE.replace("[tasks.CartPole-v1]", "[tasks.Nope-v0]"))
    Path("unshipped.toml").write_text('tasks = ["Acrobot-v1"]\nseeds = "0"\n[contestants.bc]\n')
    assert reason.lower() in refused("sweep", *args).lower()


def test_a_changed_suite_is_refused_before_anything_is_written(run, refused):
    path = suite(Path())
    cells = load_suite(str(path)).cells()
    write_sweep(FolderStore(Path("out")), About("small", "", 1, checked_data(cells)), cells)
    assert json.loads(Path("out/sweep.json").read_text())["suite"] == "small"
    suite(Path(), SUITE.replace("batch_size = 16", "batch_size = 32"))
    message = refused("sweep", path, "--out", "out")
    assert "the suite has changed since" in message
    assert "batch_size was 16, now 32" in message


def test_demonstrations_that_are_damaged_or_of_another_task_are_refused_before_anything_runs(refused):
    path = suite(Path())
    Path("demos").mkdir()
    broken = pendulum()
    broken["observations"][2, 1] = float("nan")
    np.savez("demos/CartPole-v1.npz", **broken)
    assert "observations" in refused("sweep", path, "--demos", "demos")
    np.savez("demos/CartPole-v1.npz", **pendulum())
    assert "CartPole-v1" in refused("sweep", path, "--demos", "demos")


def test_a_damaged_status_is_one_line(refused):
    Path("out").mkdir()
    Path("out/status.json").write_text('{"runs": []}')
    assert "status.json has unexpected content" in refused("sweep", "--status", "out")


def test_the_help_names_every_shipped_suite(run):
    shown = " ".join(run("sweep", "--help").out.replace("│", " ").split())
    assert f"shipped: {', '.join(shipped_suites())}." in shown
