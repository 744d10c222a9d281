"""Sweeps on this machine, as processes: killed, stopped, failing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from sweeping import RUNS, SUITE, begin, finish, has_rows, kill, processes, same_runs, suite, wait_for

from valuedice.cli import main

pytestmark = pytest.mark.slow


def test_a_sweep_that_is_killed_with_all_its_runs_goes_on_exactly(tmp_path, undisturbed):
    args = ["sweep", suite(tmp_path), "--out", tmp_path / "out", "--jobs", 2]
    process = begin(*args)
    wait_for(lambda: has_rows(tmp_path / "out" / RUNS[0]))
    kill(str(tmp_path))
    process.communicate()
    assert not (tmp_path / "out" / RUNS[0] / "summary.json").exists()
    finish(begin(*args))
    assert same_runs(tmp_path / "out", undisturbed)


def test_runs_save_and_end_when_the_process_that_started_them_dies(tmp_path):
    process = begin("sweep", suite(tmp_path), "--out", tmp_path / "out", "--jobs", 1)
    run = tmp_path / "out" / RUNS[0]
    wait_for(lambda: has_rows(run))
    process.kill()
    process.communicate()
    wait_for(lambda: not processes(str(tmp_path)))
    assert "continue with" in (run / "log.txt").read_text()


def test_ctrl_c_stops_all_runs_and_the_same_command_goes_on_exactly(tmp_path, undisturbed):
    args = ["sweep", suite(tmp_path), "--out", tmp_path / "out", "--jobs", 2]
    process = begin(*args)
    wait_for(lambda: has_rows(tmp_path / "out" / RUNS[0]))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130
    assert f"continue with: valuedice sweep {args[1]}" in said.splitlines()[-1]
    assert not processes(str(tmp_path))
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["over"]
    assert status["runs"][RUNS[0]]["state"] == "stopped"
    finish(begin(*args))
    assert same_runs(tmp_path / "out", undisturbed)


def test_a_failed_run_is_tried_again_once_and_the_others_go_on(tmp_path, undisturbed, capsys):
    diverging = "[contestants.diverging]\nalgorithm = 'bc'\nunits = 'relu'\nlr = 1e30\nupdates = 400\n"
    args = ["sweep", suite(tmp_path, SUITE + diverging), "--out", tmp_path / "out"]
    process = begin(*args, "--jobs", 1, "--only", "*diverging-seed0", "*value-dice-seed0")
    said, _ = process.communicate()
    assert process.returncode == 1
    failed = json.loads((tmp_path / "out" / "CartPole-v1-2ep-diverging-seed0" / "failed.json").read_text())
    assert (failed["attempts"], failed["exit_code"]) == (2, 3)
    assert "diverged" in failed["error"]
    assert said.count("diverging-seed0: tried again") == 1
    assert "failed: CartPole-v1-2ep-diverging-seed0: Training diverged" in said
    assert "1 of 2 runs are finished" in said
    assert main(["sweep", "--status", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "failed" in shown
    assert "the sweep has ended" in shown


def test_each_run_stays_on_a_core_of_its_own(tmp_path):
    available = sorted(os.sched_getaffinity(0))
    process = begin("sweep", suite(tmp_path), "--out", tmp_path / "out", "--jobs", min(2, len(available)))
    places: list[set[int]] = []

    def pinned() -> bool:
        with suppress(ProcessLookupError):
            runs = [number for number in processes(str(tmp_path)) if number != process.pid]
            places[:] = [os.sched_getaffinity(number) for number in runs]
        return len(places) == min(2, len(available)) and all(len(place) == 1 for place in places)

    wait_for(pinned)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143
    assert len({*map(tuple, places)}) == len(places)


def test_a_second_sweep_in_the_same_folder_is_refused(tmp_path):
    args = ["sweep", suite(tmp_path), "--out", tmp_path / "out", "--jobs", 1]
    process = begin(*args)
    wait_for(lambda: (tmp_path / "out" / "status.json").exists())
    second = subprocess.run(
        [sys.executable, "-m", "valuedice.cli", *map(str, args)], capture_output=True, text=True, check=False
    )
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert second.returncode == 2
    assert "another run is using" in second.stderr


def test_a_run_that_is_stopped_alone_goes_on_exactly(tmp_path, undisturbed):
    process = begin("sweep", suite(tmp_path), "--out", tmp_path / "out", "--jobs", 1)
    wait_for(lambda: has_rows(tmp_path / "out" / RUNS[0]))
    [run] = [number for number in processes(str(tmp_path)) if number != process.pid]
    os.kill(run, signal.SIGTERM)
    assert f"{RUNS[0]}: will be tried again" in finish(process)
    assert same_runs(tmp_path / "out", undisturbed)


def test_a_longer_sweep_that_is_stopped_is_not_finished_and_goes_on_exactly(tmp_path, undisturbed):
    short = suite(tmp_path, SUITE.replace("steps = 1500", "steps = 200"))
    finish(begin("sweep", short, "--out", tmp_path / "out", "--jobs", 2))
    args = ["sweep", suite(tmp_path), "--out", tmp_path / "out", "--jobs", 2, "--extend"]
    process = begin(*args)
    wait_for(lambda: has_rows(tmp_path / "out" / RUNS[0], 4))
    process.send_signal(signal.SIGINT)
    process.communicate()
    finish(begin(*args))
    assert same_runs(tmp_path / "out", undisturbed)
