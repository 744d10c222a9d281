"""What the fault tests share: a launcher, runs that nothing interrupted, and a report of the kill series."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from harness import Launcher, command, only_one, options
from kills import Series

Whole = Callable[[str, str], Path]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-report", type=Path, help="write a JSON file about the kill series there")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all of a session, also when it is divided among processes."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@pytest.fixture
def launcher(shared: Path, request: pytest.FixtureRequest) -> Iterator[Launcher]:
    launcher = Launcher(compiled(request, shared))
    yield launcher
    launcher.close()


def compiled(request: pytest.FixtureRequest, shared: Path) -> Path:
    """A place for compiled code that the next session finds again."""
    cache = request.config.cache
    return shared if cache is None else cache.mkdir("valuedice")


@pytest.fixture
def whole(shared: Path, launcher: Launcher) -> Whole:
    """The run of an algorithm and a task that nothing interrupted; made once a session."""

    def make(algorithm: str, task: str) -> Path:
        out = shared / f"whole-{algorithm}-{task}"
        with only_one(out):
            if not (out / "summary.json").exists():
                ended = launcher.run(command(algorithm), *options(algorithm, task), "--out", out)
                assert (ended.code, ended.said) == (0, "")
        return out

    return make


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Iterator[list[Series]]:
    """The kill series of this session; a file, if one is asked for."""
    series: list[Series] = []
    yield series
    path = request.config.getoption("faults_report", None)
    if path is not None and series:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(each) for each in series], indent=2) + "\n")
