"""Films: what is drawn, what is written, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import imageio.v3 as iio
import numpy as np
import pytest
from gymnasium import spaces

from valuedice.envs.film import beside, film, write_film
from valuedice.envs.make import make_env
from valuedice.errors import InputError
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


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"film.avi is neither .gif nor .mp4"):
        write_film(iter(stripes(0)), tmp_path / "film.avi", 10, 1)
    with pytest.raises(InputError, match="cannot write"):
        write_film(iter(stripes(0, 1)), tmp_path / "none" / "film.gif", 10, 2)


def still(obs: int, actions: int) -> Policy:
    """Never moves."""
    layers = ((np.zeros((obs, 2 * actions), np.float32), np.zeros(2 * actions, np.float32)),)
    return Policy(layers, Normalizer.none(obs), Spec(obs, actions, low=(-1.0,) * actions, high=(1.0,) * actions))


class Counter(gym.Env[Any, Any]):
    """Lasts seven steps, and draws how many it has made."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))
    steps, closed = 0, False

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**how)
        self.steps = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1), 0.0, self.steps == 7, False, {}

    def render(self) -> Any:
        return stripes(self.steps)[0]

    def close(self) -> None:
        self.closed = True


def test_a_film_has_a_frame_in_every_so_many_steps_to_the_end_of_the_episode():
    stages = [Counter(), Counter()]
    films = [
        list(film(still(1, 1), lambda stage=stage: stage, 0, every))
        for stage, every in zip(stages, (1, 3), strict=True)
    ]
    assert [[frame[0, 0, 0] for frame in frames] for frames in films] == [[1, 2, 3, 4, 5, 6, 7], [1, 4, 7]]
    assert all(stage.closed for stage in stages)


@pytest.fixture(scope="module")
def mujoco_draws() -> None:
    try:
        make_env("HalfCheetah-v5", render=True).close()
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("mujoco_draws")
def test_an_episode_of_mujoco_is_filmed_without_a_screen(tmp_path):
    out = tmp_path / "film.gif"
    assert write_film(beside([film(still(17, 6), "HalfCheetah-v5", 0, every=2)]), out, 25, 4) == 4
    frames = iio.imread(out)
    assert len(frames) == 4
    assert frames.std() > 10


@pytest.mark.usefixtures("mujoco_draws")
@pytest.mark.parametrize("env", ["HalfCheetah-v5", "Hopper-v5"])
def test_a_body_that_runs_away_stays_in_the_picture(env):
    stage = make_env(env, render=True)
    try:
        here = np.asarray(stage.render())
        task: Any = stage.unwrapped
        task.set_state(task.data.qpos + np.eye(len(task.data.qpos))[0] * 20, task.data.qvel)
        # 20 metres further; the floor's pattern repeats, and nothing else is there to be seen.
        there = np.asarray(stage.render())
    finally:
        stage.close()
    # Warm colours are the body's: the floor has none.
    bodies = [np.mean(frame[..., 0].astype(int) - frame[..., 2] > 30) for frame in (here, there)]
    assert bodies[0] > 0.01
    assert bodies[1] > 0.8 * bodies[0]


def test_a_policy_of_another_task_is_refused():
    with pytest.raises(InputError, match="observations have 3 features, those of Counter 1"):
        next(film(still(3, 1), Counter, 0))
