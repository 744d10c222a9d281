"""Who is told of an evaluation: `metrics.csv`, TensorBoard, and loggers and callbacks of the user's own."""

from __future__ import annotations

import csv
import io
import socket
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from valuedice.policy import Policy
from valuedice.system.files import write_whole
from valuedice.types import Metrics


@dataclass(frozen=True)
class Progress:
    """What a callback sees after an evaluation."""

    step: int
    """Environment steps so far; 0 offline."""
    updates: int
    metrics: Metrics
    """The row of this evaluation, as in `metrics.csv`."""
    policy: Policy


class Logger(Protocol):
    """Receives the row of each evaluation. It is closed when the run ends, however it ends."""

    def log(self, row: Metrics) -> None:
        """One evaluation; None is a value that was not measured."""
        ...

    def close(self) -> None:
        """Called once, at the end."""
        ...


class MetricsFile:
    """`metrics.csv`, written whole each time. Begins with the rows of a resumed run."""

    def __init__(self, folder: Path, rows: list[Metrics]) -> None:
        self.path, self.rows = folder / "metrics.csv", list(rows)
        self.path.unlink(missing_ok=True)
        if rows:
            self._write()

    def log(self, row: Metrics) -> None:
        """Adds a row."""
        self.rows.append(row)
        self._write()

    def _write(self) -> None:
        # A row before the first update has fewer columns than the others.
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows([format_cell(row.get(name)) for name in columns] for row in self.rows)
        write_whole(self.path, text.getvalue())

    def close(self) -> None:
        """Everything is written already."""


class TensorBoard:
    """TensorBoard events, each written at once. Begins with the rows of a resumed run."""

    def __init__(self, folder: Path, rows: list[Metrics]) -> None:
        # Imported here: it takes a second that `valuedice --help` should not.
        from tensorboardX.record_writer import RecordWriter

        # Protocol buffers are made at run time, unknown to type checkers.
        self._event: Any = import_module("tensorboardX.proto.event_pb2").Event
        self._summary: Any = import_module("tensorboardX.proto.summary_pb2").Summary
        for stale in folder.glob("events.out.tfevents.*"):
            stale.unlink()
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        # Not TensorBoard's usual writer, which is a thread whose failures nobody sees.
        self._writer: Any = RecordWriter(str(folder / name))
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        for row in rows:
            self.log(row)

    def log(self, row: Metrics) -> None:
        """One event with all numbers of the row."""
        values = {
            name: value for name, value in row.items() if value is not None and name not in ("step", "updates")
        }
        summary = self._summary(
            value=[self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        )
        self._write(self._event(wall_time=time.time(), step=row["step"] or row["updates"], summary=summary))

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


def format_cell(value: Any) -> str:
    """Integers as they are, other numbers with the digits of float32, nothing for None."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int | str) else f"{float(value):.7g}"
