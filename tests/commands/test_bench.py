"""`valuedice bench`: what it prints and writes of numbers that are measured elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROW: dict[str, Any] = {"update_ms": 2.0, "limit_ms": 1.6, "ratio_to_limit": 1.25, "torch_ms": None} | {
    f"{name}_median": value
    for name, value in {"update_ms": 2.5, "limit_ms": 1.75, "ratio_to_limit": 1.4286, "torch_ms": None}.items()
}
TABLE = """\
algorithm    cores          update           limit         ratio           torch  best (median)
value-dice       1     2.00 (2.50)     1.60 (1.75)   1.25 (1.43)               -"""

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(autouse=True)
def _measured(monkeypatch) -> None:
    monkeypatch.setattr("valuedice.bench.rounds.measure", lambda *_: {"1": ROW})
    monkeypatch.setattr("valuedice.bench.rounds.growth", lambda _: [{"setting": "width 64", "gflop": 0.1}])
    monkeypatch.setattr("valuedice.bench.worker.PRODUCTS", {"value-dice": None})


def test_times_are_printed_beside_the_limit_and_written(run):
    result = run("bench", "--out", "speed.json", "--growth")
    assert result.code == 0
    assert result.out.startswith("machine ")
    assert result.out.endswith(f"{TABLE}\nwritten: speed.json\nsetting width 64  gflop 0.1\nwritten: growth.json\n")
    assert json.loads(Path("speed.json").read_text()) == {"value-dice": {"1": ROW}}


def test_what_cannot_be_measured_or_written_is_refused(refused, run):
    assert "--rounds is 0; it must be at least 1" in refused("bench", "--rounds", 0)
    result = run("bench", "--out", "no/folder.json")
    assert result.code == 2
    assert result.err.endswith("cannot write to no/folder.json (No such file or directory); choose another --out\n")
