"""The one loop: environment steps → replay → K updates in one compiled call → evaluation → run folder.

Offline is the same loop without an environment: there, time is counted in updates instead of steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from valuedice.algorithms import ALGORITHMS, Algorithm
from valuedice.demos import Demos
from valuedice.demos.rows import ExpertRows, check_fit, demos_spec, fill_replay
from valuedice.envs import EnvRef, env_name, make_env, task_spec
from valuedice.errors import InputError
from valuedice.evaluate import Evaluator
from valuedice.explore import explore
from valuedice.machine import threads
from valuedice.policy import Policy
from valuedice.progress import Watch
from valuedice.replay import Replay
from valuedice.runs import RunFolder, refuse_other_run
from valuedice.types import Batch, Metrics, Normalizer, Spec, Transition

DEFAULT_STEPS = 10_000
DEFAULT_UPDATES = 40_000
# Batches that are drawn at once offline.
OFFLINE_BLOCK = 200
# Replay rows in the estimate of the divergence: one shape whatever the buffer holds, so it compiles once.
DIAGNOSED_ROWS = 4_096


@dataclass(frozen=True)
class Run:
    """What training gives back. The policy is that of the last step."""

    policy: Policy
    metrics: list[Metrics]
    """A row for each evaluation, as in `metrics.csv`."""
    algorithm: Algorithm
    state: Any
    out: Path | None

    def transitions(self, demos: Demos) -> Transition:
        """Raw episodes as the networks see them, for example for `algorithm.log_ratio(state, …)`."""
        return ExpertRows(demos, self.policy.spec, self.policy.normalizer, self.algorithm.rows).all()


@partial(jax.jit, static_argnums=(0, 2))
def start(algorithm: Algorithm, key: Array, spec: Spec) -> Any:
    """The algorithm's first state."""
    return algorithm.init(key, spec)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_updates(algorithm: Algorithm, state: Any, batches: Batch) -> tuple[Any, Metrics]:
    """As many updates as there are stacked batches; metrics are their means."""
    state, metrics = jax.lax.scan(algorithm.update, state, batches)
    return state, jax.tree.map(jnp.mean, metrics)


@partial(jax.jit, static_argnums=0)
def run_diagnosis(algorithm: Algorithm, state: Any, batch: Batch) -> Metrics:
    """The algorithm's own measures of convergence."""
    return algorithm.diagnose(state, batch)


class Learner:
    """An algorithm with its state and its data."""

    def __init__(
        self,
        algorithm: Algorithm,
        expert: ExpertRows,
        replay: Replay | None,
        normalizer: Normalizer,
        spec: Spec,
        seed: int,
    ) -> None:
        self.algorithm, self.expert, self.replay = algorithm, expert, replay
        self.normalizer, self.spec = normalizer, spec
        self.state = start(algorithm, jax.random.key(seed), spec)
        self.rng = np.random.default_rng([seed, 1])
        self.updates = 0
        self._sums: dict[str, float] = {}
        self._summed = 0
        self._policy: Policy | None = None

    def draw(self, updates: int) -> Batch:
        """K stacked batches."""
        shape = (updates, self.algorithm.batch_size)
        expert, initial = self.expert.draw(self.rng, shape)
        return Batch(expert, initial, self._draw_replay(self.rng, shape))

    def _draw_replay(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Transition | None:
        """Nothing where there are no rows, or no use for them."""
        if not self.replay or not self.algorithm.uses_replay:
            return None
        return self.replay.draw(rng, shape, self.algorithm.rows)

    def learn(self, batches: Batch) -> None:
        """An update on each of the stacked batches."""
        updates = len(batches.initial)
        self.state, metrics = run_updates(self.algorithm, self.state, batches)
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + updates * float(value)
        self._summed += updates
        self.updates += updates
        self._policy = None

    @property
    def policy(self) -> Policy:
        """The current policy in numpy; a copy, since the next update reuses the memory."""
        if self._policy is None:
            layers = tuple((np.array(layer.kernel), np.array(layer.bias)) for layer in self.state.actor)
            self._policy = Policy(layers, self.normalizer, self.spec)
        return self._policy

    def measure(self) -> Metrics:
        """Means over the updates since the last call, and the divergence on all expert rows."""
        means = {name: total / max(self._summed, 1) for name, total in self._sums.items()}
        self._sums, self._summed = {}, 0
        rows = self.expert.all()
        # A generator of its own: measuring must not change what is learned.
        rng = np.random.default_rng([self.updates, 2])
        replay = self._draw_replay(rng, (DIAGNOSED_ROWS,))
        batch = Batch(rows, rows.obs, replay, self.expert.weight, self.expert.initial_weight)
        diagnosis = run_diagnosis(self.algorithm, self.state, batch)
        return {name: float(value) for name, value in diagnosis.items()} | means


@dataclass(frozen=True)
class Task:
    """Where a policy trains and where it is evaluated, either of which may be nowhere."""

    name: str
    spec: Spec
    env: gym.Env[Any, Any] | None
    evaluator: Evaluator | None
    expert_return: float | None

    @classmethod
    def open(
        cls,
        demos: Demos,
        replay_data: Demos | None,
        env: EnvRef | None,
        eval_env: EnvRef | None,
        eval_episodes: int,
    ) -> Task:
        """Makes the environments, and checks that they and all data are of one task."""
        data = [demos] if replay_data is None else [demos, replay_data]
        training = None if env is None else make_env(env)
        evaluator = None if eval_env is None else Evaluator(eval_env, eval_episodes)
        if training is not None and env is not None:
            name, spec = env_name(env), task_spec(training, env_name(env))
        elif evaluator is not None:
            name, spec = evaluator.name, evaluator.spec
        else:
            name, spec = demos.source, demos_spec(data)
        for part in data:
            check_fit(part, spec, name)
        if evaluator is not None and evaluator.spec != spec:
            raise InputError(
                f"{evaluator.name} has other observations or actions than {name}; evaluate in the same task"
            )
        return cls(name, spec, training, evaluator, demos.expert_return)

    @cached_property
    def random_return(self) -> float | None:
        """Of uniformly random actions; None where there is nothing to compare it with."""
        if self.evaluator is None or self.expert_return is None:
            return None
        return self.evaluator.random().mean

    def returns(self, policy: Policy, seed: list[int]) -> Metrics:
        """The columns about returns; empty without an environment, the normalised one also without rewards."""
        row: Metrics = {"return_mean": None, "return_std": None}
        row |= {"expert_return": self.expert_return, "normalized_return": None}
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
        for environment in (self.env, self.evaluator):
            if environment is not None:
                environment.close()


def train(
    algorithm: Algorithm,
    demos: Demos,
    env: EnvRef | None = None,
    *,
    steps: int | None = None,
    updates: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    eval_env: EnvRef | None = None,
    eval_every: int = 1_000,
    eval_episodes: int = 10,
    replay_data: Demos | None = None,
    replay_capacity: int = 1_000_000,
    quiet: bool = False,
) -> Run:
    """Imitates `demos`: online for `steps` in `env`, or offline (`env=None`) for `updates`.

    Evaluation, in `eval_env` or else in `env`, comes every `eval_every` steps (offline: updates) and never touches
    the environment that training uses. `replay_data` is other, non-expert data in the replay buffer.
    """
    begin = time.monotonic()
    check_types(algorithm, demos, replay_data, env, eval_env)
    total = check_budget(env, steps, updates, eval_every, seed, replay_capacity)
    if env is not None and total < algorithm.training_starts:
        raise InputError(
            f"{total} steps end before the first update, at step {algorithm.training_starts}; take more steps, or "
            "lower training_starts"
        )
    eval_env = env if eval_env is None else eval_env
    out = None if out is None else Path(out)
    if out is not None:
        refuse_other_run(out)
    task = Task.open(demos, replay_data, env, eval_env, eval_episodes)
    try:
        normalizer = demos.normalizer()
        replay = None if env is None else Replay(task.spec, replay_capacity)
        if replay_data is not None:
            replay = replay if replay is not None else Replay(task.spec, replay_data.rows + len(replay_data))
            fill_replay(replay, replay_data, task.spec, normalizer)
        expert = ExpertRows(demos, task.spec, normalizer, algorithm.rows)
        learner = Learner(algorithm, expert, replay, normalizer, task.spec, seed)

        config = {
            "algorithm": algorithm_name(algorithm),
            **asdict(algorithm),
            "env": None if env is None else env_name(env),
            "eval_env": None if eval_env is None else env_name(eval_env),
            "demos": demos.source,
            "episodes": len(demos),
            "replay_data": None if replay_data is None else replay_data.source,
            "steps": 0 if env is None else total,
            "updates": total if env is None else None,
            "seed": seed,
            "eval_every": eval_every,
            "eval_episodes": eval_episodes,
            "replay_capacity": replay_capacity,
            "threads": threads(),
        }
        folder = None if out is None else RunFolder(out, config)
        unit = "updates" if env is None else "steps"
        metrics: list[Metrics] = []
        with Watch("none" if quiet else "auto", task.name, total, unit, demos.expert_return) as watch:
            for done in learning(learner, task.env, total, eval_every, seed):
                watch.advance(done, learner.updates)
                if done % eval_every and done < total:
                    continue
                row = {"step": 0 if env is None else done, "updates": learner.updates}
                row |= {"wall_seconds": time.monotonic() - begin}
                row |= task.returns(learner.policy, [seed, done]) | learner.measure()
                metrics.append(row)
                if folder is not None:
                    folder.log(row)
                    folder.save_policy(learner.policy)
                watch.evaluated(row)
    finally:
        task.close()
    if folder is not None:
        folder.finish(metrics)
    return Run(learner.policy, metrics, algorithm, learner.state, out)


def learning(learner: Learner, env: Any, total: int, eval_every: int, seed: int) -> Iterator[int]:
    """Trains, and yields after each environment step, or offline after each compiled call."""
    algorithm = learner.algorithm
    if env is None or learner.replay is None:
        chunk = math.gcd(total, eval_every, OFFLINE_BLOCK)
        for start in range(0, total, OFFLINE_BLOCK):
            # Blocks are drawn whole, however short the calls: when one evaluates must not change what is learned.
            block = learner.draw(min(OFFLINE_BLOCK, total - start))
            for done in range(0, len(block.initial), chunk):
                learner.learn(jax.tree.map(itemgetter(slice(done, done + chunk)), block))
                yield start + done + chunk
        return
    for step in explore(
        env,
        learner.replay,
        learner.spec,
        learner.normalizer,
        lambda: learner.policy,
        steps=total,
        random_steps=algorithm.random_steps,
        noise=algorithm.exploration_noise,
        seed=seed,
    ):
        if step >= algorithm.training_starts:
            learner.learn(learner.draw(algorithm.updates_per_step))
        yield step


def check_types(algorithm: Any, demos: Any, replay_data: Any, env: EnvRef | None, eval_env: EnvRef | None) -> None:
    """Slips that a script makes, which would otherwise show as an error deep inside."""
    if not isinstance(algorithm, tuple(ALGORITHMS.values())):
        raise InputError(f"{algorithm!r} is no algorithm; give an object such as ValueDICE()")
    for data in (demos, replay_data):
        if not isinstance(data, Demos | None) or demos is None:
            raise InputError(f"demonstrations are {data!r}; load them first, with load_demos")
    for place in (env, eval_env):
        if isinstance(place, gym.Env):
            raise InputError(
                "an environment is given as an object; give its id, or a function that makes one, since evaluation "
                "needs several"
            )


def check_budget(
    env: EnvRef | None, steps: int | None, updates: int | None, eval_every: int, seed: int, capacity: int
) -> int:
    """How many steps (or offline: updates) to make."""
    if env is not None and updates is not None:
        raise InputError("updates are counted offline only; give steps, or leave the environment out (--offline)")
    if env is None and steps is not None:
        raise InputError("steps need an environment; give updates for offline training")
    total = (DEFAULT_STEPS if steps is None else steps) if env is not None else updates
    total = DEFAULT_UPDATES if total is None else total
    limits = {"steps" if env is not None else "updates": (total, 1), "eval_every": (eval_every, 1)}
    for name, (value, least) in (limits | {"seed": (seed, 0), "replay_capacity": (capacity, 1)}).items():
        if value < least:
            raise InputError(f"{name} is {value}; it must be at least {least}")
    if seed >= 2**32:
        raise InputError(f"seed is {seed}; it must be below 2**32")
    return total


def algorithm_name(algorithm: Algorithm) -> str:
    """As on the command line."""
    return next(name for name, kind in ALGORITHMS.items() if isinstance(algorithm, kind))
