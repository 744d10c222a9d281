"""What a person watches: a live table in a terminal; elsewhere a line for each run that starts or ends."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from valuedice.sweep.board import STATES, Board, Entry, counted
from valuedice.sweep.store import QUIET_SECONDS

COLOURS = {"running": "cyan", "waiting": "dim", "stopped": "yellow", "failed": "red", "finished": "green"}
SHOWN = 12
"""Runs in the live table; running ones come first."""


class Screen:
    """Shows how far a sweep is."""

    def __init__(self, board: Board, *, quiet: bool = False) -> None:
        self.board, self.quiet = board, quiet
        self.console = Console(file=sys.stderr)
        self._live: Live | None = None
        if not quiet and self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the terminal as it was, with the last state above the prompt."""
        if self._live is not None:
            self._live.stop()
            self.console.print(table(self.board.entries, None))

    def update(self, jobs: int) -> None:
        """Called several times a second."""
        if self._live is not None:
            self._live.update(table(self.board.entries, self.board.remaining(jobs)))

    def started(self, name: str) -> None:
        """A run begins or goes on."""
        entry = self.board.entries[name]
        self._say(f"{name}: {'tried again' if entry.attempts else 'started'}")

    def ended(self, name: str) -> None:
        """A run is over, for now or for good."""
        entry = self.board.entries[name]
        about = entry.error or (f"return {entry.result}" if entry.result else "")
        state = {"waiting": "will be tried again"}.get(entry.state, entry.state)
        self._say(f"{name}: {state}{f' ({about})' if about else ''}; {counted(self.board.entries)}")

    def _say(self, line: str) -> None:
        if self._live is None and not self.quiet:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def table(entries: dict[str, Entry], remaining: float | None, *, everything: bool = False) -> Group:
    """The runs that go on, those that failed, and as many of the others as fit."""
    names = sorted(entries, key=lambda name: STATES.index(entries[name].state))
    shown = names if everything else names[:SHOWN]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("run", "", "", "rate", "left", "return"):
        grid.add_column(title, overflow="fold", justify="right" if title in ("rate", "left") else "left")
    for name in shown:
        entry = entries[name]
        colour = COLOURS[entry.state]
        counted = f"{entry.done:,}/{entry.total:,}" if entry.total else ""
        going = entry.state == "running"
        grid.add_row(
            Text(name, style=colour),
            ProgressBar(total=entry.total or 1, completed=done(entry), width=10),
            Text(counted if going else entry.state, style=colour),
            f"{entry.rate:.0f} {entry.unit}/s" if going and entry.rate else "",
            clock(entry.remaining) if going else "",
            Text(entry.error, style="red") if entry.error else Text(entry.result),
        )
    return Group(grid, Text(footer(entries, remaining, len(names) - len(shown))))


def done(entry: Entry) -> float:
    """How much of the bar is full."""
    return (entry.total or 1) if entry.state == "finished" else entry.done


def footer(entries: dict[str, Entry], remaining: float | None, hidden: int) -> str:
    """The whole sweep in one line."""
    total = sum(entry.total or 1 for entry in entries.values())
    share = sum(done(entry) for entry in entries.values()) / max(total, 1)
    about = f"{len(entries)} run{'' if len(entries) == 1 else 's'}: {counted(entries)}; {share:.0%}"
    if remaining is not None and any(entry.state in ("running", "waiting") for entry in entries.values()):
        about += f", about {clock(remaining)} left"
    return about + (f"; {hidden} not shown" if hidden else "")


def clock(seconds: float | None) -> str:
    """A duration for people."""
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


def status(content: dict[str, Any]) -> tuple[Group, str]:
    """`status.json` as a table, and a line about whether the sweep goes on."""
    entries = {name: Entry(**entry) for name, entry in content["runs"].items()}
    age = time.time() - content["time"]
    note = ""
    if content["over"]:
        note = "the sweep has ended"
    elif age > QUIET_SECONDS:
        note = f"the sweep has not been heard of for {clock(age)}: it has died or is paused"
    return table(entries, None if note else content["remaining"], everything=True), note
