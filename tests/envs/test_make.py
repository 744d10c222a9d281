"""Making environments, drawing them and reading their shape; errors say what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from tasks import Countdown

from valuedice.envs.episodes import play
from valuedice.envs.make import check_env_ref, choose_renderer, env_name, limit_time, make_env, task_spec
from valuedice.errors import InputError
from valuedice.types import Spec

FLAT = spaces.Box(-1, 1, (3,))
UNEVEN = spaces.Box(np.array([-1, 0], np.float32), np.array([2, 0.5], np.float32))


@pytest.mark.parametrize(
    ("env", "spec"),
    [
        (lambda: Countdown(observations=FLAT, actions=UNEVEN), Spec(3, 2, low=(-1, 0), high=(2, 0.5))),
        (lambda: Countdown(actions=spaces.Discrete(4, start=2)), Spec(1, 4, discrete=True, first_action=2)),
        ("Pendulum-v1", Spec(3, 1, low=(-2,), high=(2,))),
    ],
)
def test_a_task_has_its_sizes_and_bounds(env, spec):
    assert task_spec(make_env(env), "task") == spec


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"observations": spaces.Dict({"position": FLAT})}, "Dict observations.*FlattenObservation"),
        ({"observations": spaces.Box(0, 255, (8, 8, 3), np.uint8)}, r"Box\(8, 8, 3\) observations.*encode images"),
        ({"observations": spaces.Box(-1, 1, ())}, "Box observations"),
        ({"actions": spaces.MultiDiscrete([2, 3])}, "MultiDiscrete.*actions.*ActionWrapper"),
        ({"actions": spaces.Box(-1, 1, (2, 2))}, r"Box\(2, 2\) actions"),
        ({"actions": spaces.Box(0, 5, (2,), np.int64)}, "Box of int64 actions.*ActionWrapper"),
        ({"actions": spaces.Box(0, np.inf, (2,))}, "unbounded actions.*finite bounds"),
    ],
)
def test_unsupported_spaces_are_refused_with_what_to_do(changes, says):
    with pytest.raises(InputError, match=says):
        task_spec(Countdown(**changes), "task")


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
@pytest.mark.parametrize(
    "name", ["NoSuchTask-v0", "CartPole-v99", "no_such_module:Task-v0", "Hopper-v2", "", "a:b:c", "..a:Task-v0"]
)
def test_an_unknown_environment_is_refused_by_its_name(name):
    with pytest.raises(InputError, match="no environment") as caught:
        make_env(name)
    assert repr(name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_environment_is_given_by_its_id_or_its_factory_and_not_as_an_object():
    for ref, name in (("Pendulum-v1", "Pendulum-v1"), (Countdown, "Countdown")):
        check_env_ref(ref)
        assert env_name(ref) == name
    for ref, says in ((Countdown(), "given as an object; give its id, or a function"), (None, "None is no env")):
        with pytest.raises(InputError, match=says):
            make_env(ref)  # type: ignore[arg-type]


ID = "valuedice-tests/Task-v0"


@pytest.fixture
def registered() -> Iterator[Callable[[Any], None]]:
    """Registers an entry point, and forgets it afterwards."""
    yield lambda entry: gym.register(ID, entry)
    del gym.registry[ID]


@pytest.mark.parametrize(
    ("error", "render", "says"),
    [
        (
            RuntimeError("no licence\nline"),
            False,
            r"'valuedice-tests/.*cannot be made \(RuntimeError: no licence\);",
        ),
        (ImportError("no module"), False, "no environment 'valuedice-tests/.*no module"),
        (ImportError("no driver"), True, r"cannot be drawn here \(ImportError: no driver\)"),
        (gym.error.NameNotFound("unknown"), True, "no environment 'valuedice-tests/.*; give a Gymnasium id"),
    ],
)
def test_an_environment_that_fails_is_one_line_unless_it_is_the_users_own_function(registered, error, render, says):
    def broken(**_: Any) -> Countdown:
        raise error

    registered(broken)
    with pytest.raises(InputError, match=says):
        make_env(ID, render=render)
    with pytest.raises(type(error)):
        make_env(broken, render=render)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ImportError("no libEGL"), r"cannot be drawn here \(ImportError: no libEGL\); .*MuJoCo needs EGL"),
        (gym.error.DependencyNotInstalled("pygame is missing"), "needs a package to be drawn: pygame is missing"),
        (None, "draws no pictures as arrays; make it with render_mode='rgb_array'"),
    ],
)
def test_a_failed_drawing_is_one_line_and_closes_the_environment(error, says, monkeypatch):
    env = Countdown()
    monkeypatch.setattr(env, "render", Mock(side_effect=error, return_value=None))
    with pytest.raises(InputError, match=says):
        make_env(lambda: env, render=True)
    assert env.closed


def test_mujoco_draws_with_egl_if_there_is_no_screen(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    for chosen, expected in (({"MUJOCO_GL": "osmesa"}, "osmesa"), ({}, "egl")):
        monkeypatch.setattr(os, "environ", chosen)
        choose_renderer()
        assert os.environ["MUJOCO_GL"] == expected


LIMITED = gym.wrappers.TimeLimit(Countdown(1000), 50)


@pytest.mark.parametrize(
    ("env", "length"),
    [(Countdown(1000), 30), (LIMITED, 50), (gym.wrappers.ClipAction(LIMITED), 50), (make_env("Pendulum-v1"), 200)],
)
def test_a_time_limit_is_imposed_only_if_there_is_none(env, length):
    steps = list(play(lambda *_: [np.zeros(1)], [limit_time(env, 30)], [0]))
    assert len(steps) == length
