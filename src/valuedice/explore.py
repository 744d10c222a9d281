"""Environment steps with exploration → replay buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from valuedice.policy import Policy
from valuedice.replay import Replay
from valuedice.types import Normalizer, Spec


def explore(
    env: Any,
    replay: Replay,
    spec: Spec,
    normalizer: Normalizer,
    policy: Callable[[], Policy],
    *,
    steps: int,
    random_steps: int,
    noise: float,
    seed: int,
) -> Iterator[int]:
    """Adds one transition after another, of random actions first and then of the policy of the moment; yields how
    many there have been."""
    rng = np.random.default_rng([seed, 3])
    obs, _ = env.reset(seed=seed)
    for step in range(1, steps + 1):
        action = random_action(spec, rng) if step <= random_steps else noisy_action(policy(), obs, noise, rng)
        next_obs, _, terminated, truncated, _ = env.step(action)
        # A time limit ends the recording, not the task: only `terminated` leads to the absorbing state.
        ends = {"terminated": bool(terminated), "truncated": bool(truncated)}
        replay.add(normalizer(obs), spec.encode(action), normalizer(next_obs), **ends)
        obs = env.reset()[0] if terminated or truncated else next_obs
        yield step


def random_action(spec: Spec, rng: np.random.Generator) -> np.ndarray:
    """Uniform over the action space."""
    if spec.discrete:
        return spec.decode(np.asarray(rng.integers(spec.action_size)))
    return spec.decode(rng.uniform(-1, 1, spec.action_size))


def noisy_action(policy: Policy, obs: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """The mean action and Gaussian noise; a discrete policy explores by sampling."""
    if policy.spec.discrete:
        return policy(obs, deterministic=False, rng=rng)
    mean = policy.mean(policy.forward(obs))
    return policy.spec.decode(np.clip(mean + noise * rng.standard_normal(mean.shape), -1, 1))
