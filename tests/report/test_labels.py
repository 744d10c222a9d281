"""Names of runs that no sweep has named."""

from __future__ import annotations

from typing import Any

from valuedice.report.labels import labelled
from valuedice.report.records import Run, contestants_of


def named(*settings: dict[str, Any], algorithm: str = "value-dice", task: str = "Hopper-v5") -> list[str]:
    """The contestants of runs with these settings."""
    runs = [Run("run", task, algorithm=algorithm, settings=each) for each in settings]
    return [run.contestant for run in labelled(runs)]


def test_runs_that_differ_in_nothing_are_named_by_their_algorithm():
    assert named({"lr": 1.0}, {"lr": 1.0}) == ["value-dice", "value-dice"]


def test_a_setting_that_differs_is_named():
    runs = [Run("r", "A", algorithm="value-dice", settings={"replay_regularization": a}) for a in (0.1, 0.5)]
    assert [run.contestant for run in labelled(runs)] == [
        "value-dice, replay_regularization 0.1",
        "value-dice, replay_regularization 0.5",
    ]
    assert labelled(runs)[1].title == "ValueDICE, replay_regularization 0.5"


def test_seeds_and_how_a_run_is_measured_make_no_contestant():
    settings = ({"seed": seed, "threads": seed, "eval_every": 10 * seed, "env": f"E{seed}"} for seed in range(3))
    assert set(named(*settings)) == {"value-dice"}


def test_a_preset_stands_for_all_that_it_changes():
    paper, default = {"lr": 1, "decay": 2, "preset": "paper"}, {"lr": 3, "decay": 4, "preset": "default"}
    assert named(paper, default, algorithm="bc") == ["bc, preset paper", "bc"]


def test_as_many_settings_are_named_as_it_takes():
    found = named({"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1})
    assert found == ["value-dice, a 1, b 1", "value-dice, a 1, b 2", "value-dice, a 2, b 1"]


def test_what_is_off_is_not_named():
    first, second = {"offline": True, "data": None}, {"offline": False, "data": "x.npz"}
    assert named(first, second) == ["value-dice, offline", "value-dice"]
    assert named({"hidden": [64, 64]}, {"hidden": [9]}) == ["value-dice, hidden 64 64", "value-dice, hidden 9"]


def test_a_setting_that_an_older_version_did_not_store_is_no_difference():
    assert named({"lr": 1.0}, {"lr": 1.0, "keep": "last"}) == ["value-dice", "value-dice"]


def test_other_demonstrations_of_other_tasks_are_no_difference():
    runs = [
        Run("r", task, algorithm="bc", settings={"demos": f"{task}.npz", "lr": lr})
        for task in ("Hopper-v5", "Ant-v5")
        for lr in (1, 2)
    ]
    assert {run.contestant for run in labelled(runs)} == {"bc, lr 1", "bc, lr 2"}


def test_other_demonstrations_of_one_task_are_a_difference_under_one_name_in_all_tasks():
    runs = [
        Run("r", task, algorithm="bc", settings={"demos": demos})
        for task in ("Hopper-v5", "Ant-v5")
        for demos in (f"random-{task}.npz", task.partition("-")[0].lower())
    ]
    assert [run.contestant for run in labelled(runs)] == ["bc, demos random-TASK.npz", "bc, demos task"] * 2


def test_the_names_of_a_sweep_stay():
    runs = [
        Run("r", "A", "ours", "Ours", "bc", settings={"lr": 1}),
        Run("s", "A", algorithm="bc", settings={"lr": 2}),
    ]
    assert [run.contestant for run in labelled(runs)] == ["ours", "bc"]


def test_contestants_are_ordered_as_the_paper_lists_them_and_shared_titles_are_not_used():
    runs = [
        Run("1", "A", "other", "Same", "mine"),
        Run("2", "A", "cloning", "Same", "bc"),
        Run("3", "A", "value-dice", "ValueDICE", "value-dice"),
    ]
    assert contestants_of(runs) == {"value-dice": "ValueDICE", "cloning": "cloning", "other": "other"}
