"""Reads run folders and sweep folders, of this version and of older ones."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from valuedice.errors import InputError
from valuedice.report.records import Row, Run, Status, parsed_row, parsed_table, without_paths

OWN = {"format", "algorithm", "hyperparameters", "fingerprints", "command"}
"""Entries of `config.json` that are not settings."""
MARKS = ("config.json", "metrics.csv", "failed.json", "summary.json")
"""A folder with one of these is a run."""


class DamagedError(ValueError):
    """A file of a run cannot be used; the others can."""


@dataclass(frozen=True)
class Cell:
    """What `sweep.json` says of a run."""

    task: str
    contestant: str
    title: str
    episodes: int | None
    subsample: int
    seed: int | None
    algorithm: str
    settings: dict[str, Any]


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return any((folder / name).is_file() for name in MARKS)


def read_json(path: Path) -> dict[str, Any]:
    """An object in a file; raises DamagedError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise DamagedError(f"{path} holds no JSON object")
    return cast("dict[str, Any]", content)


def read_sweep(folder: Path) -> dict[str, Cell]:
    """The cells of a sweep folder by the names of their run folders."""
    path = folder / "sweep.json"
    try:
        cells = read_json(path)["cells"]
        return {name: cell_of(entry) for name, entry in cells.items()}
    except DamagedError as error:
        raise InputError(f"{error}; is {folder} a sweep folder?") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{path} has unexpected content ({error}); is {folder} a sweep folder?") from None


def cell_of(entry: dict[str, Any]) -> Cell:
    """A cell, with its types checked."""
    task, contestant = text_of(entry["task"]), text_of(entry["contestant"])
    title, algorithm = text_of(entry.get("title", contestant)), text_of(entry.get("algorithm", contestant))
    episodes, subsample, seed = (count_of(entry.get(name)) for name in ("episodes", "subsample", "seed"))
    settings = cast("dict[str, Any]", dict(entry.get("settings") or {}))
    if entry.get("preset") is not None:
        settings = {"preset": entry["preset"]} | settings
    return Cell(task, contestant, title, episodes, subsample or 1, seed, algorithm, settings)


def text_of(value: object) -> str:
    """A text; raises ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a name")
    return value


def count_of(value: object) -> int | None:
    """A whole number or nothing; raises ValueError."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def read_run(folder: Path, name: str, cell: Cell | None = None) -> Run:
    """A run folder, or the place of one that has not begun. Damage makes it a failed run."""
    run = Run(name, status="waiting")
    if cell is not None:
        run = replace(
            run,
            task=cell.task,
            contestant=cell.contestant,
            title=cell.title,
            algorithm=cell.algorithm,
            episodes=cell.episodes,
            subsample=cell.subsample,
            seed=cell.seed,
            settings=without_paths(cell.settings),
        )
    if not is_run(folder):
        return run
    try:
        status, error = end_of(folder)
        run = replace(run, status=status, error=error)
        # A run that failed at once may have neither.
        if status != "failed" or (folder / "config.json").exists():
            run = configured(run, folder, cell)
        if (folder / "metrics.csv").exists():
            rows = read_metrics(folder / "metrics.csv")
            run = replace(run, rows=rows, seconds=rows[-1].wall_seconds if rows else None)
        if status == "finished":
            if not run.rows:
                raise DamagedError(f"{folder} is finished, but has no evaluations in metrics.csv")
            summary = read_json(folder / "summary.json")
            known, final = (
                cast("dict[str, Any]", part) if isinstance(part := summary.get(name), dict) else {}
                for name in ("versions", "final")
            )
            run = replace(run, versions={name: str(value) for name, value in known.items()}, final=final)
    except DamagedError as damage:
        return replace(run, status="failed", error=str(without_paths(str(damage))), rows=())
    return run


def end_of(folder: Path) -> tuple[Status, str]:
    """How a run ended, and why."""
    if (folder / "summary.json").exists():
        return "finished", ""
    if not (folder / "failed.json").exists():
        return "unfinished", ""
    failure = read_json(folder / "failed.json")
    error = str(failure.get("error") or "no reason is known")
    known = {"exit code": failure.get("exit_code"), "attempts": failure.get("attempts")}
    facts = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    return "failed", " ".join(without_paths(f"{error} ({facts})" if facts else error).split())


def configured(run: Run, folder: Path, cell: Cell | None) -> Run:
    """With what `config.json` says. The labels of a sweep stay."""
    path = folder / "config.json"
    config = read_json(path)
    settings = {name: value for name, value in config.items() if name not in OWN and "fingerprint" not in name}
    try:
        algorithm = text_of(config["algorithm"])
        settings = flat(dict(config.get("hyperparameters") or {})) | flat(settings)
        # Older versions did not say so.
        settings.setdefault("offline", config.get("env") is None and not config.get("steps"))
        preset = (config.get("command") or {}).get("preset") or (cell.settings.get("preset") if cell else None)
        if preset is not None:
            settings["preset"] = preset
        if cell is not None:
            return replace(run, algorithm=algorithm, settings=without_paths(settings))
        episodes, subsample, seed = (count_of(config.get(name)) for name in ("episodes", "subsample", "seed"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(f"{path} has unexpected content ({error})") from None
    return replace(
        run,
        algorithm=algorithm,
        task=task_of(config),
        episodes=episodes,
        subsample=subsample or 1,
        seed=seed,
        settings=without_paths(settings),
    )


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """With the settings of contained algorithms beside the others. An object is shown by its description."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and set(cast("dict[str, Any]", value)) != {"object"}:
            found |= flat(cast("dict[str, Any]", value))
        else:
            found[name] = value["object"] if isinstance(value, dict) else value
    return found


def task_of(config: dict[str, Any]) -> str:
    """Where the returns were measured; without an environment, the demonstrations."""
    found = flat({name: config.get(name) for name in ("eval_env", "env", "demos")})
    names = [str(without_paths(str(value))) for value in found.values() if value]
    return names[0] if names else "no task"


def read_metrics(path: Path) -> tuple[Row, ...]:
    """The evaluations of a run; raises DamagedError."""
    try:
        rows = [parsed_row(cells) for cells in parsed_table(path.read_bytes().decode())]
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise DamagedError(f"{path} cannot be read ({error})") from None
    return tuple(rows)
