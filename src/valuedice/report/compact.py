"""The report's own form of runs, small enough to be kept with the code: `rows.csv` and `runs.csv`.

It names no folder of the machine. A report of these files is the same as one of the run folders.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from valuedice.errors import InputError
from valuedice.report.records import STATUSES, Row, Run, parsed_row, parsed_table

ROWS, RUNS = "rows.csv", "runs.csv"
LABELS = ("task", "contestant", "episodes", "subsample", "seed")
RUN_COLUMNS = ("run", *(entry.name for entry in fields(Run) if entry.name not in ("name", "rows")))
NEEDED = tuple(name for name in RUN_COLUMNS if name != "final")
"""Older reports lack the others."""
ROW_COLUMNS = ("run", *LABELS, *Row._fields)


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    """Lines as CSV; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[cell_text(cell) for cell in line] for line in lines])
    return text.getvalue()


def cell_text(cell: object) -> str:
    """A cell. Other numbers than whole ones have six significant digits."""
    if cell is None:
        return ""
    if isinstance(cell, dict):
        return json.dumps(cell, separators=(",", ":"), ensure_ascii=False)
    # A carriage return would end the line.
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell).replace("\r", " ")


def rows_text(runs: Sequence[Run]) -> str:
    """The content of `rows.csv`."""
    lines: list[Sequence[object]] = [ROW_COLUMNS]
    for run in runs:
        labels = [run.name, *(getattr(run, name) for name in LABELS)]
        lines += [[*labels, *row] for row in run.rows]
    return csv_text(lines)


def runs_text(runs: Sequence[Run]) -> str:
    """The content of `runs.csv`."""
    return csv_text([RUN_COLUMNS, *([run.name, *(getattr(run, n) for n in RUN_COLUMNS[1:])] for run in runs)])


def is_compact(folder: Path) -> bool:
    """Whether a folder holds rows that the report wrote."""
    return (folder / ROWS).is_file() and (folder / RUNS).is_file()


def read_compact(folder: Path) -> list[Run]:
    """The runs of a folder that the report wrote."""
    rows: dict[str, list[Row]] = {}
    for line, cells in enumerate(table(folder / ROWS, ROW_COLUMNS), 2):
        try:
            rows.setdefault(cells["run"], []).append(parsed_row(cells))
        except ValueError as error:
            raise InputError(
                f"{folder / ROWS} cannot be read (line {line}: {error}); write the report again"
            ) from None
    runs: list[Run] = []
    for line, cells in enumerate(table(folder / RUNS, NEEDED), 2):
        try:
            runs.append(parsed_run(cells, tuple(rows.pop(cells["run"], ()))))
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{folder / RUNS} cannot be read (line {line}: {error}); write the report again"
            ) from None
    if rows:
        raise InputError(
            f"{folder / ROWS} has rows of {next(iter(rows))!r}, which {RUNS} lacks; write the report again"
        )
    return runs


def table(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The lines of one of the two files."""
    try:
        return parsed_table(path.read_bytes().decode(), columns)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); {ROWS} and {RUNS} belong together") from None
    except ValueError as error:
        raise InputError(f"{path} cannot be read ({error}); write the report again") from None


def parsed_run(cells: dict[str, str], rows: tuple[Row, ...]) -> Run:
    """A line of `runs.csv`; raises ValueError."""
    if cells["status"] not in STATUSES:
        raise ValueError(f"the status is {cells['status']!r}")
    if rows and not (cells["task"] and cells["contestant"]):
        raise ValueError("a run with evaluations lacks its task or its contestant")
    return Run(
        name=cells["run"],
        task=cells["task"],
        contestant=cells["contestant"],
        title=cells["title"],
        algorithm=cells["algorithm"],
        episodes=int(cells["episodes"]) if cells["episodes"] else None,
        subsample=int(cells["subsample"]),
        seed=int(cells["seed"]) if cells["seed"] else None,
        status=cells["status"],
        error=cells["error"],
        seconds=float(cells["seconds"]) if cells["seconds"] else None,
        versions=parsed_object(cells["versions"]),
        settings=parsed_object(cells["settings"]),
        final=parsed_object(cells.get("final") or "{}"),
        rows=rows,
    )


def parsed_object(text: str) -> dict[str, Any]:
    """A JSON object; raises ValueError."""
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"{text!r} is no JSON object")
    return cast("dict[str, Any]", content)
