"""One run, killed again and again: in start-up, between evaluations, inside checkpoint writes, at the end."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Literal

from harness import Launcher, command, killed, options, partial, rows, same, saved, wait_until

Moment = Literal["start", "row", "write", "end"]


@dataclass
class Series:
    """What became of a run that was killed many times."""

    algorithm: str
    task: str
    kills: int = 0
    kept: int = 0
    """Kills that left a checkpoint."""
    torn: int = 0
    """Kills in the middle of writing one."""
    identical: bool = False
    seconds: float = 0.0


def kill_series(
    launcher: Launcher, algorithm: str, task: str, whole: Path, out: Path, plan: list[Moment], seed: int
) -> Series:
    """Kills and resumes as planned, lets the run end, and compares it with the one that was left alone."""
    rng, begin, series = random.Random(seed), time.monotonic(), Series(algorithm, task)
    last, done = rows(whole), 0
    for number, moment in enumerate(plan):
        # Killed before it had a configuration, a run is not there yet and is simply begun again.
        there = (out / "config.json").exists()
        begun = ["--resume", str(out)] if there else [*options(algorithm, task), "--out", str(out)]
        before, stale = rows(out), partial(out)
        process = launcher.start(command(algorithm), *begun)
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
        ended = killed(process)
        # A run may win the race to its end, and then is no kill.
        assert ended.code == -SIGKILL or (ended.code == 0 and rows(out) == last)
        assert ended.said == ""
        progress = saved(out)
        if ended.code == -SIGKILL:
            series.kills += 1
            series.kept += progress is not None
            series.torn += bool(partial(out) - stale)
        assert (progress or 0) >= done, "a kill cost progress that had been saved"
        done = progress or 0
    ended = launcher.run(command(algorithm), "--resume", out)
    assert (ended.code, ended.said) == (0, "")
    assert not partial(out)
    series.identical = same(out, whole)
    series.seconds = round(time.monotonic() - begin, 1)
    return series


def plan_of(kills: int, seed: int) -> list[Moment]:
    """A fifth in start-up, two fifths inside a checkpoint, the rest between; the last one at the very end."""
    shares: dict[Moment, int] = {"start": kills // 5, "write": 2 * kills // 5}
    shares["row"] = kills - 1 - sum(shares.values())
    moments: list[Moment] = [moment for moment, times in shares.items() for _ in range(times)]
    random.Random(seed).shuffle(moments)
    return [*moments, "end"]
