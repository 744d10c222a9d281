"""Checks of the algorithms' settings, and the constant that their diagnoses share."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import Any

from valuedice.errors import InputError

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
    "one or more positive widths": lambda value: len(value) > 0 and min(value) >= 1,
}


def check(settings: Any, limit: str, *names: str) -> None:
    """Raises `InputError` if one of the named settings is outside the limit, a key of `LIMITS`."""
    for name in names:
        if not LIMITS[limit](value := getattr(settings, name)):
            raise InputError(f"`{name}` is {value}; it must be {limit}")
