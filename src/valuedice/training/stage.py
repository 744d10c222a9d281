"""An environment with its open episode, which can be saved and restored in the middle."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np


class Step(NamedTuple):
    """What an environment returns for an action."""

    next_obs: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


class Stage:
    """An environment with its open episode.

    It is saved without help from the environment: it stores how the episode began and the actions since. To restore
    it, these are played again.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        self.env = env
        self.obs: np.ndarray | None = None
        """None between episodes."""
        self._actions: list[np.ndarray] = []
        self._start: dict[str, Any] = {"seed": seed}
        """How the episode began: with a seed, or with a state of the environment's random generator."""

    def begin(self) -> np.ndarray:
        """The observation to act on. Begins a new episode if the last one has ended."""
        if self.obs is None:
            self.obs = self._reset()
        return self.obs

    def step(self, action: np.ndarray) -> Step:
        """One step of the open episode."""
        next_obs, reward, terminated, truncated, _ = self.env.step(action)
        self._actions.append(action)
        self.obs = next_obs
        if terminated or truncated:
            self.obs, self._actions, self._start = None, [], {}
        return Step(next_obs, float(reward), bool(terminated), bool(truncated))

    def _reset(self) -> np.ndarray:
        """Begins an episode; the environment is seeded once, at the first."""
        if "seed" in self._start:
            return self.env.reset(seed=self._start["seed"])[0]
        self._start = {"generator": generator_state(self.env)}
        return self.env.reset()[0]

    def save(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The episode so far, and how it (or the next one) begins."""
        if self.obs is not None:
            return {"obs": np.asarray(self.obs), "actions": np.array(self._actions)}, self._start
        return {}, self._start if "seed" in self._start else {"generator": generator_state(self.env)}

    def restore(self, arrays: dict[str, np.ndarray], start: dict[str, Any], otherwise: list[int]) -> bool:
        """Plays the saved episode again, and tells whether that worked. If the environment does not repeat the
        episode, warns and begins a new one, with a seed made of `otherwise`."""
        self._start = start
        set_generator(self.env, start.get("generator"))
        if not arrays:
            return True
        obs = self._reset()
        actions, self._actions = list(arrays["actions"]), []
        ended = False
        while actions and not ended:
            self._actions.append(actions.pop(0))
            obs, _, terminated, truncated, _ = self.env.step(self._actions[-1])
            ended = terminated or truncated
        self.obs = obs
        if not ended and np.array_equal(obs, arrays["obs"]):
            return True
        warnings.warn(
            "the environment does not repeat an episode from the same start and actions; a new episode begins, "
            "and the run will not be bit-identical to an uninterrupted one",
            stacklevel=2,
        )
        seed = int(np.random.SeedSequence(otherwise).generate_state(1)[0])
        self.obs, self._actions, self._start = None, [], {"seed": seed}
        return False


def generator_state(env: gym.Env[Any, Any]) -> Any:
    """The state of the environment's own random generator, if it has one."""
    generator = generator_of(env)
    return None if generator is None else generator.bit_generator.state


def generator_of(env: gym.Env[Any, Any]) -> np.random.Generator | None:
    """The environment's own random generator, if it is where Gymnasium keeps it."""
    generator = getattr(getattr(env, "unwrapped", env), "np_random", None)
    return generator if isinstance(generator, np.random.Generator) else None


def set_generator(env: gym.Env[Any, Any], state: dict[str, Any] | None) -> None:
    """Restores the generator. If that fails, the replay of the episode shows it."""
    generator = generator_of(env)
    if (
        generator is not None
        and state is not None
        and state["bit_generator"] == type(generator.bit_generator).__name__
    ):
        generator.bit_generator.state = state
