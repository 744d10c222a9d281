"""`valuedice bench`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from valuedice.commands import parse, say
from valuedice.errors import InputError
from valuedice.system.files import write_json, writing_to


@dataclass(frozen=True)
class BenchOptions:
    """Measure milliseconds per update, next to the time of its matrix products alone and of PyTorch."""

    rounds: int = 12
    """Measurement rounds; more rounds give steadier numbers."""
    out: Path = Path("bench.json")
    """JSON file to write."""
    growth: bool = False
    """Also vary batch size, width and observation size, and write growth.json beside it."""


def bench_command(args: list[str]) -> int:
    """Prints a table and writes the numbers."""
    options = parse(BenchOptions, "bench", args)
    if options.rounds < 1:
        raise InputError(f"`rounds` is {options.rounds}; it must be at least 1")
    from valuedice.bench.rounds import growth, machine, measure
    from valuedice.bench.worker import PRODUCTS

    cores = sorted({1, len(os.sched_getaffinity(0))})
    say(machine())
    results = {}
    for name in PRODUCTS:
        results[name] = measure(
            {"name": name, "obs_size": 17, "action_size": 6, "overrides": {}}, cores, options.rounds
        )
    say(table(results))
    write(options.out, results)
    if options.growth:
        rows = growth(options.rounds)
        for row in rows:
            say("  ".join(f"{key} {value}" for key, value in row.items()))
        write(options.out.with_name("growth.json"), rows)
    return 0


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Best (median) of each, in milliseconds."""
    lines = [
        f"{'algorithm':12} {'cores':>5} {'update':>15} {'limit':>15} {'ratio':>13} {'torch':>15}  best (median)"
    ]
    for name, by_cores in results.items():
        for cores, row in by_cores.items():
            pairs = [
                (row[key], row[f"{key}_median"]) for key in ("update_ms", "limit_ms", "ratio_to_limit", "torch_ms")
            ]
            cells = ["-" if best is None else f"{best:.2f} ({median:.2f})" for best, median in pairs]
            lines.append(f"{name:12} {cores:>5} {cells[0]:>15} {cells[1]:>15} {cells[2]:>13} {cells[3]:>15}")
    return "\n".join(lines)


def write(path: Path, content: Any) -> None:
    """Writes JSON, and says where."""
    with writing_to(path):
        write_json(path, content)
    say(f"written: {path}")
