"""What a person watches: a live bar in a terminal; elsewhere a line for each evaluation."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

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


class Display:
    """Shows how far a run is. `unit` is what `total` counts, `start` is where it begins."""

    def __init__(
        self, name: str, total: int, unit: str, *, goal: str = "", start: int = 0, quiet: bool = False
    ) -> None:
        self.name, self.total, self.unit, self.start, self.quiet = name, total, unit, start, quiet
        self.goal = f" ({goal})" if goal else ""
        self.console = Console(file=sys.stderr)
        self.live = not quiet and self.console.is_terminal
        self.begin = time.monotonic()
        self.done = start
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

    def advance(self, done: int) -> None:
        """Called after every step or compiled call."""
        self.done = done
        if self.live:
            self.progress.update(self.task, completed=done)

    def evaluated(self, row: Metrics) -> None:
        """Called after every evaluation."""
        parts: list[str] = []
        if row["return_mean"] is not None:
            parts.append(f"return {row['return_mean']:.0f} ± {row['return_std']:.0f}{self.goal}")
        if row["kl_estimate"] is not None:
            parts.append(f"KL {row['kl_estimate']:.3g}")
        result = ", ".join(parts)
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
        if self.live:
            self.progress.stop()
