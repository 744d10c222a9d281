"""Makes a report: reads the runs, and writes the files that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast, get_args

from valuedice.report.collect import Collection, collect
from valuedice.report.compact import ROWS, RUNS, rows_text, runs_text
from valuedice.report.tables import table_csv, table_md
from valuedice.system.files import write_whole, writing_to

Format = Literal["csv", "md", "png", "pdf", "html"]
FORMATS = cast("tuple[Format, ...]", get_args(Format))


def write_report(
    sources: Sequence[str],
    out: Path,
    formats: Sequence[Format] = FORMATS,
    *,
    normalized: bool = False,
    title: str = "Imitation report",
    command: str = "valuedice report",
) -> Collection:
    """Reads all runs and writes their report; gives back what it shows. Nothing is written unless all is made."""
    collection = collect(sources, out)
    runs = collection.runs
    files: dict[str, bytes | str] = {}
    if "csv" in formats:
        files |= {ROWS: rows_text(runs), RUNS: runs_text(runs), "table.csv": table_csv(runs)}
    if "md" in formats:
        files["table.md"] = table_md(collection, title, command)
    if "png" in formats or "pdf" in formats:
        from valuedice.report.figures import figures

        kinds = [kind for kind in ("png", "pdf") if kind in formats]
        files |= figures(runs, kinds, normalized=normalized)
    if "html" in formats:
        from valuedice.report.page import page

        files["index.html"] = page(collection, title, command, normalized=normalized)
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            # The name of a folder need not be Unicode.
            write_whole(out / name, content.encode(errors="replace") if isinstance(content, str) else content)
    return collection
