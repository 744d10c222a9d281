"""Records demonstrations of anything that acts: a function, a policy, a script, chance."""

from __future__ import annotations

import importlib
from contextlib import closing
from itertools import islice
from math import inf
from typing import Any

import gymnasium as gym
import numpy as np

from valuedice.demos.episodes import Demos, Episode
from valuedice.envs.episodes import Actor, check_least, check_noise, measure, with_noise
from valuedice.envs.fit import check_fit
from valuedice.envs.make import EnvRef, env_name, limit_time, make_env, task_spec
from valuedice.errors import InputError
from valuedice.policy import Policy, load_policy

TRIES = 5
"""Episodes that are recorded at most for each good one that is asked for."""


def collect_demos(
    policy: Actor | str,
    env: EnvRef,
    episodes: int,
    seed: int = 0,
    *,
    stochastic: bool = False,
    noise: float = 0.0,
    least_return: float = -inf,
) -> Demos:
    """Records whole episodes of `policy`: a function of an observation, a policy file or run folder,
    "package.module:function", or "random".

    `noise` disturbs the actions (`with_noise`). An expert that stays at one point shows only that point; a
    disturbed one also shows how to return to it. The noise is recorded too, as if the expert had wanted it.
    Episodes with a return below `least_return` are left out, and further ones are recorded in their place.
    """
    check_least(episodes=(episodes, 1), seed=(seed, 0))
    check_noise(noise)
    name = env_name(env)
    with closing(make_env(env)) as made:
        environment = limit_time(made)
        spec = task_spec(environment, name)
        environment.action_space.seed(seed)
        rng = np.random.default_rng([seed, 4])
        act = resolve(policy, environment)
        if isinstance(act, Policy):
            check_fit(act, spec, name)
            act = as_actor(act, stochastic, rng)
        if noise:
            act = with_noise(act, noise, spec, rng)
        seeds = np.random.SeedSequence(seed).generate_state(episodes * (1 if least_return == -inf else TRIES))
        tried = (record(act, environment, int(reset)) for reset in seeds)
        good = (each for each in tried if (each.total_reward or 0.0) >= least_return)
        recorded = list(islice(good, episodes))
    if len(recorded) < episodes:
        raise InputError(
            f"only {len(recorded)} of {len(seeds)} episodes have a return of at least {least_return:g}; lower "
            "`least_return`, or use a better policy"
        )
    return Demos.from_episodes(recorded, source=f"{name} by {policy if isinstance(policy, str) else 'a function'}")


def resolve(policy: Actor | str, env: gym.Env[Any, Any]) -> Actor | Policy:
    """What acts: the function or the policy that a reference names."""
    if not isinstance(policy, str):
        return policy
    if policy == "random":
        return lambda _: env.action_space.sample()
    module, colon, function = policy.partition(":")
    if not colon:
        return load_policy(policy)
    try:
        return getattr(importlib.import_module(module), function)
    except Exception as error:  # a module of the user's own may fail in any way
        raise InputError(
            f"no function {policy!r} ({type(error).__name__}: {error}); give package.module:function that can be "
            "imported here"
        ) from error


def as_actor(policy: Policy, stochastic: bool, rng: np.random.Generator) -> Actor:
    """A policy as a function of one observation."""
    return lambda obs: policy(obs, deterministic=not stochastic, rng=rng)


def checked(act: Actor, obs: np.ndarray, shape: tuple[int, ...] | None) -> Any:
    """The action of a function that somebody else wrote."""
    try:
        action = act(obs)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the policy failed on an observation: {type(error).__name__}: {error}") from error
    if np.shape(action) != shape:
        raise InputError(f"the policy gave an action of shape {np.shape(action)}; the environment takes {shape}")
    return action


def record(act: Actor, env: gym.Env[Any, Any], seed: int) -> Episode:
    """One episode, from reset to its end."""
    shape = env.action_space.shape
    return measure(lambda obs, _: [checked(act, obs[0], shape)], [env], [seed]).episodes[0]
