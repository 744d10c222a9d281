"""Making environments, and reading the shape of a task off them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from valuedice.errors import InputError
from valuedice.types import Spec

EnvRef = str | Callable[[], gym.Env]
"""A registered id (also "module:Id-v0", which imports the module first), or a function that makes one."""


def env_name(env: EnvRef) -> str:
    """What a run calls its environment."""
    return env if isinstance(env, str) else getattr(env, "__qualname__", type(env).__qualname__)


def make_env(env: EnvRef) -> gym.Env[Any, Any]:
    """One environment."""
    if not isinstance(env, str):
        return env()
    try:
        # The checker warns about what a user of somebody else's environment cannot change.
        with quiet_compiler():
            return gym.make(env, disable_env_checker=True)
    except gym.error.DependencyNotInstalled as error:
        raise InputError(f"environment {env!r} needs a package: {first_line(error)}") from None
    except (gym.error.Error, ImportError, TypeError, ValueError) as error:
        raise InputError(
            f"no environment {env!r} ({first_line(error).rstrip('.')}); give a Gymnasium id such as Hopper-v5, "
            "or module:Id-v0 for one that a module of yours registers"
        ) from None


def limit_time(env: gym.Env[Any, Any], steps: int = 1000) -> gym.Env[Any, Any]:
    """With a time limit where there is none: nothing else would end the episode of a policy that never fails."""
    limited = env.spec is not None and env.spec.max_episode_steps is not None
    layer = env
    while isinstance(layer, gym.Wrapper) and not limited:
        limited = isinstance(layer, gym.wrappers.TimeLimit)
        layer = layer.env
    return env if limited else gym.wrappers.TimeLimit(env, steps)


@contextmanager
def quiet_compiler() -> Iterator[None]:
    """MuJoCo prints a deprecation of Gymnasium's own model files each time that it compiles one; its warnings about
    a simulation that goes wrong are kept."""
    # Made at run time, unknown to type checkers.
    mujoco: Any = importlib.import_module("mujoco")
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def first_line(error: BaseException) -> str:
    """Of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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
        raise InputError(f"{name} has a Box of {actions.dtype} actions; only floats or Discrete are supported")
    with np.errstate(over="ignore"):
        span = actions.high.astype(np.float32) - actions.low.astype(np.float32)
    if not np.isfinite(span).all():
        raise InputError(f"{name} has unbounded actions; give them finite bounds with an ActionWrapper")
    low, high = (tuple(np.asarray(bound, float).tolist()) for bound in (actions.low, actions.high))
    return Spec(obs_size, actions.shape[0], low=low, high=high)
