"""Colours that people with any colour vision can tell apart, the same in figures and on the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Look(NamedTuple):
    """How a contestant is drawn."""

    light: str
    """On white."""
    dark: str
    """On a dark page."""
    dashes: tuple[float, ...]
    """Lengths of dashes and gaps; none is a solid line."""


# Okabe and Ito's colours without yellow and black, then colours of Tol's muted scheme.
COLOURS = [
    ("#0072b2", "#4da3e0"),
    ("#d55e00", "#f2883f"),
    ("#009e73", "#35c79b"),
    ("#b8579a", "#e08fc4"),
    ("#c98a00", "#f0b93a"),
    ("#3fa0db", "#8fd0f7"),
    ("#332288", "#9d8df1"),
    ("#7d7d22", "#c4c464"),
    ("#882255", "#e07aa8"),
    ("#44aa99", "#7fd8ca"),
    ("#7a5230", "#c99d76"),
    ("#6b7280", "#aab2bf"),
]
SOLID = 6
"""So many lines differ by colour alone; those after them are dashed too."""
DASHES = ((), (5, 2), (2, 1.5))


def looks_of(contestants: Iterable[str]) -> dict[str, Look]:
    """A look for each contestant, by its place."""
    return {
        name: Look(*COLOURS[place % len(COLOURS)], DASHES[place // SOLID % len(DASHES)])
        for place, name in enumerate(contestants)
    }
