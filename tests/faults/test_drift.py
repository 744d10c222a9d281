"""What has changed between the beginning of a run and its end: settings, places, the environment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from signal import SIGINT

import pytest
from faults.harness import Whole, end_of, options, resumed, saved
from resuming import result, same

import valuedice as vd


@pytest.fixture
def run(whole: Whole, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(whole("value-dice", "quick"), tmp_path / "run"))


def test_other_settings_are_refused_with_every_difference(launcher, run):
    before = result(run), (run / "config.json").read_bytes()
    ended = launcher.run(*resumed(run), "--seed", "5", "--actor-lr", "1", "--threads", "2")
    assert ended.refused
    for difference in ("--seed was 0, now 5", "--actor-lr was 0.001, now 1.0", "--threads was 1, now 2"):
        assert difference in ended.said
    assert (result(run), (run / "config.json").read_bytes()) == before


@pytest.mark.faults
def test_a_run_resumes_from_another_folder_than_it_began_in(launcher, whole, tmp_path):
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
def test_an_environment_that_does_not_repeat_itself_is_one_warning(launcher, tmp_path):
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
