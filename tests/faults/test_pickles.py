"""Files that would run code if anything unpickled them, or that lie: refused in one line, and no code runs."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Whole
from harness import Launcher, options

from valuedice.checkpoint import SLOTS
from valuedice.policy import FORMAT


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What a payload makes; that it would is checked here, so that its absence means something."""
    path = tmp_path / "code-ran"
    pickle.loads(pickle.dumps(Payload(path)))  # noqa: S301
    assert path.exists()
    path.rmdir()
    return path


def pickled_state(content: bytes) -> bytes:
    """As a checkpoint whose checksum is right."""
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


@pytest.mark.parametrize("with_checksum", [pytest.param(False, marks=pytest.mark.faults), True])
def test_a_pickle_in_place_of_a_checkpoint_runs_no_code(
    with_checksum: bool, launcher: Launcher, whole: Whole, marker: Path, tmp_path: Path
):
    run = Path(shutil.copytree(whole("value-dice", "quick"), tmp_path / "run"))
    content = pickle.dumps(Payload(marker))
    for slot in SLOTS:
        (run / "checkpoint" / slot / "state").write_bytes(pickled_state(content) if with_checksum else content)
    ended = launcher.run("train", "--resume", run)
    assert ended.is_one_line()
    assert "no checkpoint can be used" in ended.said
    assert not marker.exists()


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["pickle", "object array", "pickle inside"])
def test_demonstrations_that_hide_a_pickle_run_no_code(kind: str, launcher: Launcher, marker: Path, tmp_path: Path):
    path, payload = tmp_path / "demos.npz", Payload(marker)
    numbers = {"actions": np.zeros((4, 1)), "terminals": np.zeros(4), "timeouts": np.ones(4)}
    if kind == "pickle":
        path.write_bytes(pickle.dumps(payload))
    elif kind == "object array":
        np.savez(path, allow_pickle=True, observations=np.array([payload] * 4, object), **numbers)
    else:
        # Not even a header of numpy's: what its loader takes for a pickle.
        (tmp_path / "observations.npy").write_bytes(pickle.dumps(payload))
        shutil.make_archive(str(tmp_path / "demos"), "zip", tmp_path, "observations.npy")
        (tmp_path / "demos.zip").rename(path)
    trained = launcher.run("train", *options("value-dice", "quick", demos=path), "--out", tmp_path / "run")
    inspected = launcher.run("demos", "inspect", path)
    assert trained.is_one_line()
    assert inspected.is_one_line()
    assert not marker.exists()
    assert not (tmp_path / "run").exists()


def forged(kind: str, policy: bytes, payload: bytes) -> bytes:
    """A policy file that lies."""
    (size,) = struct.unpack("<Q", policy[:8])
    header, tensors = json.loads(policy[8 : 8 + size]), policy[8 + size :]
    if kind == "huge header":
        return struct.pack("<Q", 1 << 62) + policy[8:]
    if kind == "pickle":
        return payload
    if kind == "offsets":
        header["obs_mean"]["data_offsets"] = [1 << 40, (1 << 40) + 12]
    elif kind == "shape":
        header["obs_mean"]["shape"] = [1 << 60]
    elif kind == "layers":
        header["__metadata__"][FORMAT] = json.dumps({"kind": "tanh-gaussian", "layers": 1 << 60, "obs_clip": 1})
    else:
        header["__metadata__"][FORMAT] = payload.decode("latin-1")
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + tensors


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["huge header", "pickle", "offsets", "shape", "layers", "pickled metadata"])
def test_a_forged_policy_runs_no_code(kind: str, launcher: Launcher, whole: Whole, marker: Path, tmp_path: Path):
    policy = (whole("value-dice", "quick") / "policy.safetensors").read_bytes()
    path = tmp_path / "policy.safetensors"
    path.write_bytes(forged(kind, policy, pickle.dumps(Payload(marker))))
    ended = launcher.run("evaluate", path, "--env", "Pendulum-v1", "--episodes", "1")
    assert ended.is_one_line()
    assert not marker.exists()
