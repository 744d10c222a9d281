"""What a sweep knows of its runs, and how a sweep that has begun may change."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from valuedice.errors import InputError
from valuedice.sweep.board import Board
from valuedice.sweep.cell import Cell
from valuedice.sweep.loop import ATTEMPTS, LOSSES, settle
from valuedice.sweep.plan import About, planned, write_sweep
from valuedice.sweep.store import FolderStore
from valuedice.sweep.table import clock, footer, status
from valuedice.sweep.worker import Outcome

CELL = Cell("CartPole-v1", "bc", "BC", "bc", "default", 1, 1, 0, {"demos": "cartpole", "updates": 100})

UNKNOWN = json.dumps(
    {"format": 1, "suite": "small", "description": "", "threads": 1, "data": {}, "cells": {"x": {}}}
)
ABOUT = About("small", "Small", 1, {"CartPole-v1": "hash"})


@pytest.fixture
def store(tmp_path) -> FolderStore:
    return FolderStore(tmp_path)


def begun(store: FolderStore, *cells: Cell) -> None:
    write_sweep(store, ABOUT, list(cells))


def test_a_sweep_goes_on_with_the_cells_that_it_began_with(store):
    begun(store, CELL)
    moved = replace(CELL, settings=CELL.settings | {"demos": "elsewhere.npz"})
    assert planned(store, "out", ABOUT, [moved], extend=False) == [moved]


def test_a_changed_cell_is_refused_with_what_changed(store):
    begun(store, CELL)
    changed = replace(CELL, settings=CELL.settings | {"lr": 0.5})
    for extend in (False, True):
        with pytest.raises(
            InputError, match=r"CartPole-v1-1ep-bc-seed0: lr was None, now 0.5; choose another `out`"
        ):
            planned(store, "out", ABOUT, [changed], extend)


def test_new_cells_and_longer_runs_need_extend(store):
    begun(store, CELL)
    longer = replace(CELL, settings=CELL.settings | {"updates": 200})
    new = replace(CELL, seed=1)
    with pytest.raises(InputError, match=r"updates was 100, now 200; CartPole-v1-1ep-bc-seed1 is new; .*`extend`"):
        planned(store, "out", ABOUT, [longer, new], extend=False)
    assert planned(store, "out", ABOUT, [longer, new], extend=True) == [longer, new]


def test_a_shorter_run_is_refused(store):
    begun(store, CELL)
    shorter = replace(CELL, settings=CELL.settings | {"updates": 50})
    with pytest.raises(InputError, match="updates was 100, now 50"):
        planned(store, "out", ABOUT, [shorter], extend=True)


def test_cells_that_are_gone_stay_in_an_extended_sweep(store):
    begun(store, CELL)
    new = replace(CELL, seed=1)
    with pytest.raises(InputError, match="CartPole-v1-1ep-bc-seed0 is gone"):
        planned(store, "out", ABOUT, [new], extend=False)
    assert planned(store, "out", ABOUT, [new], extend=True) == [CELL, new]


def test_the_folder_of_another_suite_is_refused(store):
    begun(store, CELL)
    with pytest.raises(InputError, match="holds a sweep of 'small', not of 'other'"):
        planned(store, "out", replace(ABOUT, suite="other"), [CELL], extend=True)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1, "cells": []}', '{"format": 2}', "[" * 100_000, UNKNOWN]
)
def test_a_damaged_file_is_refused(store, text):
    store.write("sweep.json", text)
    with pytest.raises(InputError, match="choose another `out`"):
        planned(store, "out", ABOUT, [CELL], extend=False)


def test_a_finished_run_is_skipped_unless_it_must_become_longer(store):
    store.write(f"{CELL.name}/config.json", json.dumps({"offline": True, "updates": 100}))
    last = {"wall_seconds": 50.0, "return_mean": 400.0, "normalized_return": 0.8}
    store.write(f"{CELL.name}/summary.json", json.dumps({"last": last}))
    entry = Board(store, [CELL]).entries[CELL.name]
    assert (entry.state, entry.result, entry.rate) == ("finished", "400 (0.80)", 2.0)
    longer = replace(CELL, settings=CELL.settings | {"updates": 200})
    entry = Board(store, [longer]).entries[CELL.name]
    assert (entry.state, entry.done, entry.total) == ("waiting", 100, 200)


def test_the_time_left_is_that_of_runs_of_the_same_contestant(store):
    quick, slow = (replace(CELL, contestant=name) for name in ("quick", "slow"))
    cells = [replace(cell, seed=seed) for cell in (quick, slow) for seed in (0, 1)]
    board = Board(store, cells)
    assert board.remaining(1) is None
    for cell, rate in ((quick, 10.0), (slow, 1.0)):
        board.entries[cell.name].state, board.entries[cell.name].rate = "finished", rate
    assert board.remaining(1) == 100 / 10 + 100 / 1
    assert board.remaining(2) == (100 / 10 + 100 / 1) / 2


def test_a_failed_run_starts_again_once_and_is_then_written_down(store):
    board = Board(store, [CELL])
    outcomes = [settle(board, CELL.name, Outcome(3, "diverged"), {}) for _ in range(ATTEMPTS)]
    assert outcomes == [True, False]
    assert board.names("failed") == [CELL.name]
    written = json.loads(store.read(f"{CELL.name}/failed.json") or "")
    assert written == {"attempts": 2, "exit_code": 3, "error": "diverged"}


def test_a_lost_machine_is_no_failure_of_the_run(store):
    board, losses = Board(store, [CELL]), dict[str, int]()
    lost = [settle(board, CELL.name, Outcome(1, "lost", lost=True), losses) for _ in range(LOSSES)]
    assert all(lost)
    assert board.entries[CELL.name].attempts == 0


def test_a_stopped_run_does_not_start_again(store):
    board = Board(store, [CELL])
    assert not settle(board, CELL.name, Outcome(143), {}, stopping=True)
    assert board.names("stopped") == [CELL.name]


def test_a_run_that_someone_else_stopped_starts_again_but_not_for_ever(store):
    board, losses = Board(store, [CELL]), dict[str, int]()
    again = [settle(board, CELL.name, Outcome(143, "stopped"), losses) for _ in range(LOSSES + ATTEMPTS)]
    assert again == [True] * (LOSSES + ATTEMPTS - 1) + [False]
    assert board.names("failed") == [CELL.name]


def test_a_failed_run_is_known_as_such_after_a_restart(store):
    store.write(f"{CELL.name}/failed.json", json.dumps({"error": "diverged"}))
    entry = Board(store, [CELL]).entries[CELL.name]
    assert (entry.state, entry.error) == ("failed", "diverged")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("summary.json", '{"last": [1]}'),
        ("config.json", '{"steps": "abc"}'),
        ("progress.json", '{"done": 5}'),
        ("failed.json", "[]"),
    ],
)
def test_damaged_files_of_a_run_do_not_end_the_sweep(store, file, text):
    store.write(f"{CELL.name}/summary.json", '{"last": {"wall_seconds": 1.0}}')
    store.write(f"{CELL.name}/{file}", text)
    assert Board(store, [CELL]).entries[CELL.name].state == "waiting"


def test_other_threads_and_other_demonstrations_are_refused(store):
    begun(store, CELL)
    with pytest.raises(InputError, match="was begun with `threads` 1, not 2"):
        planned(store, "out", replace(ABOUT, threads=2), [CELL], extend=True)
    with pytest.raises(InputError, match="was begun with other demonstrations of CartPole-v1"):
        planned(store, "out", replace(ABOUT, data={"CartPole-v1": "changed"}), [CELL], extend=True)


def test_the_status_says_whether_the_sweep_goes_on(store):
    board = Board(store, [CELL])
    board.write("small", 1)
    content = json.loads(store.read("status.json") or "")
    assert status(content)[1] == ""
    assert "has not been heard of for 10 min" in status(content | {"time": time.time() - 600})[1]
    assert status(content | {"over": True})[1] == "the sweep has ended"
    assert footer(board.entries, 90.0, 0) == "1 run: 1 waiting; 0%, about 2 min left"


@pytest.mark.parametrize(("seconds", "text"), [(None, ""), (20, "20 s"), (600, "10 min"), (36_000, "10.0 h")])
def test_durations_are_for_people(seconds, text):
    assert clock(seconds) == text
