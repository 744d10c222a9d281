"""One run of a sweep, in a process of its own: `valuedice sweep-run REQUEST`, which `start` calls.

The exit code is that of `valuedice train`, and the last line of the log says why it failed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from valuedice.errors import InputError
from valuedice.system.machine import THREADS

PR_SET_PDEATHSIG = 1
LOCK_SECONDS = 60.0
INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


class Outcome(NamedTuple):
    """How a run's process ended."""

    exit_code: int
    error: str = ""
    lost: bool = False
    """Whether the machine was lost, not the run."""

    @property
    def stopped(self) -> bool:
        """Whether the run was told to stop, and has saved."""
        return self.exit_code in INTERRUPTED


@dataclass(frozen=True)
class Request:
    """What a process needs to know to make a run."""

    cell: dict[str, Any]
    out: str
    """The folder or the URL of the sweep."""
    threads: int
    cores: tuple[int, ...] = ()
    """The cores to stay on; any, if there are none."""
    parent: int = 0
    """The process that starts this one."""


def start(request: Request, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts a process for a run. It is no part of the terminal's group: only its parent stops it."""
    request = replace(request, parent=os.getpid())
    return subprocess.Popen(
        [sys.executable, "-m", "valuedice.cli", "sweep-run", json.dumps(vars(request))],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=os.environ | dict.fromkeys(THREADS, str(request.threads)),
    )


def outcome(process: subprocess.Popen[bytes], log: bytes) -> Outcome:
    """How the process ended, with the last line that it wrote if it failed."""
    code = process.returncode
    if code == 0:
        return Outcome(0)
    if code < 0:
        return Outcome(code, f"killed by signal {-code} ({signal.Signals(-code).name})")
    lines = log.decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
    return Outcome(code, lines[-1].removeprefix("valuedice: ").removeprefix("error: "))


def run_request(text: str) -> None:
    """Makes the run that a request names, or continues it. Numpy and JAX are imported when the cores are set."""
    try:
        request = Request(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        raise InputError("sweep-run is for sweeps themselves; use valuedice sweep, or valuedice train") from None
    pin(request.cores)
    end_with(request.parent)
    from valuedice.sweep.cell import RING, cell_of
    from valuedice.sweep.store import store_of

    cell = cell_of(request.cell)
    with store_of(request.out).work(cell.name) as place:
        try:
            if cell.algorithm == RING:
                make_ring(place)
            else:
                make_run(cell, place, request.threads)
        finally:
            place.send(now=True)


def pin(cores: Collection[int]) -> None:
    """Keeps this process on its cores, where the system can."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def end_with(parent: int) -> None:
    """Has this process end, saved, when its parent dies. Otherwise it would keep its folder locked."""

    def orphaned(*_: object) -> None:
        # The system may say it once for each thread of the parent; a second SIGTERM would end the run unsaved.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.kill(os.getpid(), signal.SIGTERM)

    if sys.platform == "linux":
        signal.signal(signal.SIGUSR1, orphaned)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
        if os.getppid() != parent:
            raise SystemExit(128 + signal.SIGTERM)


def make_ring(place: Any) -> None:
    """The exact study, which takes a minute and is made whole."""
    from valuedice.ring.comparison import run_comparison
    from valuedice.ring.mdp import run_ring

    run_ring(place.folder)
    run_comparison(place.folder)


def wait_until_free(folder: Path) -> None:
    """Waits for an earlier process of the same run, which may still be saving."""
    from valuedice.training.run_folder import lock

    end = time.monotonic() + LOCK_SECONDS
    while (folder / ".lock").exists():
        try:
            lock(folder).close()
            return
        except InputError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def make_run(cell: Any, place: Any, threads: int) -> None:
    """A training run, new or from its last checkpoint."""
    from valuedice.system.machine import keep_compiled
    from valuedice.training.run import run_algorithm

    keep_compiled()
    algorithm, config = cell.built()
    wait_until_free(place.folder)
    resume = (place.folder / "config.json").exists()
    # After an evaluation nothing is being written, so the folder can be copied.
    config = replace(config, out=place.folder, resume=resume, threads=threads, on_evaluation=lambda _: place.send())
    run_algorithm(algorithm, config)
