"""Commands that tests run: their flags, small files for them to read, and how they ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from small import SMALL

from valuedice.algorithms import ALGORITHMS, REWARD_LEARNERS
from valuedice.algorithms.settings import settings_of

ROWS = 6
ENDS = np.array([0, 0, 1, 0, 0, 1], bool)


def pendulum(**changes: Any) -> dict[str, Any]:
    """Two episodes in the shape of Pendulum-v1."""
    observations = np.linspace(-1, 1, 3 * ROWS).reshape(ROWS, 3)
    arrays = {
        "observations": observations,
        "actions": np.linspace(-2, 2, ROWS)[:, None],
        "next_observations": observations + 0.1,
        "terminations": np.zeros(ROWS, bool),
        "truncations": ENDS,
        "rewards": np.arange(ROWS, dtype=np.float32),
    }
    return {key: array for key, array in (arrays | changes).items() if array is not None}


def store(name: str = "demos.npz", **changes: Any) -> Path:
    """Saves them, with these changes."""
    np.savez(name, **pendulum(**changes))
    return Path(name)


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings as on the command line."""
    words: list[str] = []
    for name, value in settings.items():
        values = value if isinstance(value, tuple | list) else () if isinstance(value, bool) else (value,)
        words += [f"--{'no-' if value is False else ''}{name.replace('_', '-')}", *map(str, values)]
    return words


def small_flags(algorithm: str = "value-dice", **changes: Any) -> list[str]:
    """Flags that make an algorithm small, as far as it has them, and others."""
    known = settings_of((ALGORITHMS | REWARD_LEARNERS)[algorithm]())
    return flags({name: value for name, value in SMALL.items() if name in known} | {"eval_episodes": 1} | changes)


class Result:
    """How a command ended, and what it said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def contents() -> dict[str, bytes]:
    """Every file and folder here."""
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in Path().rglob("*")}
