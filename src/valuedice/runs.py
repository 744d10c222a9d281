"""A run folder: `config.json`, `metrics.csv`, TensorBoard events, `policy.safetensors`, `summary.json`."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

from valuedice.errors import InputError
from valuedice.machine import hardware, versions
from valuedice.policy import Policy
from valuedice.types import Metrics

FORMAT = 1


class RunFolder:
    """What a run leaves behind. Created only after everything the user gave has been checked."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path = path
        refuse_other_run(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_json(path / "config.json", {"format": FORMAT, **config})
        except OSError as error:
            raise InputError(f"cannot write to {path} ({error.strerror}); choose another --out") from None
        # Imported here: it takes a second that `valuedice --help` should not.
        from tensorboardX import SummaryWriter

        self._events = SummaryWriter(str(path), write_to_disk=True)
        self._columns: list[str] = []
        self._rows: list[Metrics] = []

    def log(self, row: Metrics) -> None:
        """One evaluation, to `metrics.csv` and TensorBoard; None becomes an empty cell."""
        # A row before the first update has fewer columns than the others.
        new = [name for name in row if name not in self._columns]
        self._columns += new
        self._rows.append(row)
        with (self.path / "metrics.csv").open("w" if new else "a", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([self._columns] if new else [])
            for each in self._rows if new else [row]:
                writer.writerow([format_cell(each.get(name)) for name in self._columns])
        clock = row["step"] or row["updates"]
        for name, value in row.items():
            if value is not None and name not in ("step", "updates"):
                self._events.add_scalar(name, value, clock)

    def save_policy(self, policy: Policy) -> None:
        """The policy of the latest evaluation, never the best of several."""
        policy.save(self.path / "policy.safetensors")

    def finish(self, rows: list[Metrics]) -> None:
        """`summary.json`: the last row, the best row, versions, hardware."""
        scored = [row for row in rows if row["return_mean"] is not None]
        best = max(scored, key=lambda row: row["return_mean"]) if scored else None
        write_json(
            self.path / "summary.json",
            {"last": rows[-1], "best": best, "versions": versions(), "hardware": hardware()},
        )
        self._events.close()


def refuse_other_run(path: Path) -> None:
    """Another run's results are never overwritten."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; give --out a folder")
    if any((path / name).exists() for name in ("config.json", "metrics.csv", "policy.safetensors", "summary.json")):
        raise InputError(f"{path} already holds a run; choose another --out, or remove that folder first")


def read_config(path: Path) -> dict[str, Any]:
    """Of a run folder."""
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path / 'config.json'} cannot be read ({error}); is {path} a run folder?") from None
    return config if isinstance(config, dict) else {}


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(partial, path)


def format_cell(value: Any) -> str:
    """Integers as they are, other numbers with the digits that float32 has, nothing for None."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int | str) else f"{float(value):.7g}"
