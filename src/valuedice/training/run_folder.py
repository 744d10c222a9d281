"""A run folder: configuration, metrics, TensorBoard events, policy, checkpoints, summary."""

from __future__ import annotations

import csv
import errno
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from valuedice.checkpoint import Checkpoints
from valuedice.errors import InputError
from valuedice.files import write_json, write_whole
from valuedice.machine import hardware, versions
from valuedice.policy import Policy
from valuedice.types import Metrics

try:
    import fcntl
except ImportError:  # Windows, where a folder is not locked
    fcntl = None

FORMAT = 3
"""1 had no checkpoints; 2 other settings of SAC."""
MAY_CHANGE = {"format", "steps", "updates", "eval_every", "checkpoint_seconds", "demos", "replay_data", "command"}
MAY_CHANGE |= {"target_return"}
"""Settings that a resumed run may have changed: they do not decide what is learned. That the demonstrations are the
same is told by their fingerprint, not by their place."""


class RunFolder:
    """What a run leaves behind. Created only after everything the user gave has been checked."""

    def __init__(self, path: Path, config: dict[str, Any], resume: bool = False) -> None:
        self.path, self.config = path, {"format": FORMAT, **config}
        if resume:
            check_unchanged(path, self.config)
        else:
            refuse_other_run(path)
        with self.writing():
            (path / "checkpoint").mkdir(parents=True, exist_ok=True)
            self._lock = lock(path)
        self.checkpoints = Checkpoints(path / "checkpoint")
        self._events: Any = None
        self._rows: list[Metrics] = []

    @property
    def resume_command(self) -> str:
        """That goes on with the run."""
        return f"valuedice {command_of(self.config)} --resume {self.path}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A disk that refuses is one line, with what to do about it."""
        try:
            yield
        except OSError as error:
            advice = f"mend that, then go on with: {self.resume_command}"
            if not (self.path / "config.json").exists():
                advice = "choose another --out"
            elif error.errno == errno.ENOSPC:
                advice = f"free some space, then go on with: {self.resume_command}"
            raise InputError(f"cannot write to {self.path} ({error.strerror}); {advice}") from None

    def begin(self, rows: list[Metrics]) -> None:
        """Starts metrics and events with these rows; what an interrupted run wrote after them is dropped."""
        # Imported here: it takes a second that `valuedice --help` should not.
        from tensorboardX.record_writer import RecordWriter

        with self.writing():
            write_json(self.path / "config.json", self.config)
            for stale in self.path.glob("events.out.tfevents.*"):
                stale.unlink()
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
            self._events = RecordWriter(str(self.path / name))
            self._write_event(None)
            for row in rows:
                self._write_event(row)
            self._rows = list(rows)
            (self.path / "metrics.csv").unlink(missing_ok=True)
            if rows:
                self._write_metrics()

    def log(self, row: Metrics) -> None:
        """One evaluation, to `metrics.csv` and TensorBoard; None becomes an empty cell."""
        with self.writing():
            self._rows.append(row)
            self._write_metrics()
            self._write_event(row)

    def _write_metrics(self) -> None:
        # A row before the first update has fewer columns than the others.
        columns = list(dict.fromkeys(name for row in self._rows for name in row))
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows([format_cell(row.get(name)) for name in columns] for row in self._rows)
        write_whole(self.path / "metrics.csv", text.getvalue())

    def _write_event(self, row: Metrics | None) -> None:
        """A record of TensorBoard's, written at once: its usual writer is a thread, whose failures nobody sees."""
        # Made at run time, unknown to type checkers.
        Event: Any = import_module("tensorboardX.proto.event_pb2").Event  # noqa: N806
        Summary: Any = import_module("tensorboardX.proto.summary_pb2").Summary  # noqa: N806
        if row is None:
            event = Event(wall_time=time.time(), file_version="brain.Event:2")
        else:
            values = {k: v for k, v in row.items() if v is not None and k not in ("step", "updates")}
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
            event = Event(wall_time=time.time(), step=row["step"] or row["updates"], summary=summary)
        self._events.write(event.SerializeToString())
        self._events.flush()

    def save_policy(self, policy: Policy) -> None:
        """The policy of the latest evaluation, never the one with the best return of several."""
        with self.writing():
            write_whole(self.path / "policy.safetensors", policy.to_bytes())

    def finish(self, rows: list[Metrics]) -> None:
        """`summary.json`: the last row, the best row, versions, hardware."""
        scored = [row for row in rows if row["return_mean"] is not None]
        best = max(scored, key=lambda row: row["return_mean"]) if scored else None
        about = {"last": rows[-1], "best": best, "versions": versions(), "hardware": hardware()}
        with self.writing():
            write_json(self.path / "summary.json", {"format": FORMAT, **about})

    def close(self) -> None:
        """Lets go of the folder."""
        # A disk that refused has been spoken of already.
        with suppress(OSError):
            if self._events is not None:
                self._events.close()
        self._lock.close()


def lock(path: Path) -> IO[str]:
    """Held while the file is open: the system lets go of it when the process ends, however it ends."""
    file = (path / ".lock").open("w")
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise InputError(f"another run is using {path}; wait for it, or choose another folder") from None
    return file


def refuse_other_run(path: Path) -> None:
    """Another run's results are never overwritten."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; give --out a folder")
    if any((path / name).exists() for name in ("config.json", "metrics.csv", "policy.safetensors", "summary.json")):
        raise InputError(
            f"{path} already holds a run; choose another --out, remove that folder, or go on with --resume {path}"
        )


def check_unchanged(path: Path, config: dict[str, Any]) -> None:
    """A run is resumed with the settings that it began with."""
    old, new = read_config(path), json.loads(json.dumps(config))
    check_format(path, old)
    names = sorted((old.keys() | new.keys()) - MAY_CHANGE)
    changed = [f"{n} was {old.get(n)}, now {new.get(n)}" for n in names if old.get(n) != new.get(n)]
    if changed:
        raise InputError(
            f"{path} was begun with other settings: {'; '.join(changed)}; resume without these changes, or start a "
            "new run"
        )


def check_format(path: Path, config: dict[str, Any]) -> None:
    """Before anything else of a configuration is understood: another version may mean something else by it."""
    found = config.get("format")
    if found != FORMAT:
        needed = "a newer version of valuedice" if (found or 0) > FORMAT else "a new run, in another folder"
        raise InputError(f"{path} has format {found}, this version resumes {FORMAT}; it needs {needed}")


def read_config(path: Path) -> dict[str, Any]:
    """Of a run folder."""
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path / 'config.json'} cannot be read ({error}); is {path} a run folder?") from None
    if not isinstance(config, dict) or not isinstance(config.get("format", 0), int):
        raise InputError(f"{path / 'config.json'} holds something else; is {path} a run folder?")
    return config


def command_of(config: dict[str, Any]) -> str:
    """Which command made a run of this configuration."""
    return "expert" if "target_return" in config else "train"


def format_cell(value: Any) -> str:
    """Integers as they are, other numbers with the digits that float32 has, nothing for None."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int | str) else f"{float(value):.7g}"
