"""The one episode loop, and the returns of a policy over whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from valuedice.demos.episodes import Episode
from valuedice.envs.fit import check_fit
from valuedice.envs.make import EnvRef, env_name, limit_time, make_env, task_spec
from valuedice.errors import InputError
from valuedice.policy import Policy
from valuedice.types import Spec

Act = Callable[[list[np.ndarray], list[int]], Iterable[Any]]
"""Observations of the environments that still run, and their numbers → one action for each."""
Actor = Callable[[np.ndarray], Any]
"""One observation → one action, or rows of them, in the units of the environment."""


NOISE, TOLERATED_LOSS = 0.1, 0.1
"""How an expert's robustness is measured: with this noise on its actions (`with_noise`), a robust one loses at most
this share of its return."""


def is_robust(mean: float, noisy: float) -> bool:
    """Whether an expert with these returns, without and with noise, is robust."""
    return mean - noisy <= TOLERATED_LOSS * abs(mean)


class Step(NamedTuple):
    """One transition in one of the environments."""

    env: int
    """The number of the environment."""
    obs: np.ndarray
    action: Any
    next_obs: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


def play(act: Act, envs: Sequence[gym.Env[Any, Any]], seeds: Iterable[int]) -> Iterator[Step]:
    """Steps one episode of each environment, side by side, and yields each transition as it happens."""
    # Copies, because an environment may write its next observation into the same array.
    current = [np.array(env.reset(seed=int(seed))[0]) for env, seed in zip(envs, seeds, strict=True)]
    running = list(range(len(envs)))
    while running:
        still: list[int] = []
        for index, action in zip(running, act([current[index] for index in running], running), strict=True):
            obs, (after, reward, terminated, truncated, _) = current[index], envs[index].step(action)
            current[index] = np.array(after)
            yield Step(index, obs, action, current[index], float(reward), bool(terminated), bool(truncated))
            if not (terminated or truncated):
                still.append(index)
        running = still


def recorded(steps: Sequence[Step]) -> Episode:
    """The steps of one episode as it would be demonstrated."""
    columns = zip(*((step.obs, step.action, step.next_obs, step.reward) for step in steps), strict=True)
    observations, actions, next_observations, rewards = map(np.asarray, columns)
    if np.issubdtype(actions.dtype, np.floating):
        actions = actions.astype(np.float32)
    return Episode(
        observations.astype(np.float32),
        actions,
        next_observations.astype(np.float32),
        rewards.astype(np.float32),
        steps[-1].terminated,
    )


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths, one for each episode."""

    returns: np.ndarray
    lengths: np.ndarray
    episodes: tuple[Episode, ...] = field(default=(), repr=False)
    """What the policy did, as it would be demonstrated."""

    @property
    def mean(self) -> float:
        """Mean return over the episodes."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the return over the episodes."""
        return float(self.returns.std())


def measure(act: Act, envs: Sequence[gym.Env[Any, Any]], seeds: Iterable[int]) -> Evaluation:
    """One episode of each environment."""
    steps: list[list[Step]] = [[] for _ in envs]
    for step in play(act, envs, seeds):
        # A copy, because a function may return the same array each time.
        steps[step.env].append(step._replace(action=np.array(step.action)))
    returns = np.array([sum(step.reward for step in episode) for episode in steps])
    return Evaluation(returns, np.array([len(episode) for episode in steps]), tuple(map(recorded, steps)))


def with_noise(act: Actor, noise: float, spec: Spec, rng: np.random.Generator) -> Actor:
    """The same actor with disturbed actions: Gaussian noise of this standard deviation on actions scaled to
    [-1, 1], or this share of random discrete actions."""

    def disturbed(obs: np.ndarray) -> np.ndarray:
        if not spec.discrete:
            action = spec.encode(act(obs))
            return spec.decode(np.clip(action + noise * rng.standard_normal(action.shape), -1, 1))
        actions = np.array(act(obs))
        for place in np.ndindex(actions.shape):
            if rng.random() < noise:
                actions[place] = spec.first_action + rng.integers(spec.action_size)
        return actions

    return disturbed


class Evaluator:
    """Environments that stay open for many evaluations; a context manager, or call `close`."""

    def __init__(self, env: EnvRef, episodes: int) -> None:
        check_least(episodes=(episodes, 1))
        self.name = env_name(env)
        # If one of them cannot be made, those before it are closed.
        with ExitStack() as opened:
            self.envs = [limit_time(opened.enter_context(closing(make_env(env)))) for _ in range(episodes)]
            self.spec = task_spec(self.envs[0], self.name)
            self._opened = opened.pop_all()

    def policy(
        self, policy: Policy, seed: int | list[int], deterministic: bool = True, noise: float = 0.0
    ) -> Evaluation:
        """Evaluates a policy, with `noise` on its actions; `seed` determines the resets, the samples if it is not
        deterministic, and the noise."""
        check_fit(policy, self.spec, self.name)
        seeds = np.random.SeedSequence(seed)
        rng = np.random.default_rng(seeds.spawn(1)[0])

        def act(observations: np.ndarray) -> np.ndarray:
            return policy(observations, deterministic, rng)

        acts = with_noise(act, noise, self.spec, rng) if noise else act
        return measure(lambda obs, _: acts(np.asarray(obs)), self.envs, seeds.generate_state(len(self.envs)))

    def random(self, seed: int = 0, episodes: int = 10) -> Evaluation:
        """Evaluates uniformly random actions, whose normalised return is 0. The number of environments does not
        change the result."""

        # Copies, because environments may share one action space, and with it one generator.
        spaces = [deepcopy(env.action_space) for env in self.envs]

        def act(_: list[np.ndarray], running: list[int]) -> list[Any]:
            return [spaces[index].sample() for index in running]

        seeds = np.random.SeedSequence(seed).generate_state(episodes)
        results: list[Evaluation] = []
        for start in range(0, episodes, len(self.envs)):
            part = seeds[start : start + len(self.envs)]
            for space, each in zip(spaces, part, strict=False):
                space.seed(int(each))
            results.append(measure(act, self.envs[: len(part)], part))
        return Evaluation(
            np.concatenate([result.returns for result in results]),
            np.concatenate([result.lengths for result in results]),
        )

    def close(self) -> None:
        """Closes the environments."""
        self._opened.close()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_least(**settings: tuple[float, float]) -> None:
    """Refuses a setting below its least value; both are given under the setting's name."""
    for name, (value, least) in settings.items():
        if value < least:
            raise InputError(f"`{name}` is {value}; it must be at least {least}")


def check_noise(noise: float) -> None:
    """Refuses noise that is out of range."""
    if not 0 <= noise < 1:
        raise InputError(f"`noise` is {noise}; it must be at least 0 and below 1")


def evaluate(
    policy: Policy, env: EnvRef, episodes: int = 10, seed: int = 0, deterministic: bool = True, noise: float = 0.0
) -> Evaluation:
    """Returns of `policy` over whole episodes in `env`, by default with its mean action. `noise` disturbs the
    actions: its standard deviation on actions scaled to [-1, 1], or the share of random discrete actions."""
    check_least(seed=(seed, 0))
    check_noise(noise)
    with Evaluator(env, episodes) as evaluator:
        return evaluator.policy(policy, seed, deterministic, noise)
