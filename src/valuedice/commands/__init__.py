"""The commands, and what they share: reading options, and printing results."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from valuedice.errors import InputError


def say(text: str) -> None:
    """A command's result."""
    print(text)  # noqa: T201


def colourless(text: str) -> str:
    """Without a terminal's colour codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


FLAGS: dict[str, str] = {}
"""The flags of the command that runs, by their settings."""


def parse(
    kind: type[Any], name: str, args: list[str], default: Any = None, renamed: Mapping[str, str] | None = None
) -> Any:
    """Options of a command by its dataclass; what tyro shows in a box becomes the one line that users rely on."""
    import tyro

    FLAGS.clear()
    FLAGS.update({setting: flag_of((renamed or {}).get(setting, setting)) for setting in settings_of(kind)})

    problem = io.StringIO()
    # The settings of what an algorithm contains are flags as its own are.
    config = (tyro.conf.SuppressFixed, tyro.conf.OmitArgPrefixes)
    try:
        with contextlib.redirect_stderr(problem):
            return tyro.cli(kind, prog=f"valuedice {name}", args=args, config=config, default=default)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(f"{unboxed(problem.getvalue())}; see valuedice {name} --help") from None


def flag_of(setting: str) -> str:
    """The flag of a setting."""
    return f"--{setting.replace('_', '-')}"


def settings_of(kind: Any) -> set[str]:
    """The settings of a dataclass, and of the dataclasses that it contains."""
    names: set[str] = set()
    for entry in fields(kind):
        inner = entry.default_factory if entry.default is MISSING else type(entry.default)
        names |= settings_of(inner) if is_dataclass(inner) else {entry.name}
    return names


def translated(message: str, command: str) -> str:
    """A message of the library for people who use the command line: settings, which stand in backticks, become
    flags, and the call that resumes a run becomes a command."""

    def resumed(found: re.Match[str]) -> str:
        return f"valuedice {command} --resume {shlex.quote(found[1])}"

    message = re.sub(r"load_run\(['\"](.*?)['\"]\)\.resume\(\)", resumed, message)
    # Backticks around anything else come from the messages of others.
    return re.sub(r"`(.*?)`", lambda found: FLAGS.get(found[1], f"'{found[1]}'"), message)


def value_of(option: str, args: list[str]) -> str | None:
    """What follows an option, before the options are read in earnest."""
    for place, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name.replace("_", "-") == option:
            return value if equals else "".join(args[place + 1 : place + 2])
    return None


def unboxed(box: str) -> str:
    """The sentence inside tyro's box, drawn with lines or in ASCII, without its title and hints."""
    lines = [text for line in colourless(box).splitlines() if (text := line.strip("│╭╮╰╯ "))][1:]
    rules = [place for place, line in enumerate(lines) if not line.strip("─-")] + [len(lines)]
    start = 1 if rules[0] == 0 else 0
    sentence = " ".join(lines[start : rules[start]]).rstrip(".")
    if "(required)" in sentence:
        # Without the help texts of the arguments.
        missing = re.findall(r"(--[\w-]+|(?<![\w-])[A-Z_]+) .*?\(required\)", sentence.partition(":")[2])
        return f"missing: {', '.join(missing)}"
    # Where a setting was refused inside what an algorithm contains, the place in the code says nothing to a user.
    sentence = re.sub(r"^Error parsing algorithm\.\w+: ", "", sentence)
    # Nobody types the None of an optional setting.
    sentence = re.sub(
        r"no type matching \{None\}\|(.*?) could .*? from \['(.*?)'\]\..*", r"'\2' is not \1", sentence
    )
    return sentence or "bad options"
