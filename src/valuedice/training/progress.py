"""What a person watches: a live bar in a terminal; elsewhere a line for each evaluation. Other processes watch
`progress.json` in the run folder."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from valuedice.types import Metrics


class RateColumn(ProgressColumn):
    """Steps or updates a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed or 0.0
        return Text(f"{speed:.0f} {task.fields['unit']}/s", style="cyan", no_wrap=True)


class Bar(Progress):
    """A bar, and below it the last evaluation; side by side they would be too long for most terminals."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(task.fields["result"])


class Heartbeat:
    """`progress.json`: how far a run is, while it goes on."""

    SECONDS, MARKS = 2.0, 30

    def __init__(self, folder: Path, total: int, unit: str, start: int) -> None:
        self.path, self.total, self.unit = folder / "progress.json", total, unit
        self.begin = self.due = time.monotonic()
        # The rate is that of the last minute: the first steps, which train nothing, are quicker.
        self.marks = deque([(self.begin, start)], self.MARKS)

    def beat(self, done: int, last: Metrics) -> None:
        """Writes, if it is time to. It is no record, so a full disk does not matter here."""
        now = time.monotonic()
        if now < self.due:
            return
        (before, count), self.due = self.marks[0], now + self.SECONDS
        self.marks.append((now, done))
        content = {
            "done": done,
            "total": self.total,
            "unit": self.unit,
            "rate": (done - count) / max(now - before, 1e-9),
            "seconds": now - self.begin,
            "last": {name: last.get(name) for name in ("return_mean", "normalized_return", "distance")},
        }
        partial = self.path.with_suffix(".partial")
        with suppress(OSError):
            partial.write_text(json.dumps(content))
            os.replace(partial, self.path)

    def close(self) -> None:
        """The run has ended, however it ended."""
        for path in (self.path, self.path.with_suffix(".partial")):
            with suppress(OSError):
                path.unlink(missing_ok=True)


class Display:
    """Shows how far a run is. `unit` is what `total` counts, `start` is where it begins."""

    def __init__(
        self,
        name: str,
        total: int,
        unit: str,
        *,
        goal: str = "",
        start: int = 0,
        quiet: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.name, self.total, self.unit, self.start, self.quiet = name, total, unit, start, quiet
        self.goal = f" ({goal})" if goal else ""
        self.console = Console(file=sys.stderr)
        self.live = not quiet and self.console.is_terminal
        self.begin = time.monotonic()
        self.done = start
        self.last: Metrics = {}
        self.heartbeat = None if folder is None else Heartbeat(folder, total, unit, start)
        if self.live:
            self.progress = Bar(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=16),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                RateColumn(),
                TimeRemainingColumn(compact=True, elapsed_when_finished=True),
                console=self.console,
            )
            waiting = "no evaluation yet"
            self.task = self.progress.add_task(
                escape(name), total=total, completed=start, unit=unit, result=waiting
            )
            self.progress.start()

    def opening(self, done: int, total: int) -> None:
        """Called during a warm start."""
        text = f"warm start: {done:,} of {total:,} updates of cloning"
        if self.heartbeat is not None:
            self.heartbeat.beat(0, self.last)
        if self.live:
            self.progress.update(self.task, result=text)
        elif done == 0:
            self.say(f"{self.name}: {text}")

    def advance(self, done: int) -> None:
        """Called after every step or compiled call."""
        self.done = done
        if self.heartbeat is not None:
            self.heartbeat.beat(done, self.last)
        if self.live:
            self.progress.update(self.task, completed=done)

    def evaluated(self, row: Metrics) -> None:
        """Called after every evaluation."""
        parts: list[str] = []
        if row["return_mean"] is not None:
            parts.append(f"return {row['return_mean']:.0f} ± {row['return_std']:.0f}{self.goal}")
        if row["distance"] is not None:
            parts.append(f"distance {row['distance']:.3g}")
        if row["kl_estimate"] is not None:
            parts.append(f"KL {row['kl_estimate']:.3g}")
        result = ", ".join(parts)
        self.last = row
        if self.live:
            self.progress.update(self.task, result=result)
        elif not self.quiet:
            rate = max(self.done - self.start, 1) / max(time.monotonic() - self.begin, 1e-9)
            clock = f"{rate:.0f} {self.unit}/s, {(self.total - self.done) / rate / 60:.1f} min left"
            self.say(f"{self.name}: {self.done:,}/{self.total:,} {self.unit}, {result or 'evaluated'}, {clock}")

    def say(self, line: str) -> None:
        """Prints one line."""
        if not self.quiet:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the terminal as it was."""
        if self.heartbeat is not None:
            self.heartbeat.close()
        if self.live:
            self.progress.stop()
