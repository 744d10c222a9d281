"""`index.html`: one file with everything in it, which makes no request."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from valuedice.report.collect import Collection
from valuedice.report.curves import AXIS_TITLES, METRIC_TITLES, Line, Panel, Points, panels_of, points
from valuedice.report.palette import looks_of
from valuedice.report.records import METRICS, Run, contestants_of, groups_of, regimes_of, significant, tasks_of
from valuedice.report.statistics import aggregates, group_statistics, improvements
from valuedice.report.tables import NOTE, counts, progress


def page(collection: Collection, title: str, command: str, *, normalized: bool) -> str:
    """The page as text."""
    looks = looks_of(contestants_of(collection.runs)).values()
    light = "".join(f"--c{place}:{look.light};" for place, look in enumerate(looks))
    dark = "".join(f"--c{place}:{look.dark};" for place, look in enumerate(looks))
    colours = f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    data = page_data(collection, command, normalized=normalized)
    parts = {
        "TITLE": html.escape(title),
        "STYLE": colours + source("page.css"),
        "DATA": embedded(data),
        "SCRIPT": source("chart.js") + source("page.js"),
    }
    text = source("page.html")
    # In one pass: a title may look like the mark of another part.
    pieces = text.split("{{")
    return pieces[0] + "".join(parts[(end := piece.partition("}}"))[0]] + end[2] for piece in pieces[1:])


def source(name: str) -> str:
    """A file of this package."""
    return (files("valuedice.report") / name).read_text(encoding="utf-8")


def embedded(data: dict[str, Any]) -> str:
    """JSON that no text in it can break out of: an HTML parser sees neither tags nor comments."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(collection: Collection, command: str, *, normalized: bool) -> dict[str, Any]:
    """All that the page shows. Tasks, contestants, regimes and runs are named by their places."""
    runs = collection.runs
    titles, tasks, regimes = contestants_of(runs), tasks_of(runs), regimes_of(runs)
    names = list(titles)
    panels = panels_of(runs)
    looks = looks_of(titles)
    return {
        "command": command,
        "counts": counts(runs),
        "note": NOTE,
        "notes": collection.notes,
        "normalized": normalized,
        "tasks": tasks,
        "regimes": [{"title": r.title, "episodes": r.episodes, "subsample": r.subsample} for r in regimes],
        "contestants": [{"title": titles[name], "dashes": looks[name].dashes} for name in names],
        "metrics": {metric: METRIC_TITLES[metric] for metric in METRICS if measured(panels, metric)},
        "panels": [
            {
                "task": tasks.index(panel.task),
                "regime": regimes.index(panel.regime),
                "axis": AXIS_TITLES[panel.axis],
                "expert": panel.expert,
                "finished": panel.finished,
                "lines": [line_data(line, panel, runs, names) for line in panel.lines],
            }
            for panel in panels
        ],
        "groups": [
            {
                "regime": regimes.index(s.group.regime),
                "contestant": names.index(s.group.contestant),
                "task": tasks.index(s.group.task),
                "runs": s.runs,
                "mean": s.mean,
                "std": s.std,
                "late": s.late,
                "normalized_mean": s.normalized_mean,
                "normalized_std": s.normalized_std,
                "normalized_late": s.normalized_late,
            }
            for s in group_statistics(runs)
            if s.mean is not None
        ],
        "aggregates": [
            {
                "regime": regimes.index(a.regime),
                "contestant": names.index(a.contestant),
                "iqm": a.iqm,
                "mean": a.mean,
                "tasks": a.tasks,
                "of_tasks": a.of_tasks,
                "runs": a.runs,
            }
            for a in aggregates(runs)
        ],
        "improvements": [
            {
                "regime": regimes.index(i.regime),
                "contestant": names.index(i.contestant),
                "other": names.index(i.other),
                "probability": i.probability,
                "tasks": i.tasks,
                "runs": i.runs,
                "other_runs": i.other_runs,
            }
            for i in improvements(runs)
        ],
        "runs": [run_data(run, tasks, names) for run in runs],
        "rings": [
            {
                "name": ring.name,
                "table": ring.table,
                "pictures": [
                    {"caption": caption, "data": f"data:image/png;base64,{b64encode(content).decode()}"}
                    for caption, content in ring.pictures
                ],
            }
            for ring in collection.rings
        ],
    }


def measured(panels: Sequence[Panel], metric: str) -> bool:
    """Whether any line has the metric."""
    return any(metric in {*line.curves, *line.levels} for panel in panels for line in panel.lines)


def line_data(line: Line, panel: Panel, runs: Sequence[Run], names: list[str]) -> dict[str, Any]:
    """A contestant in a panel, with its runs one by one."""
    key = line.runs[0].group
    members = [] if line.levels else groups_of(runs)[key]
    return {
        "contestant": names.index(line.contestant),
        "runs": len(line.runs),
        "finished": line.finished,
        "curves": {
            metric: [numbers(c.x), numbers(c.mean), None if c.std is None else numbers(c.std)]
            for metric, c in line.curves.items()
        },
        "levels": {metric: [significant(value) for value in level] for metric, level in line.levels.items()},
        "seeds": [
            {metric: [numbers(axis) for axis in points(run, metric, panel.axis)] for metric in line.curves}
            for run in members
        ],
    }


def numbers(values: Points) -> list[float | int | None]:
    """With six digits; whole numbers as such."""
    found = [significant(float(value)) for value in values]
    return [int(value) if value is not None and value.is_integer() else value for value in found]


def run_data(run: Run, tasks: list[str], names: list[str]) -> dict[str, Any]:
    """A line of the table of runs."""
    last = run.rows[-1] if run.rows else None
    return {
        "name": run.name,
        "task": tasks.index(run.task) if run.task else None,
        "contestant": names.index(run.contestant) if run.contestant else None,
        "algorithm": run.algorithm,
        "episodes": run.episodes,
        "subsample": run.subsample,
        "seed": run.seed,
        "status": run.status,
        "progress": progress(run),
        "seconds": run.seconds,
        "versions": run.versions,
        # As texts: JSON knows no infinity.
        "settings": {
            n: value if isinstance(value, str) else json.dumps(value) for n, value in run.settings.items()
        },
        "last": None if last is None else last._asdict(),
    }
