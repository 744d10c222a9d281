"""`valuedice report`."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from valuedice.commands import parse, say
from valuedice.errors import InputError
from valuedice.report.records import without_paths
from valuedice.report.tables import short_summary
from valuedice.report.write import FORMATS, Format, write_report


@dataclass(frozen=True)
class ReportOptions:
    """Tables, figures and a web page of finished runs, and of those under way."""

    runs: Positional[tuple[str, ...]]
    """Run folders, sweep folders, folders of run folders, folders of earlier reports, or URLs such as s3://…"""
    out: Path = Path("report")
    """Folder for index.html, the figures (curves, kl, distance, aggregate), table.csv and table.md, and all runs in
    a compact form (rows.csv, runs.csv)."""
    formats: tuple[Format, ...] = FORMATS
    """What to write."""
    normalized: bool = False
    """Draw normalised returns: 0 is a random policy, 1 the expert."""
    title: str = "Imitation report"
    """Heading of the page and of table.md."""


def report_command(args: list[str]) -> int:
    """`valuedice report RUNS ... --out DIR`."""
    options = parse(ReportOptions, "report", args)
    if not options.runs:
        raise InputError("no runs given; name run folders, or a folder of them")
    command = shlex.join(["valuedice", "report", *map(without_paths, args)])
    collection = write_report(
        options.runs,
        options.out,
        options.formats,
        normalized=options.normalized,
        title=options.title,
        command=command,
    )
    for note in collection.notes:
        warnings.warn(note, stacklevel=1)
    for line in short_summary(collection.runs):
        say(line)
    for run in collection.runs:
        if run.status == "failed":
            say(f"failed: {run.name}: {run.error}")
    name = "index.html" if "html" in options.formats else ""
    say(f"{'page' if name else 'files'}: {options.out / name}")
    return 0
