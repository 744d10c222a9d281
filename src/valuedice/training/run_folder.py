"""A run folder: configuration, metrics, TensorBoard events, policy, checkpoints, summary."""

from __future__ import annotations

import errno
import os
import time
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from valuedice.errors import DivergenceError, InputError, Interrupted
from valuedice.policy import Policy
from valuedice.replay import Replay
from valuedice.system.files import write_json, write_whole
from valuedice.system.machine import hardware, versions
from valuedice.training.checkpoint import Arrays, Checkpoints, Part
from valuedice.training.loggers import Logger, MetricsFile, TensorBoard
from valuedice.training.stored import FORMAT, StoredConfig, check_unchanged
from valuedice.types import Metrics

try:
    import fcntl
except ImportError:  # Windows, where a folder is not locked
    fcntl = None


class RunFolder:
    """What a run leaves behind, and what it continues from. Created only after all input has been checked.

    Without a path the run is kept in memory only.
    """

    def __init__(
        self,
        path: Path | None,
        config: StoredConfig,
        parts: Mapping[str, Part],
        replay: Replay | None,
        *,
        resume: bool = False,
        begin: float | None = None,
    ) -> None:
        self.path, self.config, self.parts, self.replay = path, config, parts, replay
        self.done = 0
        """Steps (offline: updates) so far."""
        self.rows: list[Metrics] = []
        """One for each evaluation."""
        self.saved: int | None = None
        """The count of the last checkpoint."""
        self._begin = time.monotonic() if begin is None else begin
        self._due = time.monotonic() + config.settings["checkpoint_seconds"]
        self._seconds_before = 0.0
        self._loggers: list[Logger] = []
        self._lock: IO[str] | None = None
        if path is None:
            return
        check_folder(path, config, resume=resume)
        with self.writing():
            (path / "checkpoint").mkdir(parents=True, exist_ok=True)
            self._lock = lock(path)
        self._checkpoints = Checkpoints(path / "checkpoint")

    @property
    def seconds(self) -> float:
        """Working time, including the time before an interruption."""
        return self._seconds_before + time.monotonic() - self._begin

    @property
    def when(self) -> str:
        """How far the run is, for messages."""
        return f"{self.done:,} {self.config.unit}"

    @contextmanager
    def writing(self) -> Generator[None]:
        """Turns a failed write into one line that says what to do."""
        try:
            yield
        except OSError as error:
            assert self.path is not None
            advice = "choose another `out`"
            if (self.path / "config.json").exists():
                first = "free some space" if error.errno == errno.ENOSPC else "fix that"
                advice = f"{first}, then continue with: {self.config.resume_call(self.path)}"
            raise InputError(f"cannot write to {self.path} ({error.strerror}); {advice}") from None

    def restore(self, total: int) -> None:
        """Brings the run to its last checkpoint, if there is one. Rows written after it are discarded."""
        if self.path is None:
            return
        saved = self._checkpoints.load()
        if saved is not None:
            facts = saved.facts
            self.done = self.saved = facts["done"]
            if self.done > total:
                raise InputError(
                    f"{self.path} has already made {self.when}, more than the {total:,} asked for; ask for more"
                )
            self.rows, self._seconds_before = facts["rows"], facts["seconds"]
            if self.replay is not None:
                self.replay.clear()
                saved.fill(self.replay)
            for name, part in self.parts.items():
                part.restore(below(saved.arrays, name), facts["parts"][name])
            changed = [f"{n} was {old}" for n, old in facts["versions"].items() if versions().get(n) != old]
            if changed:
                warnings.warn(
                    f"versions have changed since the last checkpoint ({', '.join(changed)}): the run continues, "
                    "but not bit for bit",
                    stacklevel=2,
                )
        with self.writing():
            if self.done < total:
                # The run goes on, so what an earlier end said of it is over.
                (self.path / "summary.json").unlink(missing_ok=True)
            write_json(self.path / "config.json", self.config.as_json())
            self._loggers = [MetricsFile(self.path, self.rows), TensorBoard(self.path, self.rows)]

    def log(self, row: Metrics, last: Policy | None, kept: Policy | None) -> None:
        """One evaluation, the policy that it measured, and the one that the run would end with; None leaves the
        files as they are."""
        self.rows.append(row)
        if self.path is None:
            return
        with self.writing():
            for logger in self._loggers:
                logger.log(row)
        self.write_policies(last, kept)

    def write_policies(self, last: Policy | None, kept: Policy | None) -> None:
        """The policy of the last evaluation, and the one that the run ends with."""
        if self.path is None:
            return
        with self.writing():
            for name, policy in (("policy-last", last), ("policy", kept)):
                if policy is not None:
                    write_whole(self.path / f"{name}.safetensors", policy.to_bytes())

    def save(self, *, now: bool = False) -> None:
        """A checkpoint, if it is time for one."""
        if self.path is None or not (now or time.monotonic() >= self._due):
            return
        arrays: Arrays = {}
        about: dict[str, Any] = {"done": self.done, "rows": self.rows, "seconds": self.seconds, "parts": {}}
        for name, part in self.parts.items():
            found, about["parts"][name] = part.save()
            arrays |= {f"{name}/{place}": array for place, array in found.items()}
        check_finite(below(arrays, "learner"), self.when)
        with self.writing():
            self._checkpoints.save(arrays, about | {"versions": versions()}, self.replay)
        self.saved = self.done
        self._due = time.monotonic() + self.config.settings["checkpoint_seconds"]

    def kept(self) -> str:
        """What is left of a run that ends early."""
        if self.path is None:
            return "nothing was saved, because the run has no folder"
        if self.saved is None:
            return f"{self.path} holds no checkpoint yet"
        return f"{self.path} holds the checkpoint at {self.saved:,} {self.config.unit}"

    def stop(self, signum: int | None, *, save: bool) -> NoReturn:
        """Saves, if allowed, and ends the run because of a signal."""
        if save:
            self.save(now=True)
        message = f"stopped after {self.when}; {self.kept()}"
        if self.path is not None:
            message += f"; continue with: {self.config.resume_call(self.path)}"
        assert signum is not None
        raise Interrupted(signum, message)

    def finish(self, final: Metrics) -> None:
        """The end of a complete run: `summary.json` with the headline, the last row, the row of the highest return,
        versions and hardware."""
        if self.path is None:
            return
        scored = [row for row in self.rows if row["return_mean"] is not None]
        best = max(scored, key=lambda row: row["return_mean"]) if scored else None
        last = self.rows[-1] if self.rows else None
        about = {"format": FORMAT, "final": final, "last": last, "best": best}
        about |= {"versions": versions(), "hardware": hardware()}
        with self.writing():
            write_json(self.path / "summary.json", about)

    def close(self) -> None:
        """Releases the folder."""
        for logger in self._loggers:
            # A disk that refused to write has been reported already.
            with suppress(OSError):
                logger.close()
        if self._lock is not None:
            self._lock.close()


def below(arrays: Arrays, name: str) -> Arrays:
    """The arrays of one part."""
    return {
        place.removeprefix(f"{name}/"): array for place, array in arrays.items() if place.startswith(f"{name}/")
    }


def check_finite(arrays: Arrays, when: str) -> None:
    """A broken state never replaces a good checkpoint."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DivergenceError(f"Training diverged: {name} is not finite after {when}.")


def lock(path: Path) -> IO[str]:
    """Held while the file is open; the system releases it when the process ends, however it ends."""
    file = (path / ".lock").open("w")
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise InputError(f"another run is using {path}; wait for it, or choose another folder") from None
    return file


def check_folder(path: Path | None, config: StoredConfig, *, resume: bool) -> None:
    """Another run's results are never overwritten, and a run is never resumed with other settings."""
    if path is None:
        return
    if resume:
        check_unchanged(path, config)
        return
    # Not the methods of Path, which raise on a name that is too long.
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"{path} is a file; give a folder as `out`")
    if any(
        os.path.exists(path / name) for name in ("config.json", "metrics.csv", "policy.safetensors", "summary.json")
    ):
        raise InputError(f"{path} already holds a run; choose another `out`, remove that folder, or resume it")
