"""Policy → returns, by whole episodes on environments that are stepped side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from valuedice.envs import EnvRef, env_name, make_env, task_spec
from valuedice.policy import Policy
from valuedice.types import InputError


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths, one an episode."""

    returns: np.ndarray
    lengths: np.ndarray

    @property
    def mean(self) -> float:
        """Of the returns."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Of the returns."""
        return float(self.returns.std())


def rollout(
    act: Callable[[np.ndarray, np.ndarray], np.ndarray], envs: list[gym.Env[Any, Any]], seeds: np.ndarray
) -> Evaluation:
    """One episode of each environment. `act` sees the observations of those still running, and which these are."""
    obs = np.stack([env.reset(seed=int(seed))[0] for env, seed in zip(envs, seeds, strict=True)])
    returns, lengths = np.zeros(len(envs)), np.zeros(len(envs), int)
    running = np.arange(len(envs))
    while running.size:
        done = np.zeros(running.size, bool)
        for place, (index, action) in enumerate(zip(running, act(obs[running], running), strict=True)):
            obs[index], reward, terminated, truncated, _ = envs[index].step(action)
            returns[index] += float(reward)
            lengths[index] += 1
            done[place] = terminated or truncated
        running = running[~done]
    return Evaluation(returns, lengths)


class Evaluator:
    """Environments kept open for the evaluations of one run."""

    def __init__(self, env: EnvRef, episodes: int) -> None:
        if episodes < 1:
            raise InputError(f"{episodes} evaluation episodes; ask for at least 1")
        self.name = env_name(env)
        self.envs: list[gym.Env[Any, Any]] = [make_env(env) for _ in range(episodes)]
        self.spec = task_spec(self.envs[0], self.name)
        if self.envs[0].spec is not None and self.envs[0].spec.max_episode_steps is None:
            # Nothing else would end the episode of a policy that never fails.
            self.envs = [gym.wrappers.TimeLimit(env, 1000) for env in self.envs]

    def policy(self, policy: Policy, seed: int | list[int], deterministic: bool = True) -> Evaluation:
        """Returns of a policy; `seed` decides the resets (and the samples, if it is not deterministic)."""
        check_same_task(policy, self.spec, self.name)
        seeds = np.random.SeedSequence(seed)
        rng = np.random.default_rng(seeds.spawn(1)[0])
        return rollout(
            lambda obs, _: policy(obs, deterministic, rng), self.envs, seeds.generate_state(len(self.envs))
        )

    def random(self, seed: int = 0) -> Evaluation:
        """Returns of uniformly random actions: the zero of a normalised return."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self.envs))
        for env, env_seed in zip(self.envs, seeds, strict=True):
            env.action_space.seed(int(env_seed))
        return rollout(
            lambda _, running: np.stack([self.envs[i].action_space.sample() for i in running]),
            self.envs,
            seeds,
        )

    def close(self) -> None:
        """Frees the environments."""
        for env in self.envs:
            env.close()


def check_same_task(policy: Policy, spec: Any, name: str) -> None:
    """A policy fits an environment with the same observations and actions."""
    for what, ours, theirs in (
        ("observations", policy.spec.obs_size, spec.obs_size),
        ("discrete actions", policy.spec.discrete, spec.discrete),
        ("actions", policy.spec.action_size, spec.action_size),
    ):
        if ours != theirs:
            raise InputError(
                f"the policy has {ours} {what}, {name} has {theirs}; evaluate it on the task it was made for"
            )


def evaluate(
    policy: Policy, env: EnvRef, episodes: int = 10, seed: int = 0, deterministic: bool = True
) -> Evaluation:
    """Whole episodes of `policy` in `env`, by default with its mean action."""
    evaluator = Evaluator(env, episodes)
    try:
        return evaluator.policy(policy, seed, deterministic)
    finally:
        evaluator.close()
