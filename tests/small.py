"""Algorithms that are small enough to train in a moment."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from valuedice.algorithms import ALGORITHMS, Algorithm

SMALL: dict[str, Any] = {
    "hidden": (16,),
    "discriminator_hidden": (16,),
    "ratio_hidden": (16,),
    "batch_size": 16,
    "updates_per_step": 2,
    "random_steps": 6,
    "training_starts": 5,
    "actor_lr": 1e-3,
    "discriminator_batch": 4,
    "rollout": 4,
    "environments": 2,
    "minibatch": 2,
}


def small(name: str = "value-dice", **changes: Any) -> Algorithm:
    """An algorithm with those of the settings that it, or what it contains, has."""
    return with_settings(ALGORITHMS[name](), SMALL | changes)


def with_settings(algorithm: Any, settings: dict[str, Any]) -> Any:
    """Replaces what is known, in what it contains too."""
    changes: dict[str, Any] = {}
    for entry in fields(algorithm):
        value = getattr(algorithm, entry.name)
        if is_dataclass(value):
            changes[entry.name] = with_settings(value, settings)
        elif entry.name in settings:
            changes[entry.name] = settings[entry.name]
    return replace(algorithm, **changes)


def names_of(algorithm: Any) -> set[str]:
    """Of all its settings, and of what it contains."""
    names: set[str] = set()
    for entry in fields(algorithm):
        value = getattr(algorithm, entry.name)
        names |= names_of(value) if is_dataclass(value) else {entry.name}
    return names
