"""Where a policy trains and where it is evaluated, and whether what the user gave fits together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import gymnasium as gym

from valuedice.algorithms import ALGORITHMS, Algorithm
from valuedice.demos import Demos
from valuedice.demos.rows import check_fit, demos_spec
from valuedice.envs import EnvRef, env_name, make_env, task_spec
from valuedice.errors import InputError
from valuedice.evaluate import Evaluator
from valuedice.policy import Policy
from valuedice.types import Metrics, Spec

DEFAULT_STEPS = 10_000
DEFAULT_UPDATES = 40_000


@dataclass(frozen=True)
class Task:
    """Where a policy trains and where it is evaluated, either of which may be nowhere."""

    name: str
    spec: Spec
    envs: list[gym.Env[Any, Any]]
    evaluator: Evaluator | None
    expert_return: float | None

    @classmethod
    def open(
        cls,
        demos: Demos | None,
        replay_data: Demos | None,
        env: EnvRef | None,
        eval_env: EnvRef | None,
        eval_episodes: int,
        environments: int = 1,
    ) -> Task:
        """Makes the environments, so many for training, and checks that they and all data are of one task."""
        data = [part for part in (demos, replay_data) if part is not None]
        training = [] if env is None else [make_env(env) for _ in range(environments)]
        evaluator = None if eval_env is None else Evaluator(eval_env, eval_episodes)
        if env is not None:
            name, spec = env_name(env), task_spec(training[0], env_name(env))
        elif evaluator is not None:
            name, spec = evaluator.name, evaluator.spec
        else:
            name, spec = data[0].source, demos_spec(data)
        task = cls(name, spec, training, evaluator, None if demos is None else demos.expert_return)
        try:
            for part in data:
                check_fit(part, spec, name)
            if evaluator is not None and evaluator.spec != spec:
                raise InputError(
                    f"{evaluator.name} has other observations or actions than {name}; evaluate in the same task"
                )
        except InputError:
            task.close()
            raise
        return task

    @cached_property
    def random_return(self) -> float | None:
        """Of uniformly random actions; None where there is nothing to compare it with."""
        if self.evaluator is None or self.expert_return is None:
            return None
        return self.evaluator.random().mean

    def no_returns(self) -> Metrics:
        """The columns about returns, where none were measured."""
        unknown: Metrics = {"return_mean": None, "return_std": None}
        return unknown | {"expert_return": self.expert_return, "normalized_return": None}

    def returns(self, policy: Policy, seed: list[int]) -> Metrics:
        """The columns about returns; empty without an environment, the normalised one also without rewards."""
        row = self.no_returns()
        if self.evaluator is not None:
            result = self.evaluator.policy(policy, seed)
            row |= {"return_mean": result.mean, "return_std": result.std}
            # Where random actions do as well as the expert there is no scale.
            if self.random_return is not None and self.expert_return not in (None, self.random_return):
                span = self.expert_return - self.random_return
                row["normalized_return"] = (result.mean - self.random_return) / span
        return row

    def close(self) -> None:
        """Frees the environments."""
        for environment in self.envs:
            environment.close()
        if self.evaluator is not None:
            self.evaluator.close()


def check_types(algorithm: Any, demos: Any, replay_data: Any, *places: EnvRef | None) -> None:
    """Slips that a script makes, which would otherwise show as an error deep inside."""
    if not isinstance(algorithm, tuple(ALGORITHMS.values())):
        raise InputError(f"{algorithm!r} is no algorithm; give an object such as ValueDICE()")
    for data in (demos, replay_data):
        if not isinstance(data, Demos | None) or demos is None:
            raise InputError(f"demonstrations are {data!r}; load them first, with load_demos")
    check_places(*places)


def check_mode(name: str, algorithm: Algorithm, env: EnvRef | None, steps: int | None, replay_data: Any) -> None:
    """What an algorithm cannot do."""
    if algorithm.pace is None and steps is not None:
        raise InputError(f"{name} takes no steps in an environment; give --updates instead")
    if env is None and not algorithm.learns_offline:
        raise InputError(
            f"{name} needs an environment to act in; name one (--env ID), or use value-dice or bc offline"
        )
    if replay_data is not None and not algorithm.uses_replay:
        raise InputError(
            f"{name} makes no use of replay data with these settings; leave it out, or use value-dice with a "
            "--replay-regularization above 0"
        )


def check_places(*places: EnvRef | None) -> None:
    """Environments are named or made, never given."""
    for place in places:
        if isinstance(place, gym.Env):
            raise InputError(
                "an environment is given as an object; give its id, or a function that makes one, since evaluation "
                "needs several"
            )


def check_budget(
    env: EnvRef | None,
    steps: int | None,
    updates: int | None,
    eval_every: int,
    seed: int,
    capacity: int,
    interval: float,
) -> int:
    """How many steps (or offline: updates) to make."""
    if env is not None and updates is not None:
        raise InputError("updates are counted offline only; in an environment, give steps")
    if env is None and steps is not None:
        raise InputError("steps need an environment; give updates for offline training")
    total = (DEFAULT_STEPS if steps is None else steps) if env is not None else updates
    total = DEFAULT_UPDATES if total is None else total
    limits = {"steps" if env is not None else "updates": (total, 1), "eval_every": (eval_every, 1)}
    limits |= {"seed": (seed, 0), "replay_capacity": (capacity, 1), "checkpoint_seconds": (interval, 0)}
    for name, (value, least) in limits.items():
        if not least <= value < inf:
            raise InputError(f"{name} is {value}; it must be finite and at least {least}")
    if seed >= 2**32:
        raise InputError(f"seed is {seed}; it must be below 2**32")
    return total
