"""A sweep that nobody disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeping import begin, finish, suite


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(begin("sweep", suite(folder), "--out", folder / "out", "--jobs", 1))
    return folder / "out"
