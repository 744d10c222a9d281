"""A small sweep that tests start as a process, kill, and compare with one that nobody disturbed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SUITE = """
description = "Two short runs of ValueDICE and one of cloning"
seeds = "0-1"
episodes = 2

[tasks.CartPole-v1]
demos = "cartpole"

[settings]
eval_episodes = 1
checkpoint_seconds = 0.1

[contestants.value-dice]
steps = 1500
eval_every = 100
warm_start = 200
training_starts = 100
random_steps = 100
hidden = [16]
batch_size = 16
"""
RUNS = ("CartPole-v1-2ep-value-dice-seed0", "CartPole-v1-2ep-value-dice-seed1")
PATIENCE = 300.0
"""Seconds after which a process that does not do what is waited for is at fault."""


def suite(folder: Path, text: str = SUITE) -> Path:
    """Writes the suite."""
    path = folder / "small.toml"
    path.write_text(text)
    return path


def begin(*args: object, **variables: str) -> subprocess.Popen[str]:
    """Starts `valuedice` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "valuedice.cli", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | variables,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for the end of a process that must succeed."""
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    return said


def wait_for(condition: Callable[[], object]) -> None:
    """Waits until something has happened."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def has_rows(run: Path, count: int = 3) -> bool:
    """Whether a run has made this many evaluations and goes on."""
    path = run / "metrics.csv"
    return path.exists() and len(path.read_text().splitlines()) > count and not (run / "summary.json").exists()


def processes(mark: str) -> list[int]:
    """Processes that have a certain word among their arguments or variables."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                about = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in about:
                found.append(int(entry.name))
    return found


def kill(mark: str) -> None:
    """Kills all of them at once, as a power cut does."""
    while found := processes(mark):
        for number in found:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


def results(out: Path, name: str) -> tuple[bytes, list[dict[str, str]]]:
    """What two equal runs share: the policy, and all metrics but the time."""
    with (out / name / "metrics.csv").open() as file:
        rows = [{key: cell for key, cell in row.items() if key != "wall_seconds"} for row in csv.DictReader(file)]
    return (out / name / "policy.safetensors").read_bytes(), rows


def same_runs(ours: Path, theirs: Path) -> bool:
    """Whether two sweeps have made the same runs, bit for bit."""
    assert len(results(theirs, RUNS[0])[1]) == 16
    return all(results(ours, name) == results(theirs, name) for name in RUNS)
