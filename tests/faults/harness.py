"""Runs of the command line as processes of their own, ways to end them, and runs that are killed many times."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any, Literal

from commanding import small_flags
from resuming import same

from valuedice.system.machine import THREADS
from valuedice.training.checkpoint import SLOTS, read_slot

EVERY: dict[str, Any] = {"eval_episodes": 1, "checkpoint_seconds": 0.05, "threads": 1, "quiet": True}
ONLINE: dict[str, Any] = EVERY | {"env": "Pendulum-v1", "demos": "pendulum", "episodes": 1, "eval_every": 50}
OFFLINE: dict[str, Any] = EVERY | {"eval_env": "Pendulum-v1", "demos": "pendulum", "episodes": 1, "offline": True}
TASKS: dict[str, dict[str, Any]] = {
    "quick": ONLINE | {"steps": 300},
    "quick-offline": OFFLINE | {"updates": 1600, "eval_every": 200},
    "online": ONLINE | {"steps": 1500},
    "offline": OFFLINE | {"updates": 6000, "eval_every": 200},
    "discrete": ONLINE | {"env": "CartPole-v1", "demos": "cartpole", "steps": 1500},
    # Updates of cloning are so quick that a shorter run ends before it can be killed.
    "cloning": OFFLINE | {"updates": 60000, "eval_every": 1000},
    "expert": EVERY | {"env": "Pendulum-v1", "target_return": 1e9, "max_steps": 1500, "eval_every": 50},
}
PATIENCE = 600.0
"""Seconds after which a process that does not do what is waited for is at fault."""
Whole = Callable[[str, str], Path]


def options(algorithm: str, task: str, **changes: Any) -> list[str]:
    """The command that trains a small run of a task."""
    command = ["expert"] if algorithm == "sac" else ["train", algorithm]
    return [*command, *small_flags(algorithm, **(TASKS[task] | changes))]


def resumed(out: Path | str, command: str = "train") -> list[str]:
    """The command that resumes a run."""
    return [command, "--resume", str(out), "--quiet"]


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said on the error stream."""

    code: int
    said: str

    @property
    def done(self) -> bool:
        """Whether it ended well, without a word."""
        return (self.code, self.said) == (0, "")

    @property
    def refused(self) -> bool:
        """Whether it ended as a user should meet bad input: with one line."""
        return self.code == 2 and self.said.count("\n") == 1 and self.said.startswith("valuedice: error: ")


class Launcher:
    """Starts processes that share a place for compiled code; none of them outlives a test."""

    def __init__(self, cache: Path) -> None:
        dropped = {*THREADS, "JAX_COMPILATION_CACHE_DIR"}
        self.env = {name: value for name, value in os.environ.items() if name not in dropped}
        self.env["XDG_CACHE_HOME"] = str(cache)
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *args: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "valuedice.cli", *map(str, args)]
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=self.env, cwd=cwd, **pipes)
        self._started.append(process)
        return process

    def run(self, *args: str | Path, cwd: Path | None = None) -> Ended:
        return end_of(self.start(*args, cwd=cwd))

    def until_row(self, out: Path, *args: str | Path) -> subprocess.Popen[str]:
        """Starts a run, and returns when it has logged one more evaluation and holds a checkpoint."""
        before, process = rows(out), self.start(*args)
        assert wait_until(process, lambda: rows(out) > before and saved(out) is not None)
        return process

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def end_of(process: subprocess.Popen[str], *signums: Signals) -> Ended:
    """Sends signals, and waits until the process has ended."""
    for signum in signums:
        process.send_signal(signum)
        time.sleep(0.002)
    _, said = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, said)


def wait_until(process: subprocess.Popen[str], condition: Callable[[], bool], pause: float = 0.001) -> bool:
    """Whether the condition became true while the process lived."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None:
            return condition()
        assert time.monotonic() < limit, "the process neither ended nor did what was waited for"
        time.sleep(pause)
    return True


def rows(out: Path) -> int:
    """Evaluations in `metrics.csv`."""
    with suppress(FileNotFoundError):
        return max(0, (out / "metrics.csv").read_text().count("\n") - 1)
    return 0


def partial(out: Path) -> set[tuple[str, int]]:
    """Checkpoints that are being written, or were when a process ended: the slot, and when."""
    found: set[tuple[str, int]] = set()
    for slot in SLOTS:
        with suppress(FileNotFoundError):
            found.add((slot, (out / "checkpoint" / slot / ".state.partial").stat().st_mtime_ns))
    return found


def saved(out: Path) -> int | None:
    """Steps (offline: updates) of the newest checkpoint; a damaged slot is an error."""
    found = [slot for name in SLOTS if (slot := read_slot(out / "checkpoint" / name)) is not None]
    return max(found, key=lambda slot: slot.number).facts["done"] if found else None


Moment = Literal["start", "row", "write", "end"]
"""In start-up, between evaluations, inside a checkpoint write, at the end."""


@dataclass
class Series:
    """What became of a run that was killed many times."""

    algorithm: str
    task: str
    kills: int = 0
    kept: int = 0
    """Kills that left a checkpoint."""
    torn: int = 0
    """Kills while one was being written."""
    identical: bool = False
    seconds: float = 0.0


def kill_series(
    launcher: Launcher, algorithm: str, task: str, whole: Path, out: Path, plan: list[Moment], seed: int
) -> Series:
    """Kills and resumes a run as planned, lets it end, and compares it with the one that was left alone."""
    rng, begin, series = random.Random(seed), time.monotonic(), Series(algorithm, task)
    last, done, begun = rows(whole), 0, options(algorithm, task)
    for number, moment in enumerate(plan):
        # Killed before it had a configuration, a run does not exist yet and is begun again.
        exists = (out / "config.json").exists()
        before, stale = rows(out), partial(out)
        process = launcher.start(*(resumed(out, begun[0]) if exists else [*begun, "--out", str(out)]))
        step = rng.randint(1, max(1, 2 * (last - 1 - before) // (len(plan) - number)))
        if moment == "start":
            time.sleep(rng.uniform(0.0, 3.0))
        else:
            target = last if moment == "end" else min(before + step, last - 1)
            wait_until(process, lambda target=target: rows(out) >= target)
        if moment == "row":
            time.sleep(rng.uniform(0.0, 0.1))
        elif moment == "write":
            wait_until(process, lambda stale=stale: bool(partial(out) - stale), pause=0.0)
        ended = end_of(process, SIGKILL)
        # A run may win the race to its end; that is no kill.
        assert ended.code == -SIGKILL or (ended.code == 0 and rows(out) == last)
        assert ended.said == ""
        progress = saved(out)
        if ended.code == -SIGKILL:
            series.kills += 1
            series.kept += progress is not None
            series.torn += bool(partial(out) - stale)
        assert (progress or 0) >= done, "a kill cost progress that had been saved"
        done = progress or 0
    assert launcher.run(*resumed(out, begun[0])).done
    assert not partial(out)
    series.identical = same(out, whole)
    series.seconds = round(time.monotonic() - begin, 1)
    return series


def plan_of(kills: int, seed: int) -> list[Moment]:
    """A fifth in start-up, two fifths inside a checkpoint write, the rest between; the last one at the very end."""
    shares: dict[Moment, int] = {"start": kills // 5, "write": 2 * kills // 5}
    shares["row"] = kills - 1 - sum(shares.values())
    moments: list[Moment] = [moment for moment, times in shares.items() for _ in range(times)]
    random.Random(seed).shuffle(moments)
    return [*moments, "end"]
