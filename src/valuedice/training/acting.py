"""Who acts in the environment between updates: nobody (offline), one explorer, or several side by side (on policy).

All three have the same methods, so the loop treats them alike.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from valuedice.envs.make import is_mujoco
from valuedice.policy import Policy
from valuedice.replay import Replay, Rollouts
from valuedice.training.checkpoint import Arrays, Facts, Part
from valuedice.training.stage import Stage, Step
from valuedice.types import Normalizer, Pace, Spec

Env = gym.Env[Any, Any]
TRIAL, SLOW_STEP = 16, 5e-5
"""Rounds that show how long a step takes, and the seconds from which on threads pay: each step hands Python's lock
over, which takes some microseconds if threads meet, and tens of them if one has to be woken."""


class Actor(Part, Protocol):
    """What the loop needs to know about acting."""

    def step(self, policy: Policy) -> None:
        """Acts once in each environment."""
        ...


class Nobody:
    """Offline: no steps, nothing to save."""

    def step(self, policy: Policy) -> None:
        """Does nothing."""

    def save(self) -> tuple[Arrays, Facts]:
        """Nothing."""
        return {}, {}

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Nothing."""


class Explorer:
    """Fills the replay buffer: with random actions first, then with the policy's actions and noise."""

    def __init__(
        self, env: Env, replay: Replay, spec: Spec, normalizer: Normalizer, pace: Pace, *, seed: int
    ) -> None:
        self.stage, self.replay, self.spec, self.normalizer = Stage(env, seed), replay, spec, normalizer
        self.pace, self.seed = pace, seed
        self.rng = np.random.default_rng([seed, 3])
        self.steps = 0

    def step(self, policy: Policy) -> None:
        """One step, into the replay buffer."""
        obs = self.stage.begin()
        self.steps += 1
        random = self.steps <= self.pace.random_steps
        action = random_action(self.spec, self.rng) if random else explore(policy, obs, self.pace.noise, self.rng)
        next_obs, reward, terminated, truncated = self.stage.step(action)
        # A time limit ends the recording, not the task: only `terminated` leads to the absorbing state.
        row = (self.normalizer(obs), self.spec.encode(action), self.normalizer(next_obs), reward)
        self.replay.add(*row, terminated=terminated, truncated=truncated)

    def save(self) -> tuple[Arrays, Facts]:
        """The open episode and the random generator."""
        arrays, start = self.stage.save()
        return arrays, {"steps": self.steps, "rng": self.rng.bit_generator.state, "start": start}

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Continues the open episode; if the environment cannot repeat it, a new one begins."""
        self.steps = facts["steps"]
        self.rng.bit_generator.state = facts["rng"]
        if not self.stage.restore(arrays, facts["start"], [self.seed, self.steps]):
            self.replay.cut()


class Collector:
    """Fills rollouts: steps several environments side by side, with one call of the policy for all of them.

    An environment whose episode has ended begins the next one before its next step, so no row leads from one
    episode into another. With several `threads`, MuJoCo's environments share them if their steps are slow enough to
    gain from it. The rows do not depend on that.
    """

    def __init__(
        self,
        envs: Sequence[Env],
        rollouts: Rollouts,
        spec: Spec,
        normalizer: Normalizer,
        *,
        seed: int,
        threads: int = 1,
    ) -> None:
        self.rollouts, self.spec, self.normalizer, self.seed = rollouts, spec, normalizer, seed
        self.rng = np.random.default_rng([seed, 3])
        seeds = np.random.SeedSequence([seed, 4]).generate_state(len(envs))
        self.stages = [Stage(env, int(each)) for env, each in zip(envs, seeds, strict=True)]
        # MuJoCo simulates without Python's lock. Others would wait for each other, and may share data.
        used = min(threads, len(envs)) if all(is_mujoco(env) for env in envs) else 1
        self.shares = np.array_split(np.arange(len(envs)), used)
        self.pool = ThreadPoolExecutor(used - 1) if used > 1 else None
        self.trial: list[float] = []
        """Seconds of a step in the first rounds, without threads."""

    def step(self, policy: Policy) -> None:
        """One step of each environment, with actions sampled from the policy."""
        obs = np.stack([stage.begin() for stage in self.stages])
        actions = policy(obs, deterministic=False, rng=self.rng)
        steps = self._steps(actions)
        next_obs = np.stack([step.next_obs for step in steps])
        terminated = np.array([step.terminated for step in steps])
        truncated = np.array([step.truncated for step in steps])
        reward = np.array([step.reward for step in steps])
        row = (self.normalizer(obs), self.spec.encode(actions), self.normalizer(next_obs), reward)
        self.rollouts.add(*row, terminated=terminated, truncated=truncated)

    def _steps(self, actions: np.ndarray) -> list[Step]:
        """What the environments return for these actions."""
        if len(self.trial) < TRIAL:
            begin = time.perf_counter()
            steps = self._share(range(len(self.stages)), actions)
            self.trial.append((time.perf_counter() - begin) / len(steps))
            return steps
        if self.pool is None or min(self.trial) < SLOW_STEP:
            return self._share(range(len(self.stages)), actions)
        others = [self.pool.submit(self._share, share, actions) for share in self.shares[1:]]
        try:
            steps = self._share(self.shares[0], actions)
        finally:
            # No environment is closed while a thread steps it.
            wait(others)
        return steps + [step for each in others for step in each.result()]

    def _share(self, numbers: Sequence[int] | np.ndarray, actions: np.ndarray) -> list[Step]:
        """Steps some of the environments, and resets those whose episode has ended, because that takes long too."""
        steps = [self.stages[number].step(actions[number]) for number in numbers]
        for number in numbers:
            self.stages[number].begin()
        return steps

    def save(self) -> tuple[Arrays, Facts]:
        """The rollout so far, the open episodes and the random generator."""
        arrays, count = self.rollouts.save()
        starts: list[dict[str, Any]] = []
        for index, stage in enumerate(self.stages):
            more, start = stage.save()
            arrays |= {f"{index}/{name}": array for name, array in more.items()}
            starts.append(start)
        return arrays, {"rng": self.rng.bit_generator.state, "count": count, "starts": starts}

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Continues the open episodes; an environment that cannot repeat its own begins a new one."""
        self.rng.bit_generator.state = facts["rng"]
        self.rollouts.restore(arrays, facts["count"])
        for index, (stage, start) in enumerate(zip(self.stages, facts["starts"], strict=True)):
            mine = {name: arrays[f"{index}/{name}"] for name in ("obs", "actions") if f"{index}/{name}" in arrays}
            if not stage.restore(mine, start, [self.seed, facts["count"], index]):
                self.rollouts.cut(index)


def random_action(spec: Spec, rng: np.random.Generator) -> np.ndarray:
    """Uniform over the action space."""
    if spec.discrete:
        return spec.decode(np.asarray(rng.integers(spec.action_size)))
    return spec.decode(rng.uniform(-1, 1, spec.action_size))


def explore(policy: Policy, obs: np.ndarray, noise: float | None, rng: np.random.Generator) -> np.ndarray:
    """The mean action with Gaussian noise; a sample if there is no noise or the policy is discrete."""
    if noise is None or policy.spec.discrete:
        return policy(obs, deterministic=False, rng=rng)
    mean = policy.mean(policy.forward(obs))
    return policy.spec.decode(np.clip(mean + noise * rng.standard_normal(mean.shape), -1, 1))
