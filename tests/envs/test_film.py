"""Films: what is drawn, what is written, and what is said where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest

from valuedice.cli import main
from valuedice.errors import InputError
from valuedice.play import beside, choose_renderer, film, open_stage, write_film
from valuedice.policy import Policy
from valuedice.types import Normalizer, Spec


def stripes(*colours: int, shape: tuple[int, int] = (20, 30)) -> list[np.ndarray]:
    return [np.full((*shape, 3), colour, np.uint8) for colour in colours]


def test_a_film_that_has_ended_stands_still_beside_the_other():
    frames = list(beside([iter(stripes(10, 20, 30)), iter(stripes(40))], height=20))
    assert [frame.shape for frame in frames] == [(20, 64, 3)] * 3
    assert [frame[0, 0, 0] for frame in frames] == [10, 20, 30]
    assert [frame[0, -1, 0] for frame in frames] == [40, 40, 40]
    assert all((frame[:, 30:34] == 255).all() for frame in frames)


def test_pictures_keep_their_proportions():
    (frame,) = beside([iter(stripes(1, shape=(40, 80)))], height=20)
    assert frame.shape == (20, 40, 3)


def test_a_gif_holds_the_frames_that_were_asked_for(tmp_path):
    assert write_film(iter(stripes(0, 100, 200, 250)), tmp_path / "film.gif", 10, 3) == 3
    written = iio.imread(tmp_path / "film.gif")
    assert written.shape == (3, 20, 30, 3)
    assert [frame[0, 0, 0] for frame in written] == [0, 100, 200]


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"film.avi is neither .gif nor .mp4"):
        write_film(iter(stripes(0)), tmp_path / "film.avi", 10, 1)


def test_a_folder_that_is_missing_is_one_line(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        write_film(iter(stripes(0, 1)), tmp_path / "none" / "film.gif", 10, 2)


def test_an_unknown_environment_is_one_line():
    with pytest.raises(InputError, match=r"no environment 'Nothing-v0' .*; give a Gymnasium id"):
        open_stage("Nothing-v0")


def test_mujoco_draws_by_egl_where_there_is_no_screen(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    choose_renderer()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.delenv("MUJOCO_GL")
    choose_renderer()
    assert os.environ["MUJOCO_GL"] == "egl"


def still(env_sizes: tuple[int, int]) -> Policy:
    """Never moves."""
    obs, actions = env_sizes
    layers = ((np.zeros((obs, 2 * actions), np.float32), np.zeros(2 * actions, np.float32)),)
    normalizer = Normalizer(np.zeros(obs, np.float32), np.ones(obs, np.float32))
    return Policy(layers, normalizer, Spec(obs, actions, low=(-1.0,) * actions, high=(1.0,) * actions))


@pytest.fixture(scope="module")
def stage() -> None:
    """MuJoCo can draw here."""
    try:
        open_stage("HalfCheetah-v5").close()
    except InputError as error:
        pytest.skip(str(error))


def test_an_episode_of_mujoco_is_filmed_without_a_screen(stage, tmp_path, capsys):
    still((17, 6)).save(tmp_path / "still.safetensors")
    out = tmp_path / "film.gif"
    args = [
        "play",
        str(tmp_path / "still.safetensors"),
        "--env",
        "HalfCheetah-v5",
        "--frames",
        "4",
        "--out",
        str(out),
    ]
    assert main(args) == 0
    assert "4 frames" in capsys.readouterr().out
    frames = iio.imread(out)
    assert len(frames) == 4
    assert frames.std() > 10


@pytest.mark.parametrize("env", ["HalfCheetah-v5", "Hopper-v5"])
def test_a_body_that_runs_away_stays_in_the_picture(stage, env):
    film = open_stage(env)
    try:
        here = np.asarray(film.render())
        task: Any = film.unwrapped
        task.set_state(task.data.qpos + np.eye(len(task.data.qpos))[0] * 20, task.data.qvel)
        # 20 metres further; the floor's pattern repeats, and nothing else is there to be seen.
        there = np.asarray(film.render())
    finally:
        film.close()
    # Warm colours are the body's: the floor has none.
    bodies = [np.mean(frame[..., 0].astype(int) - frame[..., 2] > 30) for frame in (here, there)]
    assert bodies[0] > 0.01
    assert bodies[1] > 0.8 * bodies[0]


def test_a_policy_of_another_task_is_refused(stage, tmp_path: Path):
    with pytest.raises(InputError, match="features of an observation: 3 in the policy, 17 in HalfCheetah-v5"):
        next(film(still((3, 1)), "HalfCheetah-v5", 0))


@pytest.mark.parametrize("rate", ["nan", "inf", "0"])
def test_a_rate_that_is_none_is_refused_before_anything_is_filmed(rate, tmp_path: Path, capsys):
    assert main(["play", str(tmp_path / "policy"), "--out", str(tmp_path / "x.gif"), "--rate", rate]) == 2
    assert "it must be finite and at least 0.1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
