"""What a report finds: folders of every kind, URLs, and each run once."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import fsspec
import pytest
from run_folders import cell, config, finished_run, metrics, write_run, write_sweep

from valuedice.errors import InputError
from valuedice.report.collect import Collection, collect
from valuedice.report.compact import ROWS, RUNS
from valuedice.report.records import Run
from valuedice.report.write import write_report

RESULTS = Path(__file__).parent.parent.parent / "results"


def found(*sources: object) -> dict[str, Run]:
    """The runs of some sources by name."""
    return {run.name: run for run in collect([str(source) for source in sources]).runs}


def test_runs_are_found_at_any_depth_but_not_inside_runs(tmp_path):
    write_run(tmp_path / "a" / "b" / "run-0")
    write_run(tmp_path / "a" / "run-1", config(seed=1), metrics([1.0]))
    write_run(tmp_path / "a" / "run-1" / "checkpoint" / "inner")
    write_run(tmp_path / ".hidden" / "run-2")
    assert set(found(tmp_path)) == {"run-0", "run-1"}
    assert set(found(tmp_path / "a" / "run-1")) == {"run-1"}


def test_the_folder_one_stands_in_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(write_run(tmp_path / "here"))
    assert set(found(".")) == {"here"}


def test_a_sweep_folder_gives_its_cells_and_other_runs_beside_them(tmp_path):
    cells = {"x-0": cell("x", "X"), "x-1": cell("x", "X", seed=1)}
    write_run(write_sweep(tmp_path, cells) / "x-0")
    write_run(tmp_path / "stranger", config(seed=9), metrics([9.0]))
    runs = found(tmp_path)
    assert {name: (run.contestant, run.status) for name, run in runs.items()} == {
        "x-0": ("x", "finished"),
        "x-1": ("x", "waiting"),
        "stranger": ("value-dice", "finished"),
    }


def test_the_same_run_counts_once(tmp_path):
    run = write_run(tmp_path / "runs" / "run-0")
    shutil.copytree(run, tmp_path / "copy" / "renamed")
    assert set(found(tmp_path / "runs", tmp_path / "runs" / "run-0", tmp_path / "copy")) == {"run-0"}


def test_of_an_earlier_and_a_later_record_the_later_counts(tmp_path):
    early = write_run(tmp_path / "early" / "run-0", rows=metrics([1.0]), finished=False)
    late = write_run(tmp_path / "late" / "run-0", rows=metrics([1.0, 2.0]))
    for order in ((early, late), (late, early)):
        assert {name: (len(run.rows), run.status) for name, run in found(*order).items()} == {
            "run-0": (2, "finished")
        }


def test_different_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
    write_run(tmp_path / "one" / "run-0", rows=metrics([1.0]))
    write_run(tmp_path / "two" / "run-0", config(seed=1), metrics([2.0]))
    assert set(found(tmp_path)) == {"one/run-0", "two/run-0"}


def test_different_runs_with_the_same_labels_and_seed_both_count_with_a_note(tmp_path):
    write_run(tmp_path / "one", rows=metrics([1.0]))
    write_run(tmp_path / "two", rows=metrics([2.0]))
    collection = collect([str(tmp_path)])
    assert len(collection.runs) == 2
    assert collection.notes == ("2 different runs have the same labels and seed, and all of them count: one, two",)


def test_different_settings_under_one_name_are_noted(tmp_path):
    cells = {f"x-{seed}": cell("x", "X", seed) for seed in range(2)}
    folder = write_sweep(tmp_path, cells)
    for seed, rate in enumerate((0.1, 0.2)):
        write_run(folder / f"x-{seed}", config(seed=seed, hyperparameters={"lr": rate}), metrics([5.0 + seed]))
    assert collect([str(tmp_path)]).notes == ("runs that count as x have different settings: lr",)
    assert [run.name for run in collect([str(folder / "x-0"), str(folder / "x-1")]).runs] == ["x-0", "x-1"]
    assert collect([str(folder / "x-0"), str(folder / "x-1")]).notes == ()


def test_sweeps_with_equal_cells_and_different_data_are_kept_apart(tmp_path):
    for episodes in (1, 10):
        folder = write_sweep(tmp_path / f"of-{episodes}", {"x-0": cell("x", "X", episodes=episodes)})
        write_run(folder / "x-0", config(episodes=episodes), metrics([5.0]))
    runs = found(tmp_path)
    assert {name: run.episodes for name, run in runs.items()} == {"of-1/x-0": 1, "of-10/x-0": 10}


def test_one_damaged_run_does_not_stop_the_others(tmp_path):
    write_run(tmp_path / "good")
    (write_run(tmp_path / "bad") / "config.json").write_text("{")
    runs = found(tmp_path)
    assert (runs["bad"].status, runs["good"].status) == ("failed", "finished")


@pytest.mark.parametrize("file", ["config.json", "metrics.csv"])
def test_nothing_but_a_damaged_run_is_refused(tmp_path, file):
    (write_run(tmp_path / "bad") / file).write_text("{")
    with pytest.raises(InputError, match=f"no run can be shown; bad failed: {file} "):
        collect([str(tmp_path)])


def test_places_without_runs_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    for source, reason in (("", "no runs in"), ("nowhere", "no folder"), ("notes.txt", "is a file")):
        with pytest.raises(InputError, match=reason):
            collect([str(tmp_path / source)])


def test_an_earlier_report_is_a_source_only_if_it_is_named(tmp_path):
    out = tmp_path / "report"
    write_run(tmp_path / "run-0", rows=metrics([1.0]), finished=False)
    write_report([str(tmp_path)], out, ("csv",))
    write_run(tmp_path / "run-0", rows=metrics([7.0]))
    assert [run.rows[0].return_mean for run in collect([str(tmp_path)], out).runs] == [7.0]
    assert [run.rows[0].return_mean for run in collect([str(out)], out).runs] == [1.0]
    assert collect([str(out / ROWS)]) == collect([str(out / RUNS)]) == collect([str(out)])


def test_a_ring_folder_gives_pictures_numbers_and_a_curve():
    collection = collect([str(RESULTS / "ring")])
    (run,), (ring,) = collection.runs, collection.rings
    study = json.loads((RESULTS / "ring" / "ring.json").read_text())
    assert (run.task, run.contestant, run.status) == ("Ring", "ValueDICE, exact", "finished")
    assert [row.updates for row in run.rows] == [updates for updates, _ in study["stochastic"]["kl"]]
    assert run.rows[0].kl_estimate == pytest.approx(study["stochastic"]["kl"][0][1], rel=1e-5)
    assert [content[:4] for _, content in ring.pictures] == [b"\x89PNG"] * 2
    assert ring.table[0][:2] == ("fixed replay", "of itself")
    assert all(len(line) == len(ring.table[0]) for line in ring.table)


def test_a_damaged_ring_is_a_failed_run(tmp_path):
    write_run(tmp_path / "good")
    (tmp_path / "ring").mkdir()
    (tmp_path / "ring" / "ring.json").write_text('{"stochastic": {}}')
    assert found(tmp_path)["ring"].error == "ring.json has unexpected content ('kl')"


@pytest.fixture
def stored(tmp_path) -> Path:
    """A sweep and a report, the latter in the folder `rows`."""
    write_run(write_sweep(tmp_path / "sweep", {"x-0": cell("x", "X")}) / "x-0")
    write_report([str(tmp_path / "sweep")], tmp_path / "rows", ("csv",))
    return tmp_path


def test_a_store_is_read_by_its_address(stored):
    local = collect([str(stored / "sweep")])
    assert collect([f"file://{stored}/sweep"]) == local
    memory = fsspec.filesystem("memory")
    memory.put(str(stored), "/bucket", recursive=True)
    assert collect(["memory://bucket/sweep/"]) == local
    assert collect(["memory://bucket/rows"]) == collect(["memory://bucket/rows/rows.csv"]) == local
    assert collect(["memory://bucket/sweep/x-0"]).runs[0].name == "x-0"


def test_a_store_that_cannot_be_read_is_refused_in_one_line(monkeypatch):
    with pytest.raises(InputError, match=r"cannot use nothing://x/y \(Protocol not known"):
        collect(["nothing://x/y"])
    with pytest.raises(InputError, match="no runs in memory://empty/place"):
        collect(["memory://empty/place"])
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError, match="pip install fsspec"):
        collect(["memory://bucket/sweep"])


def test_a_collection_holds_only_what_is_given():
    assert Collection((finished_run("A", "c", 0, 1.0),)).notes == ()
