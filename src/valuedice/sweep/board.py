"""How far the runs of a sweep are: read from their folders, written to `status.json`."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from valuedice.errors import InputError
from valuedice.sweep.cell import RING, Cell
from valuedice.sweep.store import Store, as_dict

STATES = ("running", "failed", "stopped", "waiting", "finished")
"""In the order in which people want to see them."""


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
            "suite": suite,
            "time": time.time(),
            "over": over,
            "remaining": self.remaining(jobs),
            "runs": {name: asdict(entry) for name, entry in self.entries.items()},
        }
        self.store.write("status.json", json.dumps(content, indent=1))


def counted(entries: Mapping[str, Entry]) -> str:
    """How many runs there are in each state."""
    found = Counter(entry.state for entry in entries.values())
    return ", ".join(f"{found[state]} {state}" for state in STATES if found[state])


def result_of(row: Mapping[str, Any]) -> str:
    """The return of an evaluation, beside the expert's if that is known."""
    if row.get("normalized_return") is not None:
        return f"{row['return_mean']:.0f} ({row['normalized_return']:.2f})"
    return "" if row.get("return_mean") is None else f"{row['return_mean']:.0f}"
