"""The examples of the documentation run, and do what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from examples import blocks, run_example

from valuedice.sweep.suite import load_suite


def test_the_examples_of_extending_run_one_after_the_other(own_folder, capsys):
    names: dict[str, Any] = {"__name__": "extending"}
    for code in blocks("extending.md"):
        run_example(code, names)
    assert capsys.readouterr().out.splitlines()[-1] == "[100, 200, 300]"
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert rows == names["cloned"].metrics
    assert rows[-1]["updates"] < 4_000


def test_the_examples_of_distance_run_one_after_the_other(capsys):
    names: dict[str, Any] = {}
    for code in blocks("distance.md"):
        run_example(code, names)
    found, again, floor = map(float, capsys.readouterr().out.split())
    # Three of the expert's own episodes are about as near as its halves are to each other.
    assert found < 5 * floor
    assert again < 5 * floor


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("README.md", "frontier/kept.md"),
        ("docs/comparisons.md", "frontier/cells.md"),
        ("docs/distance.md", "frontier/choosing.md"),
        ("docs/comparisons.md", "cloning/mean.md"),
        ("docs/data.md", "library/kept.md"),
        ("docs/data.md", "experts/table.md"),
    ],
)
def test_a_table_of_the_documentation_is_that_of_the_results(page, table):
    root = Path(__file__).parents[1]
    assert (root / "results" / table).read_text() in (root / page).read_text()


def test_the_suite_of_the_documentation_is_sound(own_folder):
    [text] = blocks("sweeps.md", "toml")
    Path("suite.toml").write_text(text.replace("MyTask-v0", "Pendulum-v1").replace("mine.npz", "pendulum"))
    cells = load_suite("suite.toml").cells()
    assert len(cells) == 5 * 2 * 3
    assert {cell.title for cell in cells} >= {"ValueDICE, replay_regularization 0.05", "cloning"}
