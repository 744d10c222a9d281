"""Runs on the cores of this machine: one process for each run, pinned to cores of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from valuedice.errors import InputError
from valuedice.sweep.cell import Cell
from valuedice.sweep.worker import Outcome, Request, outcome, start
from valuedice.system.files import writing_to
from valuedice.system.machine import cores


@dataclass
class Job:
    """A run that goes on."""

    name: str
    process: subprocess.Popen[bytes]
    cores: tuple[int, ...]
    log: IO[bytes]
    begin: int
    """Where the log of this attempt begins."""
    told: bool = False
    """Whether it was told to stop."""


class LocalBackend:
    """`jobs` processes side by side, each with `threads` cores."""

    def __init__(self, out: str, jobs: int | None, threads: int) -> None:
        mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(cores()))
        if threads > len(mine):
            raise InputError(f"`threads` is {threads}, but this machine has {len(mine)} cores; lower it")
        self.jobs = jobs or len(mine) // threads
        self.out, self.threads = out, threads
        slots = [tuple(mine[i : i + threads]) for i in range(0, len(mine) - threads + 1, threads)]
        # With more jobs than cores, the system shares the cores among them.
        self._slots: list[tuple[int, ...]] = slots[: self.jobs] if self.jobs <= len(slots) else [()] * self.jobs
        self._running: list[Job] = []

    def free(self) -> int:
        """Slots without a run."""
        return len(self._slots)

    def start(self, cell: Cell) -> None:
        """Starts a process in a free slot."""
        place = self._slots.pop(0)
        log = self._log(cell)
        begin = log.seek(0, os.SEEK_END)
        process = start(Request(cell.as_json(), self.out, self.threads, place), log)
        self._running.append(Job(cell.name, process, place, log, begin))

    def _log(self, cell: Cell) -> IO[bytes]:
        """`log.txt` in the run folder; a sweep at a URL keeps none."""
        if "://" in self.out:
            return tempfile.TemporaryFile()
        folder = Path(self.out) / cell.name
        with writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / "log.txt").open("a+b")

    def ended(self) -> list[tuple[str, Outcome]]:
        """Processes that are over; their slots are free again."""
        over = [job for job in self._running if job.process.poll() is not None]
        found: list[tuple[str, Outcome]] = []
        for job in over:
            self._running.remove(job)
            self._slots.append(job.cores)
            job.log.seek(job.begin)
            found.append((job.name, outcome(job.process, job.log.read())))
            job.log.close()
        return found

    def stop(self) -> None:
        """Tells each process once; a second signal would end it without saving."""
        for job in self._running:
            if not job.told:
                job.process.send_signal(signal.SIGTERM)
                job.told = True

    def close(self) -> None:
        """After an error of our own: the runs save and end."""
        self.stop()
        for job in self._running:
            job.process.wait()
