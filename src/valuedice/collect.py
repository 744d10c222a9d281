"""Demonstrations from anything that acts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from valuedice.demos import Demos, Episode
from valuedice.envs import EnvRef, env_name, make_env, task_spec
from valuedice.evaluate import check_same_task
from valuedice.policy import Policy, load_policy
from valuedice.types import InputError

Actor = Callable[[np.ndarray], Any]
"""One observation → one action, in the units of the environment."""


def collect_demos(
    policy: Actor | str, env: EnvRef, episodes: int, seed: int = 0, *, stochastic: bool = False
) -> Demos:
    """Whole episodes of `policy`: a function of an observation, a policy file or run folder,
    "package.module:function", or "random"."""
    if episodes < 1:
        raise InputError(f"{episodes} episodes; ask for at least 1")
    name = env_name(env)
    environment = make_env(env)
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

        seeds = np.random.SeedSequence(seed).generate_state(episodes)
        recorded = [record(act, environment, int(reset)) for reset in seeds]
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


def record(act: Actor, env: Any, seed: int) -> Episode:
    """One episode, from reset to its end."""
    obs, _ = env.reset(seed=seed)
    rows: list[tuple[Any, ...]] = []
    terminated = truncated = False
    while not (terminated or truncated):
        action = act(obs)
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
