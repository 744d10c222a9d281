"""The report's own form: it holds everything, names no machine, and refuses damage."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_folders import finished_run

from valuedice.errors import InputError
from valuedice.report.collect import Collection, collect
from valuedice.report.compact import ROWS, RUNS, read_compact, rows_text, runs_text
from valuedice.report.page import page_data
from valuedice.report.records import STATUSES, Row, Run, significant, without_paths
from valuedice.report.tables import table_csv, table_md

TEXT = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=12)
NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False).map(significant)
ROW = st.builds(Row, st.integers(0, 10**7), st.integers(0, 10**7), *[NUMBER] * 7)
JSON = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT


@st.composite
def lists_of_runs(draw: Any) -> list[Run]:
    """Runs with names of their own."""
    names = draw(st.lists(TEXT.filter(bool), unique=True, min_size=1, max_size=4))
    return [
        Run(
            name,
            task=draw(st.sampled_from(("A-v5", 'B, "quoted"\nand long'))),
            contestant=draw(st.sampled_from(("one", "two, with a comma"))),
            title=draw(TEXT),
            algorithm=draw(TEXT),
            episodes=draw(st.none() | st.integers(1, 20)),
            subsample=draw(st.integers(1, 20)),
            seed=draw(st.none() | st.integers(0, 9)),
            status=draw(st.sampled_from(STATUSES)),
            error=draw(TEXT),
            seconds=draw(NUMBER),
            versions=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
            settings=draw(st.dictionaries(TEXT, JSON, max_size=3)),
            rows=tuple(draw(st.lists(ROW, max_size=4))),
        )
        for name in names
    ]


def write(folder: Path, runs: list[Run]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / ROWS).write_bytes(rows_text(runs).encode())
    (folder / RUNS).write_bytes(runs_text(runs).encode())
    return folder


@given(lists_of_runs())
def test_runs_survive_the_round_trip(runs):
    with TemporaryDirectory() as folder:
        assert read_compact(write(Path(folder), runs)) == runs


@given(st.lists(st.lists(st.floats(-1, 2).map(significant), min_size=1, max_size=4), min_size=1, max_size=4))
@settings(max_examples=20)
def test_a_report_of_the_files_is_the_same_as_one_of_the_runs(scores):
    runs = [finished_run("A", f"c{place % 2}", place, *values) for place, values in enumerate(scores)]
    with TemporaryDirectory() as folder:
        again = collect([str(write(Path(folder), runs))])
    before = Collection(tuple(runs))
    assert again == before
    assert table_csv(again.runs) == table_csv(runs)
    assert table_md(again, "T", "c") == table_md(before, "T", "c")
    assert page_data(again, "c", normalized=False) == page_data(before, "c", normalized=False)


def test_only_the_agreed_columns_with_six_digits(tmp_path):
    run = finished_run("A", "c", 0, 1 / 3, settings={"lr": 1e-5})
    write(tmp_path, [run])
    assert (tmp_path / ROWS).read_text().splitlines() == [
        "run,task,contestant,episodes,subsample,seed,step,updates,wall_seconds,return_mean,return_std,"
        "expert_return,normalized_return,kl_estimate,distance",
        "A-c-0,A,c,1,1,0,1000,4000,,33.3333,,100,0.333333,,",
    ]
    assert (tmp_path / RUNS).read_text().splitlines() == [
        "run,task,contestant,title,algorithm,episodes,subsample,seed,status,error,seconds,versions,settings,final",
        'A-c-0,A,c,c,c,1,1,0,finished,,,{},"{""lr"":1e-05}",{}',
    ]


def test_the_headline_survives_and_reports_from_before_it_can_be_read(tmp_path):
    run = finished_run("A", "c", 0, 1 / 3, final={"normalized_return": 0.5, "kept": "closest"})
    write(tmp_path, [run])
    assert read_compact(tmp_path)[0].final == run.final
    lines = [line.rpartition(",")[0] for line in (tmp_path / RUNS).read_text().replace('"', "").splitlines()]
    (tmp_path / RUNS).write_text("\n".join([lines[0], "A-c-0,A,c,c,c,1,1,0,finished,,,{},{}"]) + "\n")
    assert read_compact(tmp_path)[0].final == {}


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        (ROWS, "33.3333", "x", "line 2: could not convert string to float: 'x'"),
        (ROWS, ",,\n", ",\n", "line 2 has 14 cells, not 15"),
        (ROWS, "run,", "ran,", "lacks the column 'run'"),
        (ROWS, "A-c-0", "other", "has rows of 'other', which runs.csv lacks"),
        (RUNS, "finished", "done", "the status is 'done'"),
        (RUNS, "A-c-0,A,c", "A-c-0,A,", "line 2: a run with evaluations lacks its task or its contestant"),
        (RUNS, "{}", "[]", "'[]' is no JSON object"),
        (RUNS, ",0,finished", ",zero,finished", "line 2: invalid literal for int"),
    ],
)
def test_damage_is_refused_in_one_line(tmp_path, file, old, new, reason):
    write(tmp_path, [finished_run("A", "c", 0, 1 / 3)])
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new))
    with pytest.raises(InputError) as refusal:
        read_compact(tmp_path)
    assert reason in str(refusal.value)


def test_a_file_without_the_other_is_refused(tmp_path):
    (write(tmp_path, [finished_run("A", "c", 0, 1.0)]) / RUNS).unlink()
    with pytest.raises(InputError, match=r"lacks rows\.csv or runs\.csv"):
        collect([str(tmp_path / ROWS)])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/me/data/Hopper.npz", "Hopper.npz"),
        ("cannot write to /mnt/big disk (No space)", "cannot write to big disk (No space)"),
        ("see /a/b/run-1: failed", "see run-1: failed"),
        (r"C:\Users\me\demos.npz", "demos.npz"),
        ("~/demos.npz", "demos.npz"),
        ("../shared/demos.npz", "demos.npz"),
        ("file:///srv/x/demos.npz", "demos.npz"),
        ("minari:mujoco/hopper/expert-v0", "minari:mujoco/hopper/expert-v0"),
        ("s3://bucket/demos.npz", "s3://bucket/demos.npz"),
        ("3 steps/s, 1/2", "3 steps/s, 1/2"),
    ],
)
def test_paths_of_a_machine_are_reduced_to_their_last_part(text, left):
    assert without_paths({"a": [text]}) == {"a": [left]}
