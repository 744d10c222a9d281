"""Demonstrations from anything that acts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from valuedice.demos import Demos, Episode
from valuedice.envs import EnvRef, env_name, limit_time, make_env, task_spec
from valuedice.errors import InputError
from valuedice.evaluate import check_same_task
from valuedice.policy import Policy, load_policy
from valuedice.types import Spec

Actor = Callable[[np.ndarray], Any]
"""One observation → one action, in the units of the environment."""


def collect_demos(
    policy: Actor | str,
    env: EnvRef,
    episodes: int,
    seed: int = 0,
    *,
    stochastic: bool = False,
    noise: float = 0.0,
) -> Demos:
    """Whole episodes of `policy`: a function of an observation, a policy file or run folder,
    "package.module:function", or "random".

    `noise` disturbs it: Gaussian of this standard deviation on actions scaled to [-1, 1], or this share of random
    discrete actions. An expert that holds its state at one point shows nothing but that point; one that is
    disturbed shows how it returns.
    """
    if episodes < 1:
        raise InputError(f"{episodes} episodes; ask for at least 1")
    if seed < 0:
        raise InputError(f"the seed {seed} is negative; give 0 or more")
    if not 0 <= noise < 1:
        raise InputError(f"noise is {noise}; it must be at least 0 and below 1")
    name = env_name(env)
    environment = limit_time(make_env(env))
    try:
        spec = task_spec(environment, name)
        environment.action_space.seed(seed)
        rng = np.random.default_rng([seed, 4])
        act = resolve(policy, environment)
        if isinstance(act, Policy):
            check_same_task(act, spec, name)
            loaded = act

            def act(obs: np.ndarray) -> np.ndarray:
                return loaded(obs, deterministic=not stochastic, rng=rng)

        disturbed = with_noise(act, noise, spec, rng) if noise else act
        seeds = np.random.SeedSequence(seed).generate_state(episodes)
        recorded = [record(disturbed, environment, int(reset)) for reset in seeds]
    finally:
        environment.close()
    return Demos.from_episodes(recorded, source=f"{name} by {policy if isinstance(policy, str) else 'a function'}")


def resolve(policy: Actor | str, env: Any) -> Any:
    """The thing that acts behind a reference."""
    if not isinstance(policy, str):
        return policy
    if policy == "random":
        return lambda _: env.action_space.sample()
    module, colon, function = policy.partition(":")
    if not colon:
        return load_policy(policy)
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"no function {policy!r} ({error}); give package.module:function, importable here"
        ) from None


def with_noise(act: Actor, noise: float, spec: Spec, rng: np.random.Generator) -> Actor:
    """The same actor, disturbed."""

    def disturbed(obs: np.ndarray) -> np.ndarray:
        if not spec.discrete:
            action = spec.encode(act(obs))
            return spec.decode(np.clip(action + noise * rng.standard_normal(action.shape), -1, 1))
        return spec.decode(np.asarray(rng.integers(spec.action_size))) if rng.random() < noise else act(obs)

    return disturbed


def checked(act: Actor, obs: np.ndarray, env: Any) -> Any:
    """The action, which somebody else's function chose."""
    try:
        action = act(obs)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the policy failed on an observation: {type(error).__name__}: {error}") from error
    shape = env.action_space.shape
    if np.shape(action) != shape:
        raise InputError(f"the policy gave an action of shape {np.shape(action)}; the environment takes {shape}")
    return action


def record(act: Actor, env: Any, seed: int) -> Episode:
    """One episode, from reset to its end."""
    obs, _ = env.reset(seed=seed)
    rows: list[tuple[Any, ...]] = []
    terminated = truncated = False
    while not (terminated or truncated):
        action = checked(act, obs, env)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, next_obs, reward))
        obs = next_obs
    columns = [np.asarray(column) for column in zip(*rows, strict=True)]
    observations, actions, next_observations, rewards = columns
    if np.issubdtype(actions.dtype, np.floating):
        actions = actions.astype(np.float32)
    return Episode(
        observations.astype(np.float32),
        actions,
        next_observations.astype(np.float32),
        rewards.astype(np.float32),
        bool(terminated),
    )
