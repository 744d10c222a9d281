"""Demonstrations and a finished run that many tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from resuming import train

import valuedice as vd


@pytest.fixture(scope="session")
def pendulum() -> vd.Demos:
    return vd.load_demos("pendulum", episodes=1)


@pytest.fixture(scope="session")
def finished(pendulum, tmp_path_factory) -> vd.Run:
    """A short run that nothing interrupted; its folder stays as it is."""
    return train(pendulum, "Pendulum-v1", tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture(scope="session")
def whole(finished) -> Path:
    """The folder of that run."""
    return finished.out


@pytest.fixture
def copied(whole, tmp_path) -> Path:
    """A copy of that folder, to change."""
    return Path(shutil.copytree(whole, tmp_path / "run"))
