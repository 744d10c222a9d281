"""The algorithms' settings: checks, those of contained dataclasses beside the others, and a constant that the
diagnoses share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from math import inf, isfinite
from typing import Any, Literal, get_args, get_origin, get_type_hints

from valuedice.errors import InputError
from valuedice.types import CLIPPED, SQUASHED, Bounds, Form, Units

MEASURING = 2**31
"""Folded into the random key of a diagnosis, so that measuring does not change what is learned."""

LIMITS: dict[str, Callable[[Any], bool]] = {
    "finite": isfinite,
    "positive and finite": lambda value: 0 < value < inf,
    "finite and not negative": lambda value: 0 <= value < inf,
    "at least 0 and below 1": lambda value: 0 <= value < 1,
    "at least 0 and at most 1": lambda value: 0 <= value <= 1,
    "above 0 and below 1": lambda value: 0 < value < 1,
    "above 0 and at most 1": lambda value: 0 < value <= 1,
    "positive widths": lambda value: isinstance(value, tuple) and all(width >= 1 for width in value),
    "one or more positive widths": lambda value: isinstance(value, tuple) and len(value) > 0 and min(value) >= 1,
}


def policy_form(
    units: Units | Literal["auto"],
    bounds: Bounds | Literal["auto"],
    hidden: tuple[int, ...],
    *,
    clipped: bool = False,
) -> tuple[Form, tuple[int, ...]]:
    """Form and widths of a policy network. Where the settings leave them open (`auto`, no widths), they are those
    that clone best if the expert's actions were `clipped`, or if they were not."""
    form, widths = (CLIPPED, (100, 100)) if clipped else (SQUASHED, (256, 256))
    units = form.units if units == "auto" else units
    return Form(units, form.bounds if bounds == "auto" else bounds), hidden or widths


def check(settings: Any, limit: str, *names: str) -> None:
    """Raises `InputError` if one of the named settings is outside the limit, a key of `LIMITS`."""
    for name in names:
        if not LIMITS[limit](value := getattr(settings, name)):
            raise InputError(f"`{name}` is {value}; it must be {limit}")


def check_choices(settings: Any) -> None:
    """Raises `InputError` if a setting with a few possible values, a `Literal`, has another one."""
    for name, hint in get_type_hints(type(settings)).items():
        if get_origin(hint) is Literal and (value := getattr(settings, name)) not in get_args(hint):
            raise InputError(f"`{name}` is {value!r}; it must be one of: {', '.join(get_args(hint))}")


def settings_of(algorithm: Any) -> dict[str, Any]:
    """The settings of an algorithm and of the dataclasses that it contains, with their types."""
    hints = get_type_hints(type(algorithm))
    known: dict[str, Any] = {}
    for entry in fields(algorithm):
        value = getattr(algorithm, entry.name)
        known |= settings_of(value) if is_dataclass(value) else {entry.name: hints[entry.name]}
    return known


def with_settings(algorithm: Any, settings: dict[str, Any]) -> Any:
    """The same algorithm with other settings, as far as it or the dataclasses that it contains have them."""
    changes: dict[str, Any] = {}
    for entry in fields(algorithm):
        value = getattr(algorithm, entry.name)
        if is_dataclass(value):
            changes[entry.name] = with_settings(value, settings)
        elif entry.name in settings:
            given = settings[entry.name]
            changes[entry.name] = tuple(given) if isinstance(given, list) else given
    return replace(algorithm, **changes)
