"""What a person watches: a live bar in a terminal, a line for each evaluation elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from valuedice.types import Metrics

Show = Literal["auto", "none"]


class RateColumn(ProgressColumn):
    """Steps and updates a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed or 0.0
        unit = task.fields["unit"]
        updates = "" if unit == "updates" else f", {task.fields['update_rate']:.0f} updates/s"
        return Text(f"{speed:.0f} {unit}/s{updates}", style="cyan")


class Watch:
    """Shows how far a run is. `unit` is what `total` counts, `start` and `updates` where it begins."""

    def __init__(self, show: Show, name: str, total: int, unit: str, goal: str, start: int, updates: int) -> None:
        self.show, self.name, self.total, self.unit, self.start = show, name, total, unit, start
        self.goal = f" ({goal})" if goal else ""
        self.console = Console(file=sys.stderr)
        self.live = show == "auto" and self.console.is_terminal
        self.begin = time.monotonic()
        self.done = start
        self.updates = updates
        self._last = (self.begin, updates)
        if self.live:
            self.progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                RateColumn(),
                TimeRemainingColumn(compact=True, elapsed_when_finished=True),
                TextColumn("{task.fields[result]}"),
                console=self.console,
            )
            self.task = self.progress.add_task(
                escape(name), total=total, completed=start, unit=unit, update_rate=0.0, result=""
            )
            self.progress.start()

    def advance(self, done: int, updates: int) -> None:
        """Called after every step or compiled call."""
        self.done, self.updates = done, updates
        if self.live:
            self.progress.update(self.task, completed=done)
            if time.monotonic() - self._last[0] > 2:
                self.progress.update(self.task, update_rate=self._update_rate())

    def evaluated(self, row: Metrics) -> None:
        """Called after every evaluation."""
        parts = []
        if row["return_mean"] is not None:
            parts.append(f"return {row['return_mean']:.0f} ± {row['return_std']:.0f}{self.goal}")
        if row["kl_estimate"] is not None:
            parts.append(f"KL {row['kl_estimate']:.3g}")
        result = ", ".join(parts)
        if self.live:
            self.progress.update(self.task, result=result)
        elif self.show == "auto":
            remaining = (time.monotonic() - self.begin) / max(self.done - self.start, 1) * (self.total - self.done)
            clock = f"{self._update_rate():.0f} updates/s, {remaining / 60:.1f} min left"
            self.say(f"{self.name}: {self.done:,}/{self.total:,} {self.unit}, {result or 'no evaluation'}, {clock}")

    def _update_rate(self) -> float:
        """Since it was last asked for."""
        now, (then, before) = time.monotonic(), self._last
        self._last = (now, self.updates)
        return (self.updates - before) / max(now - then, 1e-9)

    def say(self, line: str) -> None:
        """One line beside the bar."""
        if self.show == "auto":
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the terminal as it was."""
        if self.live:
            self.progress.stop()
