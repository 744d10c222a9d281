"""`valuedice report`: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import cell, config, metrics, write_run, write_sweep

pytestmark = pytest.mark.usefixtures("own_folder")

ALL = {
    *("rows.csv", "runs.csv", "table.csv", "table.md", "index.html"),
    *(f"{name}.{kind}" for name in ("curves", "kl", "aggregate") for kind in ("png", "pdf")),
}


@pytest.fixture
def sweep() -> Path:
    """Four cells: two are finished, one has failed, one waits."""
    names = {f"x-{seed}": cell("value-dice", "ValueDICE", seed) for seed in range(4)}
    folder = write_sweep(Path("sweep"), names)
    for seed, end in enumerate((0.5, 1.5)):
        write_run(folder / f"x-{seed}", config(seed=seed), metrics([10.0, 100 * end], kl_estimate=[0.5, 0.25]))
    (folder / "x-2").mkdir()
    (folder / "x-2" / "failed.json").write_text(json.dumps({"error": "diverged", "exit_code": 3, "attempts": 2}))
    return folder


def test_everything_is_written_and_summed_up(run, sweep):
    result = run("report", sweep, "--out", "out")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "4 runs: 2 finished, 1 failed, 1 waiting\n"
        "normalised return  IQM                mean               tasks  runs\n"
        "ValueDICE          1.00 [0.50, 1.50]  1.00 [0.50, 1.50]  1      2\n"
        "failed: x-2: diverged (exit code 3, attempts 2)\n"
        "page: out/index.html\n"
    )
    assert {path.name for path in Path("out").iterdir()} == ALL
    assert Path("out/table.md").read_text().endswith("Made by: `valuedice report sweep --out out`\n")


def test_a_report_of_a_report_is_the_same(run, sweep):
    run("report", sweep, "--out", "first", "--formats", "csv", "png", "html", "--title", "T")
    run("report", "first", "--out", "second", "--formats", "csv", "png", "html", "--title", "T")
    for path in Path("first").iterdir():
        again = (Path("second") / path.name).read_bytes()
        # The page names the command that made it.
        changed = again.replace(b"report first --out second", b"report sweep --out first")
        assert changed == path.read_bytes()


def test_only_the_formats_asked_for_are_written_by_default_into_report(run, sweep):
    result = run("report", sweep, "--formats", "md", "--title", "Mine")
    assert result.out.endswith("files: report\n")
    assert [path.name for path in Path("report").iterdir()] == ["table.md"]
    assert Path("report/table.md").read_text().startswith("# Mine\n")


def test_normalised_returns_make_other_figures(run, sweep):
    run("report", sweep, "--out", "a", "--formats", "png")
    run("report", sweep, "--out", "b", "--formats", "png", "--normalized")
    same = {p.name for p in Path("a").iterdir() if p.read_bytes() == (Path("b") / p.name).read_bytes()}
    assert same == {"kl.png", "aggregate.png"}


def test_no_file_names_a_folder_of_the_machine(run, sweep, tmp_path):
    run("report", tmp_path / sweep, "--out", tmp_path / "out", "--formats", "csv", "md", "html")
    for path in Path("out").iterdir():
        text = path.read_text()
        assert str(tmp_path) not in text
        assert "somebody" not in text  # where the demonstrations of the runs were


def test_runs_that_share_a_seed_are_told(run):
    for name, end in (("one", 5.0), ("two", 6.0)):
        write_run(Path("runs") / name, rows=metrics([end]))
    result = run("report", "runs", "--formats", "md")
    assert result.err == (
        "valuedice: warning: 2 different runs have the same labels and seed, and all of them count: one, two\n"
    )


def test_what_cannot_be_read_or_written_is_refused_in_one_line(refused, sweep):
    assert "no runs given" in refused("report")
    assert "no folder nowhere" in refused("report", "nowhere")
    Path("empty").mkdir()
    assert "no runs in empty; give run folders" in refused("report", "empty")
    Path("taken").write_text("")
    assert "cannot write to taken (File exists); choose another --out" in refused("report", sweep, "--out", "taken")
    assert "--formats" in refused("report", sweep, "--formats", "gif")
    (sweep / "sweep.json").write_text("{")
    assert "sweep/sweep.json cannot be read" in refused("report", sweep)


def test_a_folder_whose_name_is_not_unicode_is_reported(run):
    name = b"caf\xe9".decode(errors="surrogateescape")
    write_run(Path("runs") / name)
    assert run("report", "runs").code == 0
    assert "caf?" in Path("report/runs.csv").read_text()
