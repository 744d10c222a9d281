"""A run is resumed with what it began with: other settings and formats are refused, other places are not."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import Whole
from harness import Launcher, options, result, same, saved
from safetensors.numpy import load, save

import valuedice
from valuedice.checkpoint import SLOTS


def copy_of(reference: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reference, tmp_path / "run"))


def test_other_settings_are_refused_with_every_difference(launcher: Launcher, whole: Whole, tmp_path: Path):
    run = copy_of(whole("value-dice", "quick"), tmp_path)
    before = result(run), (run / "config.json").read_bytes()
    ended = launcher.run("train", "--resume", run, "--seed", "5", "--actor-lr", "1", "--threads", "2")
    assert ended.is_one_line()
    for difference in ("seed was 0, now 5", "actor_lr was 0.001, now 1.0", "threads was 1, now 2"):
        assert difference in ended.said
    assert (result(run), (run / "config.json").read_bytes()) == before


@pytest.mark.faults
def test_more_steps_and_other_evaluations_are_accepted(launcher: Launcher, whole: Whole, tmp_path: Path):
    run = copy_of(whole("value-dice", "quick"), tmp_path)
    ended = launcher.run("train", "--resume", run, "--steps", "360", "--eval-every", "30")
    assert (ended.code, ended.said) == (0, "")
    assert saved(run) == 360
    at_once = launcher.run("train", *options("value-dice", "quick", steps=360), "--out", tmp_path / "at-once")
    assert at_once.code == 0
    assert result(run)[0] == result(tmp_path / "at-once")[0]
    ended = launcher.run("train", "--resume", run, "--steps", "100")
    assert ended.is_one_line()
    assert "has already made 360 steps, and 100 are asked for" in ended.said


@pytest.mark.faults
def test_a_run_resumes_from_another_folder_than_it_began_in(launcher: Launcher, whole: Whole, tmp_path: Path):
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    demos = Path(valuedice.__file__).parent / "demos" / "library" / "pendulum.npz"
    shutil.copy(demos, home / "mine.npz")
    begun = options("value-dice", "quick", demos="mine.npz", steps=150)
    assert launcher.run("train", *begun, "--out", "run", cwd=home).code == 0
    ended = launcher.run("train", "--resume", "../home/run", "--steps", "300", cwd=away)
    assert (ended.code, ended.said) == (0, "")
    assert same(home / "run", whole("value-dice", "quick"))


# Formats of a version to come.


@pytest.mark.faults
def test_a_checkpoint_of_a_newer_format_is_refused_with_what_is_needed(
    launcher: Launcher, whole: Whole, tmp_path: Path
):
    run = copy_of(whole("value-dice", "quick"), tmp_path)
    for slot in SLOTS:
        path = run / "checkpoint" / slot / "state"
        _, _, content = path.read_bytes().partition(b"\n")
        content = save(load(content), {"format": "99", "something": "new"})
        path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    ended = launcher.run("train", "--resume", run)
    assert ended.is_one_line()
    assert "format 99" in ended.said
    assert "resume with the version of valuedice that wrote it, or a newer one" in ended.said


@pytest.mark.faults
@pytest.mark.parametrize("more", [{}, {"algorithm": "to-come"}, {"hidden": {"actor": 3}}, {"command": {"env": 3}}])
def test_a_run_folder_of_a_newer_format_is_refused_with_what_is_needed(
    more: dict[str, object], launcher: Launcher, whole: Whole, tmp_path: Path
):
    run = copy_of(whole("value-dice", "quick"), tmp_path)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"format": 99} | more))
    ended = launcher.run("train", "--resume", run)
    assert ended.is_one_line()
    assert "format 99" in ended.said
    assert "it needs a newer version of valuedice" in ended.said


@pytest.mark.faults
def test_a_policy_of_a_newer_format_is_refused_with_what_is_needed(launcher: Launcher, tmp_path: Path):
    path = tmp_path / "policy.safetensors"
    path.write_bytes(save({"layer0.kernel": np.zeros((2, 2), np.float32)}, {"valuedice-policy-99": "{}"}))
    ended = launcher.run("evaluate", path, "--env", "Pendulum-v1")
    assert ended.is_one_line()
    assert "valuedice-policy-99" in ended.said
    assert "use the version of valuedice that wrote it" in ended.said
