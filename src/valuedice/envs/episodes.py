"""Policy → returns, by whole episodes on environments that are stepped side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from valuedice.envs import EnvRef, env_name, limit_time, make_env, task_spec
from valuedice.errors import InputError
from valuedice.policy import Policy


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
    obs = np.stack([env.reset(seed=int(seed))[0] for env, seed in zip(envs, seeds, strict=True)], dtype=np.float32)
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
        self.envs: list[gym.Env[Any, Any]] = [limit_time(make_env(env)) for _ in range(episodes)]
        self.spec = task_spec(self.envs[0], self.name)

    def policy(self, policy: Policy, seed: int | list[int], deterministic: bool = True) -> Evaluation:
        """Returns of a policy; `seed` decides the resets (and the samples, if it is not deterministic)."""
        check_same_task(policy, self.spec, self.name)
        seeds = np.random.SeedSequence(seed)
        rng = np.random.default_rng(seeds.spawn(1)[0])
        return rollout(
            lambda obs, _: policy(obs, deterministic, rng), self.envs, seeds.generate_state(len(self.envs))
        )

    def random(self, seed: int = 0, episodes: int = 10) -> Evaluation:
        """Returns of uniformly random actions: the zero of a normalised return, whatever an evaluation's size."""
        seeds = np.random.SeedSequence(seed).generate_state(episodes)
        results = []
        for start in range(0, episodes, len(self.envs)):
            part = seeds[start : start + len(self.envs)]
            for env, env_seed in zip(self.envs, part, strict=False):
                env.action_space.seed(int(env_seed))
            results.append(rollout(self._sample, self.envs[: len(part)], part))
        return Evaluation(
            np.concatenate([result.returns for result in results]),
            np.concatenate([result.lengths for result in results]),
        )

    def _sample(self, _: np.ndarray, running: np.ndarray) -> np.ndarray:
        return np.stack([self.envs[index].action_space.sample() for index in running])

    def close(self) -> None:
        """Frees the environments."""
        for env in self.envs:
            env.close()


def check_same_task(policy: Policy, spec: Any, name: str) -> None:
    """A policy fits an environment with the same observations and actions."""
    kinds = {True: "discrete", False: "continuous"}
    for what, ours, theirs in (
        ("features of an observation", policy.spec.obs_size, spec.obs_size),
        ("kind of actions", kinds[policy.spec.discrete], kinds[spec.discrete]),
        ("size of actions", policy.spec.action_size, spec.action_size),
    ):
        if ours != theirs:
            raise InputError(
                f"{what}: {ours} in the policy, {theirs} in {name}; evaluate it on the task it was made for"
            )


def evaluate(
    policy: Policy, env: EnvRef, episodes: int = 10, seed: int = 0, deterministic: bool = True
) -> Evaluation:
    """Whole episodes of `policy` in `env`, by default with its mean action."""
    if seed < 0:
        raise InputError(f"the seed {seed} is negative; give 0 or more")
    evaluator = Evaluator(env, episodes)
    try:
        return evaluator.policy(policy, seed, deterministic)
    finally:
        evaluator.close()
