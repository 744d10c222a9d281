"""What the report knows of a run: its labels, how it ended, and its evaluations."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Literal, NamedTuple, cast, get_args

Status = Literal["finished", "unfinished", "failed", "waiting"]
STATUSES = cast("tuple[Status, ...]", get_args(Status))
Metric = Literal["return_mean", "normalized_return", "kl_estimate", "distance"]
METRICS = cast("tuple[Metric, ...]", get_args(Metric))

TITLES = {
    "value-dice": "ValueDICE",
    "dac": "DAC",
    "bc": "BC",
    "gail": "GAIL",
    "dual-dice": "DualDICE",
    "sac": "SAC",
}
"""The algorithms' names in figures, in the order of the legends."""


class Row(NamedTuple):
    """One evaluation. None is a value that was not measured."""

    step: int
    updates: int
    wall_seconds: float | None = None
    return_mean: float | None = None
    return_std: float | None = None
    expert_return: float | None = None
    normalized_return: float | None = None
    kl_estimate: float | None = None
    distance: float | None = None


class Regime(NamedTuple):
    """How much of the expert a run has seen. Numbers of different regimes are never averaged."""

    episodes: int | None
    subsample: int

    @property
    def title(self) -> str:
        """For people."""
        if self.episodes is None:
            return "no demonstration files"
        text = f"{self.episodes} episode{'s' if self.episodes != 1 else ''}"
        return text if self.subsample == 1 else f"{text}, every {ordinal(self.subsample)} row"

    def order(self) -> tuple[float, int]:
        """The fewest demonstrations come first, runs without any last."""
        return inf if self.episodes is None else self.episodes, self.subsample


class Group(NamedTuple):
    """Runs that differ in their seeds only: one curve."""

    task: str
    contestant: str
    regime: Regime


@dataclass(frozen=True)
class Run:
    """One run."""

    name: str
    task: str = ""
    contestant: str = ""
    title: str = ""
    algorithm: str = ""
    episodes: int | None = None
    subsample: int = 1
    seed: int | None = None
    status: Status = "finished"
    error: str = ""
    seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict[str, str])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    final: dict[str, Any] = field(default_factory=dict[str, Any])
    """The policy that the run ended with, on fresh episodes; empty if that was not measured."""
    rows: tuple[Row, ...] = ()

    @property
    def regime(self) -> Regime:
        """How much of the expert it has seen."""
        return Regime(self.episodes, self.subsample)

    @property
    def group(self) -> Group:
        """The curve that it belongs to."""
        return Group(self.task, self.contestant, self.regime)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def groups_of(runs: Iterable[Run]) -> dict[Group, list[Run]]:
    """The runs with evaluations of each group."""
    found: dict[Group, list[Run]] = {}
    for run in runs:
        if run.rows:
            found.setdefault(run.group, []).append(run)
    return found


def counted(runs: list[Run]) -> list[Run]:
    """The runs that stand for a group: the finished ones. Until there is one, those under way."""
    finished = [run for run in runs if run.status == "finished"]
    return finished or [run for run in runs if run.status == "unfinished"]


def contestants_of(runs: Iterable[Run]) -> dict[str, str]:
    """Contestants and their titles. The paper's method comes first, then its rivals, then others as they come."""
    titles: dict[str, str] = {}
    order: dict[str, int] = {}
    known = list(TITLES)
    for run in runs:
        if run.contestant and run.contestant not in titles:
            titles[run.contestant] = run.title or run.contestant
            order[run.contestant] = known.index(run.algorithm) if run.algorithm in known else len(known)
    shared = [title for title in titles.values() if list(titles.values()).count(title) > 1]
    return {
        name: name if titles[name] in shared else titles[name] for name in sorted(titles, key=order.__getitem__)
    }


def regimes_of(runs: Iterable[Run]) -> list[Regime]:
    """The regimes, those with the fewest demonstrations first."""
    return sorted({run.regime for run in runs if run.rows}, key=Regime.order)


def tasks_of(runs: Iterable[Run]) -> list[str]:
    """The tasks, sorted."""
    return sorted({run.task for run in runs if run.task})


def significant(value: float | None) -> float | None:
    """Six digits, as the report stores a number. What is not finite was not measured."""
    return None if value is None or not isfinite(value) else float(f"{value:.6g}")


def parsed_row(cells: dict[str, str]) -> Row:
    """A row from the cells of a table; raises ValueError."""
    numbers = {name: cells.get(name, "").strip() for name in Row._fields}
    step, updates = (int(numbers.pop(name)) for name in ("step", "updates"))
    return Row(
        step, updates, **{name: significant(float(text)) if text else None for name, text in numbers.items()}
    )


def parsed_table(text: str, columns: Iterable[str] = ("step", "updates")) -> list[dict[str, str]]:
    """The lines of a CSV file by column; raises ValueError if a column is missing or a line is cut off."""
    try:
        lines = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if not lines:
        raise ValueError("it is empty")
    missing = [name for name in columns if name not in lines[0]]
    if missing:
        raise ValueError(f"it lacks the column {missing[0]!r}")
    for number, line in enumerate(lines, 1):
        if len(line) != len(lines[0]):
            raise ValueError(f"line {number} has {len(line)} cells, not {len(lines[0])}")
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


PATH = re.compile(
    r"(?:file://|(?<![\w:/.~]))(?:~|\.{1,2}|[A-Za-z]:)?[/\\](?:[^\s/\\:'\"(),;]+[/\\])*([^\s/\\:'\"(),;]*)"
)
"""A path that begins at a root, at home or at the current folder."""


def without_paths(value: Any) -> Any:
    """With each path of a machine reduced to its last part."""
    if isinstance(value, str):
        return PATH.sub(r"\1", value)
    if isinstance(value, dict):
        return {name: without_paths(inner) for name, inner in cast("dict[str, Any]", value).items()}
    return [without_paths(inner) for inner in cast("list[Any]", value)] if isinstance(value, list) else value
