"""Making environments, drawing them and reading their shape; errors say what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from valuedice.envs.make import check_env_ref, choose_renderer, env_name, limit_time, make_env, task_spec
from valuedice.errors import InputError
from valuedice.types import Spec

FLAT = spaces.Box(-1, 1, (3,))


class Still(gym.Env[Any, Any]):
    """Nothing ever happens in it."""

    def __init__(self, observation_space: spaces.Space[Any] = FLAT, action_space: spaces.Space[Any] = FLAT) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**how)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(3, np.float32), 0.0, False, False, {}


def spec_of(make: Callable[[], gym.Env[Any, Any]]) -> Spec:
    return task_spec(make_env(make), env_name(make))


def test_a_box_task_has_its_sizes_and_bounds():
    actions = spaces.Box(np.array([-1, 0], np.float32), np.array([2, 0.5], np.float32))
    assert spec_of(lambda: Still(action_space=actions)) == Spec(3, 2, low=(-1, 0), high=(2, 0.5))


def test_a_discrete_task_has_its_number_of_actions_and_the_first():
    assert spec_of(lambda: Still(action_space=spaces.Discrete(4, start=2))) == Spec(
        3, 4, discrete=True, first_action=2
    )


@pytest.mark.parametrize(
    ("observations", "says"),
    [
        (spaces.Dict({"position": FLAT}), "Dict observations.*FlattenObservation"),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), r"Box\(84, 84, 3\) observations.*encode images"),
        (spaces.Discrete(5), "Discrete observations"),
        (spaces.Box(-1, 1, ()), "Box observations"),
    ],
)
def test_unsupported_observations_are_refused_with_what_to_do(observations, says):
    with pytest.raises(InputError, match=says):
        spec_of(lambda: Still(observation_space=observations))


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        (spaces.MultiDiscrete([2, 3]), "MultiDiscrete.*actions.*ActionWrapper"),
        (spaces.MultiBinary(3), "MultiBinary.*actions"),
        (spaces.Dict({"torque": FLAT}), "Dict actions"),
        (spaces.Box(-1, 1, (2, 2)), r"Box\(2, 2\) actions"),
        (spaces.Box(-np.inf, np.inf, (2,)), "unbounded actions.*finite bounds"),
        (spaces.Box(np.array([0, 0], np.float32), np.array([1, np.inf], np.float32)), "unbounded actions"),
    ],
)
def test_unsupported_actions_are_refused_with_what_to_do(actions, says):
    with pytest.raises(InputError, match=says):
        spec_of(lambda: Still(action_space=actions))


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
            check(Still())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="None is no environment"):
        check_env_ref(None)
    check_env_ref(Still)
    check_env_ref("Pendulum-v1")


def broken(**_: Any) -> gym.Env[Any, Any]:
    raise RuntimeError("the licence is missing\nsecond line")


def test_an_error_of_the_users_own_function_is_passed_on():
    with pytest.raises(RuntimeError, match="the licence is missing"):
        make_env(broken)


def test_a_registered_environment_that_fails_is_one_line(registered):
    registered(broken)
    with pytest.raises(InputError) as caught:
        make_env("valuedice-tests/Task-v0")
    assert "'valuedice-tests/Task-v0' cannot be made (RuntimeError: the licence is missing)" in str(caught.value)


@pytest.fixture
def registered() -> Iterator[Callable[[Any], None]]:
    """Registers an entry point, and forgets it afterwards."""
    yield lambda entry: gym.register("valuedice-tests/Task-v0", entry)
    del gym.registry["valuedice-tests/Task-v0"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ImportError("no libEGL"), r"cannot be drawn here \(ImportError: no libEGL\); .*MuJoCo needs EGL"),
        (gym.error.DependencyNotInstalled("pygame is missing"), "needs a package to be drawn: pygame is missing"),
        (None, "draws no pictures as arrays; make it with render_mode='rgb_array'"),
    ],
)
def test_a_failed_drawing_is_one_line_and_closes_the_environment(error, says):
    closed = []

    class Undrawable(Still):
        def render(self) -> Any:
            if error is not None:
                raise error

        def close(self) -> None:
            closed.append(self)

    with pytest.raises(InputError, match=says):
        make_env(Undrawable, render=True)
    assert len(closed) == 1


def test_a_driver_that_fails_on_import_is_no_unknown_environment(registered):
    def no_driver(**_: Any) -> gym.Env[Any, Any]:
        raise ImportError("no libEGL")

    registered(no_driver)
    with pytest.raises(InputError, match="cannot be drawn here"):
        make_env("valuedice-tests/Task-v0", render=True)
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


def test_a_registered_task_is_made_and_named_by_its_id():
    env = make_env("Pendulum-v1")
    assert task_spec(env, env_name("Pendulum-v1")) == Spec(3, 1, low=(-2,), high=(2,))
    assert env_name("Pendulum-v1") == "Pendulum-v1"
    env.close()


def test_a_factory_is_named_after_itself():
    assert env_name(Still) == "Still"


def length(env: gym.Env[Any, Any]) -> int:
    env.reset()
    steps, over = 0, False
    while not over:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps, over = steps + 1, terminated or truncated
    return steps


def test_a_time_limit_is_imposed_only_where_there_is_none():
    assert length(limit_time(Still(), 30)) == 30
    assert length(limit_time(gym.wrappers.TimeLimit(Still(), 50), 30)) == 50
    wrapped = gym.wrappers.ClipAction(gym.wrappers.TimeLimit(Still(), 50))
    assert length(limit_time(wrapped, 30)) == 50
    assert length(limit_time(make_env("Pendulum-v1"), 30)) == 200
