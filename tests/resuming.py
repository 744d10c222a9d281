"""Runs that are short, runs that end in the middle, and what two equal runs share."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from small import small

import valuedice as vd
from valuedice.training.run import read_final
from valuedice.training.run_folder import RunFolder
from valuedice.types import Metrics

ONLINE: dict[str, Any] = {"steps": 24, "eval_every": 4, "eval_episodes": 2, "quiet": True}
OFFLINE: dict[str, Any] = {"updates": 450, "eval_every": 75, "quiet": True}


def train(demos: Any, env: Any = None, out: Any = None, algorithm: Any = None, **changes: Any) -> vd.Run:
    """A short run, by default of small ValueDICE; without an environment, an offline one."""
    settings = OFFLINE if env is None or changes.get("offline") else ONLINE
    return vd.train(small() if algorithm is None else algorithm, demos, env, out=out, **(settings | changes))


class KilledError(Exception):
    """The process has ended."""


def killed_after(saves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every round ends in a checkpoint, and the process dies two rounds after so many of them."""
    save, count = RunFolder.save, 0

    def counting(self: RunFolder, *, now: bool = False) -> None:
        nonlocal count
        count += 1
        if count > saves + 2:
            raise KilledError
        if count <= saves:
            save(self, now=True)

    monkeypatch.setattr(RunFolder, "save", counting)


@contextmanager
def killed(saves: int) -> Generator[None, None, None]:
    """The run in this block is killed after so many checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        killed_after(saves, patch)
        with pytest.raises(KilledError):
            yield


def killed_and_resumed(saves: int, *args: Any, **settings: Any) -> vd.Run:
    """What `train` returns with these arguments, if the run is killed once on the way."""
    with killed(saves):
        train(*args, **settings)
    return train(*args, **settings, resume=True)


class Result(NamedTuple):
    """What two equal runs share."""

    last: bytes
    """The policy of the last evaluation."""
    kept: bytes
    """The policy that the run ends with."""
    rows: list[str]
    """Metrics, without the clock."""
    final: Metrics | None
    """The headline; None if the run has not finished."""


def result(path: Path) -> Result:
    """The result in a run folder."""
    last, kept = ((path / f"{name}.safetensors").read_bytes() for name in ("policy-last", "policy"))
    lines = (path / "metrics.csv").read_text().splitlines()
    rows = [",".join(cell for place, cell in enumerate(line.split(",")) if place != 2) for line in lines]
    return Result(last, kept, rows, read_final(path))


def same(left: Path, right: Path) -> bool:
    """Whether two run folders hold the same result, bit for bit."""
    return result(left) == result(right)
