"""The folder of `valuedice ring`: its pictures, the KL that each method ends at, and the exact KL as a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from valuedice.report.folders import DamagedError, read_json
from valuedice.report.records import Row, Run, significant

PICTURES = {"ring.png": "Both experts and the learned policies", "comparison.png": "ValueDICE beside DAC"}


@dataclass(frozen=True)
class Ring:
    """What the page shows of a ring folder."""

    name: str
    pictures: tuple[tuple[str, bytes], ...]
    """Captions and PNG files."""
    table: tuple[tuple[str, ...], ...]
    """KL(dπ ‖ dE) at the end, by replay and method; the first line holds the names."""


def is_ring(folder: Path) -> bool:
    """Whether a folder is one of `valuedice ring`."""
    return (folder / "ring.json").is_file()


def read_ring(folder: Path, name: str) -> tuple[Run, Ring | None]:
    """The study of the stochastic expert as a run, and what the page shows. Damage makes it a failed run."""
    try:
        study = read_json(folder / "ring.json")
        compared = read_json(folder / "comparison.json") if (folder / "comparison.json").exists() else None
        curve: Sequence[tuple[int, float]] = study["stochastic"]["kl"]
        rows = tuple(Row(0, int(updates), kl_estimate=significant(float(kl))) for updates, kl in curve)
        settings: dict[str, Any] = dict(study["settings"])
        lines = tuple(replay_lines(compared["replay"])) if compared else ()
        files = [(caption, folder / file) for file, caption in PICTURES.items()]
        pictures = tuple((caption, path.read_bytes()) for caption, path in files if path.exists())
    except (DamagedError, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        reason = str(error) if isinstance(error, DamagedError) else f"ring.json has unexpected content ({error})"
        return Run(name, "Ring", algorithm="value-dice", status="failed", error=reason), None
    run = Run(
        name,
        task="Ring",
        contestant="ValueDICE, exact",
        title="ValueDICE, exact",
        algorithm="value-dice",
        seed=0,
        settings=settings,
        rows=rows,
    )
    return run, Ring(name, pictures, lines)


def replay_lines(replays: dict[str, Any]) -> list[tuple[str, ...]]:
    """A line for each fixed replay: the KL of the replay itself, of DAC and of ValueDICE."""
    first = next(iter(replays.values()))
    dac = [f"DAC τ={temperature}" for temperature in first["dac"]]
    lines: list[tuple[str, ...]] = [
        ("fixed replay", "of itself", *dac, "DAC best τ", *(f"ValueDICE α={a}" for a in first["value_dice"]))
    ]
    for name, entry in replays.items():
        methods = [*entry["dac"].values(), entry["dac_in_hindsight"], *entry["value_dice"].values()]
        lines.append((str(name), *(f"{kl:.2g}" for kl in (entry["kl"], *(method["kl"] for method in methods)))))
    return lines
