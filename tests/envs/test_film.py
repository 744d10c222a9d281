"""Films: which frames are drawn and written, and what is refused."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
from numpy.testing import assert_allclose
from tasks import Countdown, box, linear_policy

from valuedice.envs.film import beside, film, real_time, recording_film, write_film
from valuedice.envs.make import make_env
from valuedice.envs.recording import collect_demos
from valuedice.errors import InputError


def frames(*colours: int, shape: tuple[int, int] = (20, 30)) -> Any:
    return iter([np.full((*shape, 3), colour, np.uint8) for colour in colours])


def test_a_film_that_has_ended_stands_still_beside_the_other_and_both_keep_their_proportions():
    pictures = list(beside([frames(10, 20, 30), frames(40, shape=(40, 80))], height=20))
    assert [picture.shape for picture in pictures] == [(20, 30 + 4 + 40, 3)] * 3
    assert [picture[0, 0, 0] for picture in pictures] == [10, 20, 30]
    assert [picture[0, -1, 0] for picture in pictures] == [40, 40, 40]
    assert all((picture[:, 30:34] == 255).all() for picture in pictures)


def test_a_gif_holds_the_frames_that_were_asked_for(tmp_path):
    assert write_film(frames(0, 100, 200, 250), tmp_path / "film.gif", 10, 3) == 3
    written = iio.imread(tmp_path / "film.gif")
    assert written.shape == (3, 20, 30, 3)
    assert [frame[0, 0, 0] for frame in written] == [0, 100, 200]


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"film.avi is neither .gif nor .mp4"):
        write_film(frames(0), tmp_path / "film.avi", 10, 1)
    with pytest.raises(InputError, match="cannot write"):
        write_film(frames(0, 1), tmp_path / "none" / "film.gif", 10, 2)


@pytest.mark.parametrize(("every", "counts"), [(1, [6, 5, 4, 3, 2, 1, 0]), (3, [6, 3, 0])])
def test_a_film_has_a_frame_in_every_so_many_steps_to_the_end_of_the_episode(every, counts):
    stage = Countdown(7)
    assert [frame[0, 0, 0] for frame in film(linear_policy(box(1, 1)), lambda: stage, 0, every)] == counts
    assert stage.closed


def test_a_policy_of_another_task_is_refused():
    with pytest.raises(InputError, match="observations have 3 features, those of Countdown 1"):
        next(film(linear_policy(box(3, 1)), Countdown, 0))


@pytest.fixture(scope="module")
def mujoco_draws() -> None:
    try:
        make_env("HalfCheetah-v5", render=True).close()
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("mujoco_draws")
def test_an_episode_of_mujoco_is_filmed_without_a_screen(tmp_path):
    pictures = beside([film(linear_policy(box(17, 6)), "HalfCheetah-v5", 0, every=2)])
    assert write_film(pictures, tmp_path / "film.gif", 25, 4) == 4
    assert iio.imread(tmp_path / "film.gif").std() > 10


def test_a_title_is_written_into_its_own_picture():
    first, second = (frames(100, shape=(40, 120)) for _ in range(2))
    picture = next(beside([first, second], height=40, titles=("expert", "")))
    assert picture[:, :120].max() == 255
    assert (picture[:, 124:] == 100).all()


@pytest.mark.usefixtures("mujoco_draws")
@pytest.mark.parametrize(("env", "hidden"), [("HalfCheetah-v5", 1), ("Ant-v5", 2), ("InvertedPendulum-v5", 0)])
def test_a_recorded_episode_is_drawn_where_the_body_was(env, hidden):
    stage = make_env(env, render=True)
    task: Any = stage.unwrapped
    task.close = lambda: None
    places: list[np.ndarray] = []
    rng = np.random.default_rng(0)

    def act(_: np.ndarray) -> Any:
        places.append(task.data.qpos.copy())
        return rng.uniform(-1, 1, task.action_space.shape)

    episode = collect_demos(act, lambda: stage, 1).episodes[0]
    expected = np.array(places[:30])
    drawn: Any = []
    for frame in islice(recording_film(episode, lambda: stage), len(expected)):
        assert frame.std() > 10
        drawn.append(task.data.qpos.copy())
    drawn = np.array(drawn)
    assert_allclose(drawn[:, hidden:], expected[:, hidden:], atol=1e-5)
    if not hidden:
        return
    # It begins at the origin, and the way is a sum of speeds.
    way = expected[:, :hidden] - expected[:1, :hidden]
    assert np.abs(way).max() > 0.02
    assert_allclose(drawn[:, :hidden], way, atol=0.25 * np.abs(way).max())


def test_a_recording_whose_observations_hide_the_body_cannot_be_drawn():
    episode = collect_demos(lambda _: np.zeros(1), Countdown, 1).episodes[0]
    with pytest.raises(InputError, match="do not show how to draw"):
        next(recording_film(episode, Countdown))


@pytest.mark.parametrize(("env", "every", "rate"), [("HalfCheetah-v5", 2, 10.0), ("Hopper-v5", 10, 12.5)])
def test_films_run_at_the_speed_of_the_task(env, every, rate):
    assert real_time(env) == (every, rate)


@pytest.mark.usefixtures("mujoco_draws")
@pytest.mark.parametrize("env", ["HalfCheetah-v5", "Hopper-v5"])
def test_a_body_that_runs_away_stays_in_the_picture(env):
    with closing(make_env(env, render=True)) as stage:
        here = np.asarray(stage.render())
        task: Any = stage.unwrapped
        task.set_state(task.data.qpos + np.eye(len(task.data.qpos))[0] * 20, task.data.qvel)
        # 20 metres further; the floor's pattern repeats, and nothing else is there to be seen.
        there = np.asarray(stage.render())
    # Warm colours are the body's: the floor has none.
    bodies = [np.mean(picture[..., 0].astype(int) - picture[..., 2] > 30) for picture in (here, there)]
    assert bodies[0] > 0.01
    assert bodies[1] > 0.8 * bodies[0]
