"""What a sweep knows of its runs: the file `sweep.json` says what they are, `status.json` how far they are."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from valuedice.demos import shipped_demos
from valuedice.errors import InputError
from valuedice.sweep.cell import RING, Cell, cell_of
from valuedice.sweep.store import Store
from valuedice.training.json_types import fits

FORMAT = 1
STATES = ("running", "waiting", "stopped", "failed", "finished")


@dataclass(frozen=True)
class About:
    """What a sweep is, apart from its cells."""

    suite: str
    description: str
    threads: int
    data: dict[str, str]
    """A hash of the demonstrations of each task."""


@dataclass
class Entry:
    """How far a run is."""

    state: str = "waiting"
    done: int = 0
    total: int = 0
    unit: str = "steps"
    rate: float = 0.0
    """Steps or updates a second."""
    seconds: float = 0.0
    """Working time so far."""
    attempts: int = 0
    error: str = ""
    result: str = ""
    """The last return."""

    @property
    def remaining(self) -> float | None:
        """Seconds to go; None if nothing is known."""
        return (self.total - self.done) / self.rate if self.rate and self.total else None


class Board:
    """The runs of a sweep by name, in the order in which they are made."""

    def __init__(self, store: Store, cells: Iterable[Cell]) -> None:
        self.store = store
        self.cells = {cell.name: cell for cell in cells}
        self.entries = {name: Entry(total=cell.total) for name, cell in self.cells.items()}
        self.chosen = list(self.cells)
        """The runs to be made now."""
        for name, entry in self.entries.items():
            self.read(name)
            if entry.state != "finished" and (failed := as_dict(self.store.read(f"{name}/failed.json"))):
                entry.state, entry.error = "failed", str(failed.get("error", ""))

    def read(self, name: str) -> None:
        """Brings an entry up to date from the run's own files. One that is damaged, or that another machine is just
        replacing, says nothing."""
        with suppress(InputError, KeyError, TypeError, ValueError, AttributeError):
            self._read(name)

    def _read(self, name: str) -> None:
        cell, entry = self.cells[name], self.entries[name]
        if cell.algorithm == RING:
            if self.store.read(f"{name}/comparison.json") is not None:
                entry.state = "finished"
            return
        summary = as_dict(self.store.read(f"{name}/summary.json"))
        last: Any = summary.get("last") or {}
        if summary:
            config = as_dict(self.store.read(f"{name}/config.json"))
            entry.unit = "updates" if config.get("offline") else "steps"
            entry.done = min(int(config.get(entry.unit) or 0), entry.total)
            entry.seconds = last.get("wall_seconds") or 0.0
            entry.result = result_of(last)
            if entry.done >= entry.total:
                entry.state, entry.rate = "finished", entry.total / max(entry.seconds, 1e-9)
        now = as_dict(self.store.read(f"{name}/progress.json"))
        if now and entry.state != "finished":
            entry.done, entry.unit, entry.rate = now["done"], now["unit"], now["rate"]
            entry.seconds, entry.result = now["seconds"], result_of(now["last"])

    def fail(self, name: str, exit_code: int) -> None:
        """Notes in the run's folder that the sweep gave up on it, for the report."""
        entry = self.entries[name]
        about = {"attempts": entry.attempts, "exit_code": exit_code, "error": entry.error}
        self.store.write(f"{name}/failed.json", json.dumps(about, indent=2) + "\n")

    def names(self, *states: str) -> list[str]:
        """The runs in certain states."""
        return [name for name, entry in self.entries.items() if entry.state in states]

    def counts(self) -> dict[str, int]:
        """How many runs there are in each state."""
        found = Counter(entry.state for entry in self.entries.values())
        return {state: found[state] for state in STATES if found[state]}

    def remaining(self, jobs: int) -> float | None:
        """Seconds until the whole sweep is done, judged by runs of the same contestant where there are any."""
        rates = self._rates()
        if not rates:
            return None
        usual = sum(rates.values()) / len(rates)
        seconds = 0.0
        for name in set(self.names("running", "waiting", "stopped")) & set(self.chosen):
            entry, cell = self.entries[name], self.cells[name]
            rate = rates.get((cell.task, cell.contestant)) or rates.get(("", cell.contestant)) or usual
            seconds += (entry.total - entry.done) / rate
        return seconds / max(1, jobs)

    def _rates(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], list[float]] = {}
        for name, entry in self.entries.items():
            if entry.rate and entry.total:
                cell = self.cells[name]
                for key in ((cell.task, cell.contestant), ("", cell.contestant)):
                    found.setdefault(key, []).append(entry.rate)
        return {key: sum(rates) / len(rates) for key, rates in found.items()}

    def write(self, suite: str, jobs: int, *, over: bool = False) -> None:
        """`status.json`, for `valuedice sweep --status`."""
        content = {
            "format": FORMAT,
            "suite": suite,
            "time": time.time(),
            "over": over,
            "remaining": self.remaining(jobs),
            "runs": {name: asdict(entry) for name, entry in self.entries.items()},
        }
        self.store.write("status.json", json.dumps(content, indent=1))


def as_dict(text: str | None) -> dict[str, Any]:
    """JSON that should be an object; anything else, such as a damaged file, is nothing."""
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def result_of(row: Mapping[str, Any]) -> str:
    """The return of an evaluation, beside the expert's if that is known."""
    if row.get("normalized_return") is not None:
        return f"{row['return_mean']:.0f} ({row['normalized_return']:.2f})"
    return "" if row.get("return_mean") is None else f"{row['return_mean']:.0f}"


def planned(store: Store, where: str, about: About, cells: list[Cell], extend: bool) -> list[Cell]:
    """The cells of a sweep in this store: those that it began with, or with `extend` more of them."""
    text = store.read("sweep.json")
    if text is None:
        return cells
    before, old = read_sweep(text, where)
    if before.suite != about.suite:
        what = f"a sweep of {before.suite!r}, not of {about.suite!r}"
        raise InputError(f"{where} holds {what}; choose another `out`")
    if before.threads != about.threads:
        raise InputError(
            f"{where} was begun with `threads` {before.threads}, not {about.threads}; runs go on with as many"
        )
    other = [task for task in about.data if before.data.get(task, about.data[task]) != about.data[task]]
    if other:
        raise InputError(
            f"{where} was begun with other demonstrations of {', '.join(other)}; give those or choose another `out`"
        )
    return merged(old, cells, where, extend)


def fingerprints(cells: Iterable[Cell]) -> dict[str, str]:
    """A hash of the demonstrations of each task, so that a sweep never mixes two files."""
    files = {cell.task: str(cell.settings["demos"]) for cell in cells if "demos" in cell.settings}
    shipped = shipped_demos()
    return {task: hash_of(shipped.get(ref, Path(ref))) for task, ref in files.items()}


def hash_of(path: Path) -> str:
    """The first digits of a file's hash."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); choose other `demos`") from None


def write_sweep(store: Store, about: About, cells: list[Cell]) -> None:
    """`sweep.json`."""
    content = {"format": FORMAT} | asdict(about) | {"cells": {cell.name: cell.as_json() for cell in cells}}
    store.write("sweep.json", json.dumps(content, indent=1) + "\n")


def read_sweep(text: str, where: str) -> tuple[About, list[Cell]]:
    """What `sweep.json` says of the sweep, and its cells."""
    content = as_dict(text)
    try:
        if content["format"] != FORMAT:
            raise InputError(f"{where}/sweep.json is of another version of valuedice; choose another `out`")
        about = {entry.name: content[entry.name] for entry in fields(About)}
        if not fits(about, About):
            raise ValueError("not what a sweep is")
        return About(**about), [cell_of(cell) for cell in content["cells"].values()]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{where}/sweep.json has unexpected content; choose another `out`") from None


def merged(old: list[Cell], new: list[Cell], where: str, extend: bool) -> list[Cell]:
    """The cells of a sweep that goes on. A cell that has begun never changes, but it may become longer."""
    before, now = {cell.name: cell for cell in old}, {cell.name: cell for cell in new}
    both = before.keys() & now.keys()
    changed = [name for name in now if name in both and now[name].differences(before[name])]
    differences = [line for name in changed for line in now[name].differences(before[name])]
    differences += [f"{name} is new" for name in now if name not in before]
    differences += [f"{name} is gone" for name in before if name not in now]
    fatal = [name for name in changed if not now[name].only_longer(before[name])]
    if fatal or (differences and not extend):
        more = f"; and {len(differences) - 8} more" if len(differences) > 8 else ""
        advice = "choose another `out`" if fatal else "add these with `extend`, or choose another `out`"
        raise InputError(f"the suite has changed since {where} began: {'; '.join(differences[:8])}{more}; {advice}")
    kept = [now.get(name, cell) for name, cell in before.items()]
    return kept + [cell for cell in new if cell.name not in before]
