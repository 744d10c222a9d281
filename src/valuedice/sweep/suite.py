"""A suite: a TOML file that says which tasks, contestants, demonstrations and seeds make a grid of runs."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from valuedice.algorithms import ALGORITHMS, preset_of
from valuedice.algorithms.settings import settings_of
from valuedice.demos import shipped_demos
from valuedice.envs.make import file_name
from valuedice.errors import InputError
from valuedice.sweep.cell import NOT_SETTINGS, RING, Cell
from valuedice.training.config import TrainConfig
from valuedice.training.json_types import fits

SUITES = Path(__file__).parent / "suites"
KEYS = {"description", "tasks", "episodes", "subsample", "seeds", "settings", "contestants"}
"""What a suite may hold."""


@dataclass(frozen=True)
class Overrides:
    """What the command line says instead of the suite."""

    demos: Path | None = None
    """Folder of demonstrations, a file TASK.npz for each task."""
    seeds: str | None = None
    steps: int | None = None
    updates: int | None = None


def shipped_suites() -> dict[str, Path]:
    """The suites that come with the library, by name."""
    return {path.stem: path for path in sorted(SUITES.glob("*.toml"))}


def load_suite(ref: str) -> Suite:
    """A shipped suite by its name, or one of the user's by its path."""
    shipped = shipped_suites()
    path = shipped.get(ref, Path(ref))
    if ref not in shipped and not os.path.isfile(path):
        raise InputError(f"no suite {ref!r}; give the path of a .toml file, or one of: {', '.join(shipped)}")
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); is it a text file?") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}; correct the file") from None
    return Suite(path.stem, path.name if ref in shipped else ref, text, content)


@dataclass(frozen=True)
class Suite:
    """A suite as it was read; `cells` makes its grid and finds its mistakes."""

    name: str
    source: str
    """How messages name it."""
    text: str
    content: dict[str, Any]

    @property
    def description(self) -> str:
        """One line about the suite."""
        return self._typed("description", str, "")

    def cells(self, overrides: Overrides | None = None) -> list[Cell]:
        """The grid, contestant by contestant, so that a whole comparison's first seeds come first."""
        given = overrides or Overrides()
        self._check_keys(self.content, KEYS, "")
        tasks = self._tasks()
        common = self._typed("settings", dict[str, Any], {})
        self._check_keys(common, run_settings(), "settings")
        self._check_types(common, run_settings(), "settings")
        contestants = self._typed("contestants", dict[str, Any], {})
        if not contestants:
            self._refuse("no contestants; add a table such as [contestants.value-dice]")
        seeds = given.seeds if given.seeds is not None else self._typed("seeds", str | int | list[int], 0)
        cells: list[Cell] = []
        for name, content in contestants.items():
            for label, title, own in self._variants(name, content):
                some: list[Cell] = []
                for task in tasks:
                    settings = self._settings(task, common | tasks[task], own, given)
                    for episodes, every in product(self._several("episodes"), self._several("subsample")):
                        cell = Cell(
                            task, label, title, own["algorithm"], own["preset"], episodes, every or 1, 0, settings
                        )
                        self._check(cell, name)
                        some += [replace(cell, seed=seed) for seed in seeds_of(seeds)]
                cells += sorted(some, key=lambda cell: cell.seed)
        return self._checked(cells, given)

    def _settings(
        self, task: str, inherited: dict[str, Any], own: dict[str, Any], given: Overrides
    ) -> dict[str, Any]:
        """The settings of a contestant on a task."""
        if own["algorithm"] == RING:
            return {}
        offline = (inherited | own).get("offline", False) or preset_of(own["algorithm"], own["preset"]).pace is None
        used, unused = ("updates", "steps") if offline else ("steps", "updates")
        settings = {key: value for key, value in inherited.items() if key != unused} | own
        if getattr(given, used) is not None:
            settings[used] = getattr(given, used)
        settings["demos"] = self._demos(task, settings.get("demos"), given.demos)
        return {key: value for key, value in settings.items() if key not in ("algorithm", "preset")}

    def _check(self, cell: Cell, table: str) -> None:
        """Applies the rules of `train`."""
        try:
            if cell.algorithm != RING:
                learner, config = cell.built()
                config.resolved(learner)
        except (InputError, TypeError, ValueError) as error:
            self._refuse(f"[contestants.{table}] on {cell.task}: {error}", "contestants", table)

    def _checked(self, cells: list[Cell], given: Overrides) -> list[Cell]:
        """Refuses what only the whole grid shows."""
        [(name, count)] = Counter(cell.name for cell in cells).most_common(1)
        if count > 1:
            self._refuse(f"two runs would be named {name}; give them different contestants, or list a value once")
        for unit in ("steps", "updates"):
            if getattr(given, unit) is not None and not any(unit in cell.settings for cell in cells):
                raise InputError(f"no run of {self.name} counts {unit}; omit `{unit}`")
        return cells

    def _demos(self, task: str, ref: str | None, folder: Path | None) -> str:
        """The demonstrations of a task: in the folder that the user names, else as the suite says, else shipped."""
        if folder is not None:
            path = folder / f"{file_name(task)}.npz"
            if not os.path.isfile(path):
                raise InputError(f"no demonstrations of {task} in {folder}: {path} does not exist; add that file")
            return str(path.resolve())
        ref = ref or task.partition("-v")[0].lower()
        beside = Path(self.source).parent / ref
        if ref in shipped_demos():
            return ref
        if os.path.isfile(beside):
            return str(beside.resolve())
        raise InputError(
            f"no demonstrations of {task} are shipped or named in {self.source}; give a folder that holds "
            f"{task}.npz with `demos`"
        )

    def _tasks(self) -> dict[str, dict[str, Any]]:
        """The tasks, each with its own settings."""
        tasks = self._typed("tasks", list[str] | dict[str, dict[str, Any]], {})
        if not tasks:
            self._refuse('no tasks; add a line such as tasks = ["Hopper-v5"]')
        named: dict[str, dict[str, Any]] = {task: {} for task in tasks} if isinstance(tasks, list) else tasks
        forms = run_settings() | {"demos": str}
        for task, settings in named.items():
            if not task.isprintable() or not task:
                self._refuse(f"{task!r} is no task", "tasks")
            self._check_keys(settings, forms, "tasks", task)
            self._check_types(settings, forms, "tasks", task)
        return named

    def _variants(self, name: str, content: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """A contestant, or one for each combination of the settings that it varies: label, title, settings."""
        if not isinstance(content, dict):
            self._refuse(f"{name} must be a table: [contestants.{name}]", "contestants", name)
        content = dict(content)
        varied: Any = content.pop("vary", {})
        title = content.pop("title", name)
        if not isinstance(title, str):
            self._refuse(f"title cannot be {title!r}", "contestants", name, "title")
        content = {"algorithm": name, "preset": "default"} | content
        algorithm, preset = content["algorithm"], content["preset"]
        if algorithm not in (*ALGORITHMS, RING):
            known = ", ".join((*ALGORITHMS, RING))
            self._refuse(f"no algorithm {algorithm!r}; there are: {known}", "contestants", name, "algorithm")
        if preset not in ("default", "paper"):
            self._refuse(f"no preset {preset!r}; there are: default, paper", "contestants", name, "preset")
        if not fits(varied, dict[str, list[Any]]) or not all(varied.values()):
            self._refuse(f"[contestants.{name}.vary] needs a list for each setting", "contestants", name, "vary")
        known = {} if algorithm == RING else run_settings() | settings_of(preset_of(algorithm, preset))
        self._check_keys(content, {"algorithm", "preset", *known}, "contestants", name)
        self._check_keys(varied, known, "contestants", name, "vary")
        self._check_types(content, known, "contestants", name)
        for values in product(*varied.values()):
            chosen = dict(zip(varied, values, strict=True))
            self._check_types(chosen, known, "contestants", name, "vary")
            label = "-".join([name, *(f"{key}={shown(value)}" for key, value in chosen.items())])
            about = ", ".join([title, *(f"{key} {shown(value)}" for key, value in chosen.items())])
            if not re.fullmatch(r"[\w.=,-]{1,150}", label):
                self._refuse(
                    f"the contestant {label!r} names folders; use letters, digits and -", "contestants", name
                )
            yield label, about, content | chosen

    def _several(self, key: str) -> list[int | None]:
        """One number, or a list of them."""
        value = self._typed(key, int | list[int], None)
        numbers = value if isinstance(value, list) else [value]
        if not numbers or any(number is not None and number < 1 for number in numbers):
            self._refuse(f"{key} must be a number from 1 on, or a list of such numbers", key)
        return numbers

    def _typed(self, key: str, form: Any, default: Any) -> Any:
        value = self.content.get(key, default)
        if value is not default and not fits(value, form):
            self._refuse(f"{key} cannot be {shown(value)!r}", key)
        return value

    def _check_keys(self, table: dict[str, Any], known: Iterable[str], *place: str) -> None:
        for key in table:
            if key not in set(known):
                where = f"[{'.'.join(place)}]" if any(place) else "a suite"
                self._refuse(f"{where} has no setting {key!r}{meant(key, known)}", *place, key)

    def _check_types(self, table: dict[str, Any], forms: dict[str, Any], *place: str) -> None:
        for key, value in table.items():
            if key in forms and not fits(value, forms[key]):
                self._refuse(f"{key} cannot be {shown(value)!r}", *place, key)

    def _refuse(self, message: str, *place: str) -> NoReturn:
        raise InputError(f"{self.source}:{line_of(self.text, place)}: {message}")


def run_settings() -> dict[str, Any]:
    """Settings of a run that a suite may set, with their types."""
    hints = get_type_hints(TrainConfig) | {"replay_data": str | None, "eval_env": str | None}
    return {entry.name: hints[entry.name] for entry in fields(TrainConfig) if entry.name not in NOT_SETTINGS}


def seeds_of(given: str | int | list[int]) -> list[int]:
    """Seeds from 3, [0, 1], "0-2" or "0-2,7"."""
    if isinstance(given, int | list):
        numbers = given if isinstance(given, list) else [given]
        wrong = next((number for number in numbers if not 0 <= number < 2**32), None)
        if wrong is not None or not numbers:
            what = "there are no seeds" if wrong is None else f"{wrong} is no seed"
            raise InputError(f"{what}; write for example 0-2 or 0,3,5")
        return list(dict.fromkeys(numbers))
    seeds: list[int] = []
    for part in given.replace(" ", "").split(","):
        found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first or last - first >= 10_000 or last >= 2**32:
            raise InputError(f"{given!r} is no range of seeds; write for example 0-2 or 0,3,5")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


def shown(value: Any) -> Any:
    """A value as a label shows it."""
    return "x".join(map(str, value)) if isinstance(value, list) else value


def meant(word: str, known: Iterable[str]) -> str:
    """A guess at what a misspelt word means."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def line_of(text: str, place: tuple[str, ...]) -> int:
    """The line where a key of a table stands, as well as it can be told without a parser that keeps lines."""
    path = [part for part in place if part]
    best, table = 1, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.fullmatch(r"\s*\[+(.*?)\]+\s*(#.*)?", line):
            table = [part.strip(" \"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", header[1])]
            here = table
        elif key := re.match(r"\s*(\"[^\"]*\"|'[^']*'|[\w-]+)\s*=", line):
            here = [*table, key[1].strip("\"'")]
        else:
            continue
        if here == path:
            return number
        if here and path[: len(here)] == here:
            best = number
    return best
