"""What has changed between the beginning of a run and its end: settings, places, formats, the environment."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from signal import SIGINT

import numpy as np
import pytest
from faults.harness import Launcher, Whole, end_of, options, resumed, saved
from resuming import result, same
from safetensors.numpy import load, save

import valuedice as vd
from valuedice.training.checkpoint import SLOTS


@pytest.fixture
def run(whole: Whole, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(whole("value-dice", "quick"), tmp_path / "run"))


def test_other_settings_are_refused_with_every_difference(launcher: Launcher, run: Path):
    before = result(run), (run / "config.json").read_bytes()
    ended = launcher.run(*resumed(run), "--seed", "5", "--actor-lr", "1", "--threads", "2")
    assert ended.refused
    for difference in ("--seed was 0, now 5", "--actor-lr was 0.001, now 1.0", "--threads was 1, now 2"):
        assert difference in ended.said
    assert (result(run), (run / "config.json").read_bytes()) == before


@pytest.mark.faults
def test_more_steps_and_other_evaluations_change_no_parameter(launcher: Launcher, run: Path, tmp_path: Path):
    assert launcher.run(*resumed(run), "--steps", "360", "--eval-every", "30").done
    assert saved(run) == 360
    assert launcher.run(*options("value-dice", "quick", steps=360), "--out", tmp_path / "at-once").done
    assert result(run)[0] == result(tmp_path / "at-once")[0]


@pytest.mark.faults
def test_a_run_resumes_from_another_folder_than_it_began_in(launcher: Launcher, whole: Whole, tmp_path: Path):
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    vd.load_demos("pendulum").save(home / "mine.npz")
    begun = options("value-dice", "quick", demos="mine.npz", steps=150)
    assert launcher.run(*begun, "--out", "run", cwd=home).done
    assert launcher.run(*resumed("../home/run"), "--steps", "300", cwd=away).done
    assert same(home / "run", whole("value-dice", "quick"))


FORGETFUL = """
import random
import gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv

class Forgetful(PendulumEnv):
    def reset(self, **how):
        obs, info = super().reset(**how)
        self.state += random.random() / 10
        return self._get_obs(), info

gym.register("Forgetful-v0", Forgetful, max_episode_steps=200)
"""


@pytest.mark.faults
def test_an_environment_that_does_not_repeat_itself_is_one_warning(launcher: Launcher, tmp_path: Path):
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    launcher.env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    out, env = tmp_path / "run", {"env": "forgetful:Forgetful-v0", "eval_env": "Pendulum-v1"}
    assert end_of(launcher.until_row(out, *options("value-dice", "quick", **env), "--out", out), SIGINT).code == 130
    ended = launcher.run(*resumed(out))
    assert ended.code == 0
    assert ended.said.count("\n") == 1
    assert ended.said.startswith(
        "valuedice: warning: the environment does not repeat an episode from the same start"
    )
    assert saved(out) == 300


# Formats of a version to come.


@pytest.mark.faults
def test_a_checkpoint_of_a_newer_format_is_refused_with_what_is_needed(launcher: Launcher, run: Path):
    for slot in SLOTS:
        path = run / "checkpoint" / slot / "state"
        _, _, content = path.read_bytes().partition(b"\n")
        content = save(load(content), {"format": "99", "something": "new"})
        path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    ended = launcher.run(*resumed(run))
    assert ended.refused
    assert "format 99" in ended.said
    assert "resume with the version of valuedice that wrote it, or a newer one" in ended.said


@pytest.mark.faults
def test_a_policy_of_a_newer_format_is_refused_with_what_is_needed(launcher: Launcher, tmp_path: Path):
    path = tmp_path / "policy.safetensors"
    path.write_bytes(save({"layer0.kernel": np.zeros((2, 2), np.float32)}, {"valuedice-policy-99": "{}"}))
    ended = launcher.run("evaluate", path, "--env", "Pendulum-v1")
    assert ended.refused
    assert "valuedice-policy-99" in ended.said
    assert "use the version of valuedice that wrote it" in ended.said
