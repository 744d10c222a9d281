"""What several algorithms share about their settings: checks, and a constant."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

from valuedice.errors import InputError

MEASURING = 2**31
"""Folded into the key where something is measured: what is learned must not depend on it."""


def check_positive(settings: Any, *names: str) -> None:
    """Step sizes, counts."""
    for name in names:
        if not 0 < getattr(settings, name) < inf:
            raise InputError(f"{name} is {getattr(settings, name)}; it must be positive and finite")


def check_not_negative(settings: Any, *names: str) -> None:
    """Weights of penalties, and counts that may be none."""
    for name in names:
        if not 0 <= getattr(settings, name) < inf:
            raise InputError(f"{name} is {getattr(settings, name)}; it must be finite and not negative")


def check_finite(settings: Any, *names: str) -> None:
    """Numbers of either sign."""
    for name in names:
        if not isfinite(getattr(settings, name)):
            raise InputError(f"{name} is {getattr(settings, name)}; it must be finite")


def check_share(settings: Any, *names: str) -> None:
    """Parts of a whole that leave something of the rest."""
    for name in names:
        if not 0 <= getattr(settings, name) < 1:
            raise InputError(f"{name} is {getattr(settings, name)}; it must be at least 0 and below 1")


def check_hidden(hidden: tuple[int, ...]) -> None:
    """Widths of layers."""
    if not hidden or min(hidden) < 1:
        raise InputError(f"hidden is {hidden}; it must hold at least one width, each at least 1")
