"""Making environments, drawing them and reading their shape; errors say what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from tasks import Countdown

from valuedice.envs.make import check_env_ref, choose_renderer, env_name, limit_time, make_env, task_spec
from valuedice.errors import InputError
from valuedice.types import Spec

FLAT = spaces.Box(-1, 1, (3,))
UNEVEN = spaces.Box(np.array([-1, 0], np.float32), np.array([2, 0.5], np.float32))
HALF_OPEN = spaces.Box(np.array([0, 0], np.float32), np.array([1, np.inf], np.float32))


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


def test_an_environment_is_named_by_its_id_or_its_factory():
    assert (env_name("Pendulum-v1"), env_name(Countdown)) == ("Pendulum-v1", "Countdown")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"observations": spaces.Dict({"position": FLAT})}, "Dict observations.*FlattenObservation"),
        ({"observations": spaces.Box(0, 255, (8, 8, 3), np.uint8)}, r"Box\(8, 8, 3\) observations.*encode images"),
        ({"observations": spaces.Discrete(5)}, "Discrete observations"),
        ({"observations": spaces.Box(-1, 1, ())}, "Box observations"),
        ({"actions": spaces.MultiDiscrete([2, 3])}, "MultiDiscrete.*actions.*ActionWrapper"),
        ({"actions": spaces.MultiBinary(3)}, "MultiBinary.*actions"),
        ({"actions": spaces.Dict({"torque": FLAT})}, "Dict actions"),
        ({"actions": spaces.Box(-1, 1, (2, 2))}, r"Box\(2, 2\) actions"),
        ({"actions": spaces.Box(0, 5, (2,), np.int64)}, "Box of int64 actions.*ActionWrapper"),
        ({"actions": spaces.Box(-np.inf, np.inf, (2,))}, "unbounded actions.*finite bounds"),
        ({"actions": HALF_OPEN}, "unbounded actions"),
    ],
)
def test_unsupported_spaces_are_refused_with_what_to_do(changes, says):
    with pytest.raises(InputError, match=says):
        task_spec(Countdown(**changes), "task")


@pytest.mark.parametrize(
    "name", ["NoSuchTask-v0", "CartPole-v99", "no_such_module:Task-v0", "not an id", "", "a:b:c", "..a:Task-v0"]
)
def test_an_unknown_environment_is_refused_by_its_name(name):
    with pytest.raises(InputError, match="no environment") as caught:
        make_env(name)
    assert repr(name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_of_a_package_that_is_gone_is_refused():
    with (
        pytest.warns(DeprecationWarning, match="out"),
        pytest.raises(InputError, match="no environment 'Hopper-v2'"),
    ):
        make_env("Hopper-v2")


def test_an_environment_object_is_refused():
    for check in (check_env_ref, make_env):
        with pytest.raises(InputError, match="given as an object; give its id, or a function that makes one"):
            check(Countdown())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="None is no environment"):
        check_env_ref(None)
    check_env_ref(Countdown)
    check_env_ref("Pendulum-v1")


ID = "valuedice-tests/Task-v0"


@pytest.fixture
def registered() -> Iterator[Callable[[Any], None]]:
    """Registers an entry point, and forgets it afterwards."""
    yield lambda entry: gym.register(ID, entry)
    del gym.registry[ID]


def test_an_environment_that_fails_is_one_line_unless_it_is_the_users_own_function(registered):
    def broken(**_: Any) -> Countdown:
        raise RuntimeError("the licence is missing\nsecond line")

    registered(broken)
    with pytest.raises(InputError) as caught:
        make_env(ID)
    assert f"{ID!r} cannot be made (RuntimeError: the licence is missing)" in str(caught.value)
    with pytest.raises(RuntimeError, match="the licence is missing"):
        make_env(broken)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ImportError("no libEGL"), r"cannot be drawn here \(ImportError: no libEGL\); .*MuJoCo needs EGL"),
        (gym.error.DependencyNotInstalled("pygame is missing"), "needs a package to be drawn: pygame is missing"),
        (None, "draws no pictures as arrays; make it with render_mode='rgb_array'"),
    ],
)
def test_a_failed_drawing_is_one_line_and_closes_the_environment(error, says, monkeypatch):
    def render() -> None:
        if error is not None:
            raise error

    env = Countdown()
    monkeypatch.setattr(env, "render", render)
    with pytest.raises(InputError, match=says):
        make_env(lambda: env, render=True)
    assert env.closed


def test_a_driver_that_fails_on_import_is_no_unknown_environment(registered):
    def no_driver(**_: Any) -> Countdown:
        raise ImportError("no libEGL")

    registered(no_driver)
    with pytest.raises(InputError, match="cannot be drawn here"):
        make_env(ID, render=True)
    with pytest.raises(InputError, match=r"no environment 'Nothing-v0' .*; give a Gymnasium id"):
        make_env("Nothing-v0", render=True)


def test_mujoco_draws_with_egl_if_there_is_no_screen(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    choose_renderer()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.delenv("MUJOCO_GL")
    choose_renderer()
    assert os.environ["MUJOCO_GL"] == "egl"


def test_a_time_limit_is_imposed_only_if_there_is_none():
    def length(env: gym.Env[Any, Any]) -> int:
        env.reset()
        steps = (env.step(env.action_space.sample()) for _ in range(1000))
        return 1 + sum(1 for _ in takewhile(lambda step: not (step[2] or step[3]), steps))

    limited = gym.wrappers.TimeLimit(Countdown(1000), 50)
    assert length(limit_time(Countdown(1000), 30)) == 30
    assert length(limit_time(limited, 30)) == 50
    assert length(limit_time(gym.wrappers.ClipAction(limited), 30)) == 50
    assert length(limit_time(make_env("Pendulum-v1"), 30)) == 200
