"""Tables of a report: their numbers, and what they say of runs that did not finish."""

from __future__ import annotations

from run_folders import finished_run

from valuedice.report.collect import Collection
from valuedice.report.tables import counts, short_summary, table_csv, table_md

RUNS = [
    finished_run("A", "value-dice", 0, 0.0, 1.0, title="ValueDICE"),
    finished_run("A", "value-dice", 1, 0.0, 0.5, title="ValueDICE"),
    finished_run("A", "bc", 0, 0.25, title="B|C"),
    finished_run("A", "bc", 1, -0.25, 0.1, title="B|C", status="unfinished"),
    finished_run("B", "bc", 0, 0.5, status="failed", error="<b>out of memory</b>", title="B|C"),
    finished_run("B", "bc", 1, status="waiting", title="B|C"),
]
TABLE = """\
# A \\_title\\_

6 runs: 3 finished, 1 unfinished, 1 failed, 1 waiting. Each number stands on finished runs"""
PARTS = [
    "| task | contestant | seeds | return | late | expert | normalised | late, normalised |",
    "| A | ValueDICE | 2 | 75 ± 35 | 75 | 100 | 0.75 ± 0.35 | 0.75 |",
    "| A | B\\|C | 1 | 25 | 25 | 100 | 0.25 | 0.25 |",
    "| 1 episode | ValueDICE | 0.75 [0.50, 1.00] | 0.75 [0.50, 1.00] | 1 | 2 |",
    "| 1 episode | B\\|C | 0.25 | 0.25 | 1 | 1 |",
    "| ValueDICE |  | 1.00 [1.00, 1.00]; 1 task, 2 against 1 runs |",
    "| B\\|C | 0.00 [0.00, 0.00]; 1 task, 1 against 2 runs |  |",
    "## Unfinished runs\n\n- A-bc-1: at 2,000 steps\n",
    "## Failed runs\n\n- B-bc-0: at 1,000 steps; \\<b\\>out of memory\\</b\\>\n",
    "## Waiting runs\n\n- B-bc-1\n",
    "Note: two are one.",
    "Made by: `valuedice report x`\n",
]


def test_the_markdown_holds_all_numbers_and_all_problems():
    text = table_md(Collection(tuple(RUNS), notes=("two are one",)), "A _title_", "valuedice report x")
    assert text.startswith(TABLE)
    assert [part for part in PARTS if part not in text] == []


def test_a_table_without_finished_runs_says_so():
    text = table_md(Collection((RUNS[3],)), "T", "c")
    assert "No run is finished yet." in text
    assert "## Normalised" not in text
    assert "## Probability" not in text


def test_the_csv_holds_a_line_for_each_group_with_a_finished_run():
    assert table_csv(RUNS).splitlines()[1:] == [
        "A,value-dice,ValueDICE,1,1,2,75,35.3553,75,100,0.75,0.353553,0.75,,",
        "A,bc,B|C,1,1,1,25,,25,100,0.25,,0.25,,",
    ]


def test_what_all_comparisons_stand_on_is_said_once():
    runs = [finished_run("A", name, seed, 0.5) for name in "xy" for seed in range(2)]
    text = table_md(Collection(tuple(runs)), "T", "c")
    assert "Each number stands on 1 task, 2 against 2 runs." in text
    assert "| x |  | 0.50 [0.50, 0.50] |" in text


def test_the_summary_is_short_and_aligned():
    assert short_summary(RUNS) == [
        "6 runs: 3 finished, 1 unfinished, 1 failed, 1 waiting",
        "normalised return  IQM                mean               tasks  runs",
        "ValueDICE          0.75 [0.50, 1.00]  0.75 [0.50, 1.00]  1      2",
        "B|C                0.25               0.25               1      1",
    ]
    more = [*RUNS, finished_run("A", "bc", 0, 0.5, episodes=10, subsample=2)]
    assert short_summary(more)[-1].startswith("B|C (10 episodes, every 2nd row)")


def test_one_run_is_not_called_runs():
    assert counts(RUNS[:1]) == "1 run: 1 finished"
