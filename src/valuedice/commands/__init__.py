"""The commands, and what they share: reading options, and printing results."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from valuedice.types import InputError


def say(text: str) -> None:
    """A command's result."""
    print(text)  # noqa: T201


def parse(kind: type[Any], name: str, args: list[str]) -> Any:
    """Options of a command by its dataclass; what tyro shows in a box becomes the one line that users rely on."""
    import tyro

    problem = io.StringIO()
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.SuppressFixed)
    try:
        with contextlib.redirect_stderr(problem):
            return tyro.cli(kind, prog=f"valuedice {name}", args=args, config=config)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(f"{unboxed(problem.getvalue())}; see valuedice {name} --help") from None


def unboxed(box: str) -> str:
    """The sentence inside tyro's box, without its frame and hints."""
    lines = [line.strip("│ ").strip() for line in box.splitlines() if line.startswith("│")]
    end = next((place for place, line in enumerate(lines) if line.startswith("──")), len(lines))
    return " ".join(lines[:end]).rstrip(".") or "bad options"
