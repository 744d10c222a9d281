"""Reading run folders and sweep folders: labels, status, and damage."""

from __future__ import annotations

import json

import pytest
from run_folders import cell, config, metrics, write_run, write_sweep

from valuedice.errors import InputError
from valuedice.report.folders import read_run, read_sweep
from valuedice.report.records import Row


def test_a_finished_run_is_read_whole(tmp_path):
    rows = metrics([50.0, 80.0], kl_estimate=[None, 0.123456789])
    content = config("dac", seed=3, subsample=20, hyperparameters={"sac": {"critic_lr": 1e-3}})
    run = read_run(write_run(tmp_path / "run", content, rows), "run")
    assert (run.task, run.algorithm, run.seed, run.episodes, run.subsample) == ("Hopper-v5", "dac", 3, 1, 20)
    assert (run.status, run.error, run.seconds, run.versions) == ("finished", "", 5.0, {"valuedice": "0.2.0"})
    assert run.rows[1] == Row(2000, 2000, 5.0, 80.0, 1.0, 100.0, 0.8, 0.123457)
    assert run.rows[0].kl_estimate is None
    # Contained settings stand beside the others, and no path of the machine stays.
    assert run.settings["critic_lr"] == 1e-3
    assert run.settings["demos"] == "Hopper-v5.npz"
    assert "fingerprints" not in run.settings


def test_a_run_without_a_summary_is_unfinished(tmp_path):
    assert read_run(write_run(tmp_path, finished=False), "run").status == "unfinished"
    begun = read_run(write_run(tmp_path / "begun", rows=[], finished=False), "run")
    assert (begun.status, begun.rows, begun.seconds) == ("unfinished", (), None)


def test_a_failure_is_told_without_paths_of_the_machine(tmp_path):
    write_run(tmp_path, finished=False)
    failure = {"attempts": 2, "exit_code": 3, "error": "valuedice: diverged;\n see /home/me/runs/x-seed0"}
    (tmp_path / "failed.json").write_text(json.dumps(failure))
    run = read_run(tmp_path, "x-seed0")
    assert run.status == "failed"
    assert run.error == "valuedice: diverged; see x-seed0 (exit code 3, attempts 2)"
    assert len(run.rows) == 2


def test_a_run_may_fail_before_it_writes_anything_else(tmp_path):
    (tmp_path / "failed.json").write_text('{"error": "no memory"}')
    run = read_run(tmp_path, "x", read_sweep(write_sweep(tmp_path / "s", {"x": cell("a", "A")}))["x"])
    assert (run.status, run.error, run.task, run.contestant) == ("failed", "no memory", "Hopper-v5", "a")


def test_a_later_summary_counts_more_than_an_earlier_failure(tmp_path):
    write_run(tmp_path)
    (tmp_path / "failed.json").write_text('{"error": "once"}')
    assert read_run(tmp_path, "run").status == "finished"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", "{", "cannot be read"),
        ("config.json", "[" * 100_000, "cannot be read"),
        ("config.json", "[]", "holds no JSON object"),
        ("config.json", "{}", "has unexpected content ('algorithm')"),
        ("config.json", '{"algorithm": ""}', "'' is not a name"),
        ("config.json", '{"algorithm": "bc", "seed": "one"}', "'one' is not a whole number"),
        ("config.json", '{"algorithm": "bc", "command": 3}', "has unexpected content"),
        ("metrics.csv", "", "it is empty"),
        ("metrics.csv", "step,updates\n1,x\n", "invalid literal"),
        ("metrics.csv", "step,updates,return_mean\n1,2\n", "line 2 has 2 cells, not 3"),
        ("metrics.csv", "return_mean\n1\n", "it lacks the column 'step'"),
        ("metrics.csv", 'step,updates\n1,"2\n', "unexpected end of data"),
        ("metrics.csv", b"step,updates\n1,\xff\n", "can't decode byte"),
        ("metrics.csv", "step,updates\n", "no evaluations"),
        ("summary.json", "", "cannot be read"),
    ],
)
def test_a_damaged_file_makes_a_failed_run(tmp_path, name, content, reason):
    folder = write_run(tmp_path / "run")
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    run = read_run(folder, "run")
    assert (run.status, run.rows) == ("failed", ())
    assert reason in run.error
    assert str(tmp_path) not in run.error


def test_what_is_not_a_number_was_not_measured(tmp_path):
    run = read_run(write_run(tmp_path, rows=metrics([1.0], kl_estimate=[float("inf")])), "run")
    assert run.rows[0].kl_estimate is None


def test_a_sweep_names_its_runs(tmp_path):
    cells = {"a-0": cell("fast", "Fast one", seed=4, episodes=10, subsample=20, settings={"steps": 5})}
    entry = read_sweep(write_sweep(tmp_path, cells))["a-0"]
    write_run(tmp_path / "a-0", config("bc", seed=4))
    run = read_run(tmp_path / "a-0", "a-0", entry)
    assert (run.contestant, run.title, run.seed, run.episodes, run.subsample) == ("fast", "Fast one", 4, 10, 20)
    assert (run.algorithm, run.settings["preset"]) == ("bc", "paper")


def test_a_cell_without_a_folder_is_waiting(tmp_path):
    entry = read_sweep(write_sweep(tmp_path, {"a-0": cell("fast", "Fast", settings={"steps": 5})}))["a-0"]
    run = read_run(tmp_path / "a-0", "a-0", entry)
    assert (run.status, run.task, run.settings) == ("waiting", "Hopper-v5", {"preset": "paper", "steps": 5})


@pytest.mark.parametrize(
    "content",
    ["{", "{}", '{"cells": 3}', '{"cells": {"a": {}}}', '{"cells": {"a": {"task": 1, "contestant": "x"}}}'],
)
def test_a_damaged_sweep_is_refused(tmp_path, content):
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(InputError, match=r"sweep\.json.*is .* a sweep folder\?"):
        read_sweep(tmp_path)


COMMON = {"eval_env": "Hopper-v5", "demos": "Hopper-v5.npz", "episodes": 1, "seed": 0, "eval_every": 1000}
FORMAT_1 = {"format": 1, "algorithm": "value-dice", "nu_lr": 0.5, "env": None, "steps": 0, "updates": 40_000}
FORMAT_3 = {"format": 3, "algorithm": "dac", "sac": {"critic_lr": 0.5}, "env": "Hopper-v5", "steps": 20_000} | {
    "updates": None,
    "demos_fingerprint": "2a61a95e9c9953dc",
    "threads": 1,
    "command": {"env": "Hopper-v5", "preset": "default"},
}


@pytest.mark.parametrize(
    ("content", "offline", "setting"), [(FORMAT_1, True, "nu_lr"), (FORMAT_3, False, "critic_lr")], ids=["1", "3"]
)
def test_runs_of_older_formats_are_read(tmp_path, content, offline, setting):
    run = read_run(write_run(tmp_path, content | COMMON), "old")
    assert (run.status, run.error, run.task) == ("finished", "", "Hopper-v5")
    assert run.algorithm == content["algorithm"]
    assert run.settings["offline"] is offline
    assert run.settings[setting] == 0.5
