"""Runs that end in the middle, and what is compared when they were resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from valuedice.keeper import Keeper


class KilledError(Exception):
    """A process that ends at once."""


def killed_after(saves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every step is a checkpoint, and the process dies a little after so many of them."""
    save, count = Keeper.save, 0

    def counting(self: Keeper, now: bool = False) -> None:
        nonlocal count
        count += 1
        if count > saves + 2:
            raise KilledError
        if count <= saves:
            save(self, now=True)

    monkeypatch.setattr(Keeper, "save", counting)


def result(path: Path) -> tuple[bytes, list[str]]:
    """Policy and metrics, without the clock."""
    lines = (path / "metrics.csv").read_text().splitlines()
    return (path / "policy.safetensors").read_bytes(), [
        ",".join(cell for place, cell in enumerate(line.split(",")) if place != 2) for line in lines
    ]


def same(left: Path, right: Path) -> bool:
    return result(left) == result(right)
