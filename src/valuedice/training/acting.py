"""Environment steps with exploration → replay buffer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from valuedice.policy import Policy
from valuedice.replay import Replay
from valuedice.types import Normalizer, Spec


class Step(NamedTuple):
    """What an environment answers to an action."""

    next_obs: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


class Stage:
    """An environment with its open episode.

    It can be saved in the middle of an episode without help from the environment: what is stored is how the episode
    began and the actions since, and they are played again.
    """

    def __init__(self, env: Any, seed: int) -> None:
        self.env = env
        self.obs: np.ndarray | None = None
        """None between episodes."""
        self._actions: list[np.ndarray] = []
        self._start: dict[str, Any] = {"seed": seed}
        """How the episode began: with a seed, or with the generator of the environment in some state."""

    def begin(self) -> np.ndarray:
        """The observation to act on, of a new episode where the last one has ended."""
        if self.obs is None:
            self.obs = self._reset()
        return self.obs

    def step(self, action: np.ndarray) -> Step:
        """One step of the episode that has begun."""
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
        """The episode so far, and how it began or the next one will."""
        if self.obs is not None:
            return {"obs": np.asarray(self.obs), "actions": np.array(self._actions)}, self._start
        return {}, self._start if "seed" in self._start else {"generator": generator_state(self.env)}

    def restore(self, arrays: dict[str, np.ndarray], start: dict[str, Any], otherwise: list[int]) -> bool:
        """Goes on where another one was saved. Where the environment cannot be brought there it says so, is false,
        and begins a new episode with a seed made of `otherwise`."""
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
            "and the run will not be bit-identical to one that was never interrupted",
            stacklevel=2,
        )
        seed = int(np.random.SeedSequence(otherwise).generate_state(1)[0])
        self.obs, self._actions, self._start = None, [], {"seed": seed}
        return False


class Explorer:
    """Adds one transition after another, of random actions first and then of the policy of the moment."""

    stride: ClassVar[int] = 1
    """Environment steps of one `step`."""

    def __init__(
        self,
        env: Any,
        replay: Replay,
        spec: Spec,
        normalizer: Normalizer,
        *,
        random_steps: int,
        noise: float | None,
        seed: int,
    ) -> None:
        self.stage, self.replay, self.spec, self.normalizer = Stage(env, seed), replay, spec, normalizer
        self.random_steps, self.noise, self.seed = random_steps, noise, seed
        self.rng = np.random.default_rng([seed, 3])
        self.steps = 0

    def step(self, policy: Callable[[], Policy]) -> None:
        """One step; the policy is not asked while actions are random."""
        obs = self.stage.begin()
        self.steps += 1
        random = self.steps <= self.random_steps
        action = random_action(self.spec, self.rng) if random else explore(policy(), obs, self.noise, self.rng)
        next_obs, reward, terminated, truncated = self.stage.step(action)
        # A time limit ends the recording, not the task: only `terminated` leads to the absorbing state.
        row = (self.normalizer(obs), self.spec.encode(action), self.normalizer(next_obs), reward)
        self.replay.add(*row, terminated=terminated, truncated=truncated)

    def save(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts, from which `restore` goes on."""
        arrays, start = self.stage.save()
        return arrays, {"steps": self.steps, "rng": self.rng.bit_generator.state, "start": start}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Goes on where another one was saved; says so where the environment cannot be brought there."""
        self.steps = facts["steps"]
        self.rng.bit_generator.state = facts["rng"]
        if not self.stage.restore(arrays, facts["start"], [self.seed, self.steps]):
            self.replay.cut()


def generator_state(env: Any) -> Any:
    """The state of the environment's own random numbers, if it has them."""
    generator = generator_of(env)
    return None if generator is None else generator.bit_generator.state


def generator_of(env: Any) -> np.random.Generator | None:
    """The environment's own random numbers, where it keeps them as Gymnasium does."""
    generator = getattr(getattr(env, "unwrapped", env), "np_random", None)
    return generator if isinstance(generator, np.random.Generator) else None


def set_generator(env: Any, state: dict[str, Any] | None) -> None:
    """Puts them back; what cannot be put back shows when the episode is played again."""
    generator = generator_of(env)
    if (
        generator is not None
        and state is not None
        and state["bit_generator"] == type(generator.bit_generator).__name__
    ):
        generator.bit_generator.state = state


def random_action(spec: Spec, rng: np.random.Generator) -> np.ndarray:
    """Uniform over the action space."""
    if spec.discrete:
        return spec.decode(np.asarray(rng.integers(spec.action_size)))
    return spec.decode(rng.uniform(-1, 1, spec.action_size))


def explore(policy: Policy, obs: np.ndarray, noise: float | None, rng: np.random.Generator) -> np.ndarray:
    """The mean action and Gaussian noise; without noise, and from a discrete policy, a sample."""
    if noise is None or policy.spec.discrete:
        return policy(obs, deterministic=False, rng=rng)
    mean = policy.mean(policy.forward(obs))
    return policy.spec.decode(np.clip(mean + noise * rng.standard_normal(mean.shape), -1, 1))
