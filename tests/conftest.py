"""Settings of hypothesis (no deadline: a busy machine would miss it), a cache, and commands that tests run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commanding import Result, contents
from hypothesis import settings

from valuedice.cli import main

# Commands that tests start share what they compile, and leave the user's own cache alone.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent.parent / ".pytest_cache" / "xdg")

settings.register_profile("default", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("default")


@pytest.fixture
def own_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys) -> Callable[..., Result]:
    def command(*args: object) -> Result:
        try:
            code = main([str(arg) for arg in args])
        except SystemExit as stop:  # help
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return command


@pytest.fixture
def refused(run) -> Callable[..., str]:
    """Runs a command that must fail, and gives back its message."""

    def command(*args: object) -> str:
        before = contents()
        result = run(*args)
        assert (result.code, result.out) == (2, "")
        assert re.fullmatch("valuedice: error: .+\n", result.err)
        assert contents() == before
        return result.err

    return command
