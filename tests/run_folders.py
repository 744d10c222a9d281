"""Run folders and sweep folders as training writes them, with numbers that tests choose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from valuedice.report.records import Row, Run, significant

EXPERT = 100.0


def config(
    algorithm: str = "value-dice", task: str = "Hopper-v5", seed: int = 0, **settings: Any
) -> dict[str, Any]:
    """The content of `config.json`, with hyperparameters of its own."""
    return {
        "format": 6,
        "algorithm": algorithm,
        "hyperparameters": {"discount": 0.99, "batch_size": 256} | settings.pop("hyperparameters", {}),
        "demos": f"/home/somebody/{task}.npz",
        "env": task,
        "eval_env": task,
        "episodes": 1,
        "steps": 2000,
        "offline": False,
        "seed": seed,
        "fingerprints": {"demos": f"{seed:x}"},
    } | settings


def metrics(returns: Sequence[float], step: int = 1000, **columns: Sequence[float | None]) -> list[dict[str, Any]]:
    """Rows of `metrics.csv`: an evaluation every `step` steps; with 0 the run takes no steps."""
    return [
        {
            "step": step * place,
            "updates": 1000 * place,
            "wall_seconds": 2.5 * place,
            "return_mean": value,
            "return_std": 1.0,
            "expert_return": EXPERT,
            "normalized_return": value / EXPERT,
        }
        | {name: values[place - 1] for name, values in columns.items()}
        for place, value in enumerate(returns, 1)
    ]


def write_run(
    folder: Path,
    content: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
    *,
    finished: bool = True,
) -> Path:
    """A run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(content or config()))
    rows = metrics([50.0, 80.0]) if rows is None else rows
    if rows:
        lines = [",".join(rows[0])]
        lines += [",".join("" if value is None else str(value) for value in row.values()) for row in rows]
        (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    if finished:
        (folder / "summary.json").write_text(json.dumps({"versions": {"valuedice": "0.2.0"}}))
    return folder


def write_sweep(folder: Path, cells: Mapping[str, Mapping[str, Any]]) -> Path:
    """A sweep folder without its runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps({"format": 1, "suite": "small", "cells": cells}))
    return folder


def cell(contestant: str, title: str, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A cell of `sweep.json`."""
    entry = {"task": "Hopper-v5", "contestant": contestant, "title": title, "episodes": 1, "subsample": 1}
    return entry | {"seed": seed, "algorithm": "value-dice", "preset": "paper", "settings": {}} | changes


def finished_run(task: str, contestant: str, seed: int, *normalized: float, **changes: Any) -> Run:
    """A run in memory, evaluated every 1,000 steps."""
    rows = tuple(
        Row(1000 * place, 4000 * place, None, significant(EXPERT * value), None, EXPERT, significant(value))
        for place, value in enumerate(normalized, 1)
    )
    known: dict[str, Any] = {"title": contestant, "algorithm": contestant, "episodes": 1, "rows": rows} | changes
    return Run(f"{task}-{contestant}-{seed}", task, contestant, seed=seed, **known)
