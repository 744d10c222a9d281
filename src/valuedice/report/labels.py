"""Names for runs that no sweep has named: the algorithm, and the settings in which its runs differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from valuedice.report.records import TITLES, Run

UNNAMED = {
    "seed",
    "episodes_seed",
    "episodes",
    "subsample",
    "env",
    "eval_env",
    "eval_every",
    "eval_episodes",
    "checkpoint_seconds",
    "threads",
}
"""Settings that make no other contestant: the seed, the task and regime, and how a run is measured."""


FIRST = ["preset", "offline"]


def labelled(runs: Sequence[Run]) -> list[Run]:
    """The runs, in their order, with a contestant and a title for those that have none."""
    named: dict[int, Run] = {}
    for algorithm in {run.algorithm for run in runs if not run.contestant}:
        places = [place for place, run in enumerate(runs) if run.algorithm == algorithm and not run.contestant]
        telling = telling_settings([runs[place] for place in places])
        for place in places:
            run = runs[place]
            parts = [part for name in telling if (part := shown(name, setting(run, name)))]
            title = TITLES.get(algorithm, algorithm)
            contestant = ", ".join([algorithm, *parts])
            named[place] = replace(run, contestant=contestant, title=", ".join([title, *parts]))
    return [named.get(place, run) for place, run in enumerate(runs)]


def telling_settings(runs: Sequence[Run]) -> list[str]:
    """The fewest settings that tell apart what differs between runs of the same task and regime.

    Presets change many settings at once; one name says as much as all of them. Settings that an older version did
    not store are not differences.
    """
    kept = dict.fromkeys(name for run in runs for name in run.settings if name not in UNNAMED)
    # Runs of different tasks have different demonstrations, which says nothing.
    blocks = [[run for run in runs if (run.task, run.regime) == key] for key in {(r.task, r.regime) for r in runs}]
    differing = [name for name in kept if any(len(values(block, [name], known=True)) > 1 for block in blocks)]
    # Of settings that say as much, the first of these is the clearest.
    differing.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    found: list[str] = []
    while differing and distinct(blocks, found) < distinct(blocks, differing):
        best = max(differing, key=lambda name: distinct(blocks, [*found, name]))
        found.append(best)
    return found


def distinct(blocks: list[list[Run]], names: list[str]) -> int:
    """Into how many kinds these settings divide the runs of all blocks."""
    return sum(len(values(block, names)) for block in blocks)


def values(runs: Sequence[Run], names: list[str], known: bool = False) -> set[str]:
    """The combinations of values that occur; only of runs that store the settings, if they must be known."""
    return {
        json.dumps([setting(run, name) for name in names])
        for run in runs
        if not known or all(name in run.settings for name in names)
    }


def setting(run: Run, name: str) -> Any:
    """A setting. Files are often named after the task, which makes no difference; of two names in one task, one may
    be the task's own (Hopper-v5.npz), the other that of shipped demonstrations (hopper)."""
    value = run.settings.get(name)
    if not isinstance(value, str) or not run.task:
        return value
    return value.replace(run.task, "TASK").replace(run.task.partition("-v")[0].lower(), "task")


def shown(name: str, value: Any) -> str:
    """A setting in a label; nothing if it is off, or as it is by default."""
    if value is None or value is False or (name, value) == ("preset", "default"):
        return ""
    if value is True:
        return name
    text = " ".join(map(str, value)) if isinstance(value, list) else value
    return f"{name} {text if isinstance(text, str | int | float) else json.dumps(text)}"
