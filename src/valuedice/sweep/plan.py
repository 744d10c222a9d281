"""`sweep.json`: what the runs of a sweep are, and how a sweep that has begun may change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, fields

from valuedice.demos import load_demos
from valuedice.envs.fit import check_fit
from valuedice.envs.make import make_env, task_spec
from valuedice.errors import InputError
from valuedice.sweep.cell import RING, Cell, cell_of
from valuedice.sweep.store import Store, as_dict
from valuedice.training.json_types import fits

FORMAT = 1


@dataclass(frozen=True)
class About:
    """What a sweep is, apart from its cells."""

    suite: str
    description: str
    threads: int
    data: dict[str, str]
    """A fingerprint of the demonstrations of each task."""


def planned(store: Store, where: str, about: About, cells: list[Cell], extend: bool) -> list[Cell]:
    """The cells of a sweep in this store: those that it began with, or with `extend` more of them."""
    text = store.read("sweep.json")
    if text is None:
        return cells
    before, old = read_sweep(text, where)
    if before.suite != about.suite:
        what = f"a sweep of {before.suite!r}, not of {about.suite!r}"
        raise InputError(f"{where} holds {what}; choose another `out`")
    if before.threads != about.threads:
        raise InputError(
            f"{where} was begun with `threads` {before.threads}, not {about.threads}; runs go on with as many"
        )
    other = [task for task in about.data if before.data.get(task, about.data[task]) != about.data[task]]
    if other:
        raise InputError(
            f"{where} was begun with other demonstrations of {', '.join(other)}; give those or choose another `out`"
        )
    return merged(old, cells, where, extend)


def checked_data(cells: Iterable[Cell]) -> dict[str, str]:
    """A fingerprint of the demonstrations of each task, so that a sweep never mixes two files. Refuses a task that
    does not exist and demonstrations that do not fit it, before anything runs."""
    prints: dict[str, str] = {}
    for cell in cells:
        if cell.algorithm == RING or cell.task in prints:
            continue
        _, config = cell.built()
        with closing(make_env(cell.task)) as env:
            demos = load_demos(str(config.demos), dones_are=config.dones_are)
            check_fit(demos, task_spec(env, cell.task), cell.task)
        prints[cell.task] = demos.fingerprint()
    return prints


def write_sweep(store: Store, about: About, cells: list[Cell]) -> None:
    """`sweep.json`."""
    content = {"format": FORMAT} | asdict(about) | {"cells": {cell.name: cell.as_json() for cell in cells}}
    store.write("sweep.json", json.dumps(content, indent=1) + "\n")


def read_sweep(text: str, where: str) -> tuple[About, list[Cell]]:
    """What `sweep.json` says of the sweep, and its cells."""
    content = as_dict(text)
    try:
        if content["format"] != FORMAT:
            raise InputError(f"{where}/sweep.json is of another version of valuedice; choose another `out`")
        about = {entry.name: content[entry.name] for entry in fields(About)}
        if not fits(about, About):
            raise ValueError("not what a sweep is")
        return About(**about), [cell_of(cell) for cell in content["cells"].values()]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{where}/sweep.json has unexpected content; choose another `out`") from None


def merged(old: list[Cell], new: list[Cell], where: str, extend: bool) -> list[Cell]:
    """The cells of a sweep that goes on. A cell that has begun never changes, but it may become longer."""
    before, now = {cell.name: cell for cell in old}, {cell.name: cell for cell in new}
    changed = [name for name in now if name in before and now[name].changes(before[name])]
    differences = [
        f"{name}: {key} was {was}, now {is_now}"
        for name in changed
        for key, (was, is_now) in now[name].changes(before[name]).items()
    ]
    differences += [f"{name} is new" for name in now if name not in before]
    differences += [f"{name} is gone" for name in before if name not in now]
    fatal = [name for name in changed if not now[name].only_longer(before[name])]
    if fatal or (differences and not extend):
        more = f"; and {len(differences) - 8} more" if len(differences) > 8 else ""
        advice = "choose another `out`" if fatal else "add these with `extend`, or choose another `out`"
        raise InputError(f"the suite has changed since {where} began: {'; '.join(differences[:8])}{more}; {advice}")
    kept = [now.get(name, cell) for name, cell in before.items()]
    return kept + [cell for cell in new if cell.name not in before]
