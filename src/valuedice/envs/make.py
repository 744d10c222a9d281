"""Makes environments, and reads the shape of a task from them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium as gym
import numpy as np

from valuedice.errors import InputError
from valuedice.types import Spec

EnvRef = str | Callable[[], gym.Env[Any, Any]]
"""A registered id (also "module:Id-v0", which imports the module first), or a function that makes one."""


def env_name(env: EnvRef) -> str:
    """The name of an environment in messages and run folders."""
    return env if isinstance(env, str) else getattr(env, "__qualname__", type(env).__qualname__)


def check_env_ref(env: object) -> None:
    """Refuses an environment object: evaluation needs several environments, and training one of its own."""
    if not isinstance(env, str) and not callable(env):
        what = "an environment is given as an object" if isinstance(env, gym.Env) else f"{env!r} is no environment"
        raise InputError(f"{what}; give its id, or a function that makes one")


def file_name(task: str) -> str:
    """The id of a task in the name of a file or folder."""
    return task.replace(":", "-").replace("/", "-")


def make_env(env: EnvRef, *, render: bool = False) -> gym.Env[Any, Any]:
    """One environment; with `render`, one that draws pictures as arrays; a first picture is drawn to check."""
    check_env_ref(env)
    if render:
        choose_renderer()
    made = make_registered(env, render) if isinstance(env, str) else env()
    if render:
        try:
            draw_first(made, env_name(env))
        except BaseException:
            # A renderer that failed to start may also fail to close.
            with suppress(Exception):
                made.close()
            raise
    return made


def make_registered(env: str, render: bool) -> gym.Env[Any, Any]:
    """The environment with this id."""
    options: dict[str, Any] = {"render_mode": "rgb_array"} if render else {}
    # While drawing, the other errors come from graphics drivers, which fail on import too.
    unknown = (gym.error.Error,) if render else (gym.error.Error, ImportError, TypeError, ValueError)
    try:
        # The checker warns about things that a user of somebody else's environment cannot change.
        with quiet_compiler():
            return gym.make(env, disable_env_checker=True, **options)
    except gym.error.DependencyNotInstalled as error:
        raise InputError(f"environment {env!r} needs a package: {first_line(error)}") from None
    except unknown as error:
        raise InputError(
            f"no environment {env!r} ({first_line(error).rstrip('.')}); give a Gymnasium id such as Hopper-v5, "
            "or module:Id-v0 for one that a module of yours registers"
        ) from None
    except Exception as error:
        if render:
            raise undrawable(env, error) from error
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"environment {env!r} cannot be made ({reason}); fix it, or use another one") from error


def draw_first(env: gym.Env[Any, Any], name: str) -> None:
    """Chooses the camera and draws one picture, so that a missing driver shows before an episode starts."""
    try:
        follow_body(env)
        env.reset(seed=0)
        picture: object = env.render()
    except gym.error.DependencyNotInstalled as error:
        raise InputError(f"{name} needs a package to be drawn: {first_line(error)}") from None
    except Exception as error:  # drivers fail in many ways, from missing libraries to missing attributes
        raise undrawable(name, error) from error
    if not isinstance(picture, np.ndarray):
        raise InputError(f"{name} draws no pictures as arrays; make it with render_mode='rgb_array'")


def undrawable(name: str, error: Exception) -> InputError:
    """The error for an environment that cannot be drawn on this machine."""
    return InputError(
        f"{name} cannot be drawn here ({type(error).__name__}: {first_line(error)}); without a screen, MuJoCo "
        "needs EGL (Debian: libegl1, libgl1) or OSMesa (libosmesa6, with MUJOCO_GL=osmesa)"
    )


def choose_renderer() -> None:
    """Lets MuJoCo draw with EGL if there is no screen, unless MUJOCO_GL is set; MuJoCo reads it when imported."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def is_mujoco(env: gym.Env[Any, Any]) -> bool:
    """Whether MuJoCo simulates an environment."""
    module: Any = sys.modules.get("gymnasium.envs.mujoco.mujoco_env")
    return module is not None and isinstance(getattr(env, "unwrapped", env), module.MujocoEnv)


def follow_body(env: gym.Env[Any, Any]) -> None:
    """Uses the camera that follows the body, if the MuJoCo model has one; Gymnasium's default camera stands still
    in some tasks, and a body that runs leaves the picture."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is not None:
        with suppress(KeyError):
            renderer.camera_id = renderer.model.camera("track").id


@contextmanager
def quiet_compiler() -> Generator[None, None, None]:
    """Silences MuJoCo while it compiles a model: it prints a deprecation for Gymnasium's own model files each time.
    Its warnings about an unstable simulation are kept."""
    # The module makes these functions at run time, so type checkers do not know them.
    mujoco: Any = importlib.import_module("mujoco")
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def limit_time(env: gym.Env[Any, Any], steps: int = 1000) -> gym.Env[Any, Any]:
    """Adds a time limit if there is none: nothing else ends the episode of a policy that never fails."""
    limited = env.spec is not None and env.spec.max_episode_steps is not None
    layer = env
    while isinstance(layer, gym.Wrapper) and not limited:
        limited = isinstance(layer, gym.wrappers.TimeLimit)
        layer = layer.env
    return env if limited else gym.wrappers.TimeLimit(env, steps)


def task_spec(env: gym.Env[Any, Any], name: str) -> Spec:
    """The shape of a task with flat observations and bounded or discrete actions; others are refused."""
    observations, actions = env.observation_space, env.action_space
    if not isinstance(observations, gym.spaces.Box) or len(observations.shape) != 1:
        kind = f"{type(observations).__name__}{observations.shape or ''}"
        raise InputError(
            f"{name} has {kind} observations; only flat Box observations are supported: wrap it in "
            "gymnasium.wrappers.FlattenObservation, or encode images into a vector first"
        )
    obs_size = observations.shape[0]
    if isinstance(actions, gym.spaces.Discrete):
        return Spec(obs_size, int(actions.n), discrete=True, first_action=int(actions.start))
    if not isinstance(actions, gym.spaces.Box) or len(actions.shape) != 1:
        kind = f"{type(actions).__name__}{actions.shape or ''}"
        raise InputError(
            f"{name} has {kind} actions; only a flat Box or Discrete is supported: wrap it in an ActionWrapper "
            "that offers one of these"
        )
    if not np.issubdtype(actions.dtype, np.floating):
        raise InputError(
            f"{name} has a Box of {actions.dtype} actions; only floats or Discrete are supported: wrap it in an "
            "ActionWrapper"
        )
    with np.errstate(over="ignore"):
        span = actions.high.astype(np.float32) - actions.low.astype(np.float32)
    if not np.isfinite(span).all():
        raise InputError(f"{name} has unbounded actions; give them finite bounds with an ActionWrapper")
    low, high = (tuple(np.asarray(bound, float).tolist()) for bound in (actions.low, actions.high))
    return Spec(obs_size, actions.shape[0], low=low, high=high)
