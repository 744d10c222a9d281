"""What the fault tests share: a launcher, runs that nothing interrupted, and a report for `results/faults`."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.harness import Launcher, Whole, options


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--faults-report", type=Path, help="write a JSON file about the kills there, fuzz.json beside it"
    )


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the whole session, also when it is divided among processes."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@pytest.fixture
def launcher(shared: Path, request: pytest.FixtureRequest) -> Iterator[Launcher]:
    # The next session finds compiled code again.
    cache = getattr(request.config, "cache", None)
    launcher = Launcher(shared if cache is None else cache.mkdir("valuedice"))
    yield launcher
    launcher.close()


@pytest.fixture
def whole(shared: Path, launcher: Launcher) -> Whole:
    """The run of an algorithm in a task that nothing interrupted; trained once per session."""

    def make(algorithm: str, task: str) -> Path:
        out = shared / f"whole-{algorithm}-{task}"
        # Only one of the processes among which pytest-xdist divides the tests.
        with out.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not (out / "summary.json").exists():
                assert launcher.run(*options(algorithm, task), "--out", out).done
        return out

    return make


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """What the tests measure, by the name of a file; written if a report is asked for."""
    found: dict[str, Any] = {"kills": [], "fuzz": {}}
    yield found
    path: Path | None = request.config.getoption("faults_report", None)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for name, content in ((path, found["kills"]), (path.with_name("fuzz.json"), found["fuzz"])):
            if content:
                name.write_text(json.dumps(content, indent=2) + "\n")
