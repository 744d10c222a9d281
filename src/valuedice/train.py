"""The one loop: environment steps → replay → K updates in one compiled call → evaluation → run folder.

Offline is the same loop without an environment: there, time is counted in updates instead of steps.
"""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from valuedice.algorithms import ALGORITHMS, Algorithm
from valuedice.demos import Demos
from valuedice.demos.rows import ExpertRows, fill_replay
from valuedice.envs import EnvRef, env_name
from valuedice.errors import DivergenceError, InputError
from valuedice.explore import Explorer
from valuedice.interrupts import deferred
from valuedice.keeper import Keeper
from valuedice.learner import Learner
from valuedice.machine import threads
from valuedice.policy import Policy
from valuedice.progress import Watch
from valuedice.replay import Replay
from valuedice.runs import RunFolder, refuse_other_run
from valuedice.task import Task, check_budget, check_types
from valuedice.training import Training
from valuedice.types import Metrics, Transition


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


def train(
    algorithm: Algorithm,
    demos: Demos,
    env: EnvRef | None = None,
    *,
    steps: int | None = None,
    updates: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    eval_env: EnvRef | None = None,
    eval_every: int = 1_000,
    eval_episodes: int = 10,
    replay_data: Demos | None = None,
    replay_capacity: int = 1_000_000,
    checkpoint_seconds: float = 60.0,
    command: dict[str, Any] | None = None,
    quiet: bool = False,
) -> Run:
    """Imitates `demos`: online for `steps` in `env`, or offline (`env=None`) for `updates`.

    Evaluation, in `eval_env` or else in `env`, comes every `eval_every` steps (offline: updates) and never touches
    the environment that training uses. `replay_data` is other, non-expert data in the replay buffer. With `resume`,
    the run that the folder `out` holds is continued exactly; only `steps` or `updates` may grow, and when it is
    evaluated and saved may change. `command` is noted in `config.json`.
    """
    begin = time.monotonic()
    check_types(algorithm, demos, replay_data, env, eval_env)
    total = check_budget(env, steps, updates, eval_every, seed, replay_capacity, checkpoint_seconds)
    if env is not None and total < algorithm.training_starts:
        raise InputError(
            f"{total} steps end before the first update, at step {algorithm.training_starts}; take more steps, or "
            "lower training_starts"
        )
    eval_env = env if eval_env is None else eval_env
    out = None if out is None else Path(out)
    if resume and out is None:
        raise InputError("nothing to resume; name the folder of the run with out")
    if out is not None and not resume:
        refuse_other_run(out)
    config = {
        "algorithm": algorithm_name(algorithm),
        **asdict(algorithm),
        "env": None if env is None else env_name(env),
        "eval_env": None if eval_env is None else env_name(eval_env),
        "demos": demos.source,
        "demos_fingerprint": demos.fingerprint(),
        "episodes": len(demos),
        "replay_data": None if replay_data is None else replay_data.source,
        "replay_data_fingerprint": None if replay_data is None else replay_data.fingerprint(),
        "steps": 0 if env is None else total,
        "updates": total if env is None else None,
        "seed": seed,
        "eval_every": eval_every,
        "eval_episodes": eval_episodes,
        "replay_capacity": replay_capacity,
        "checkpoint_seconds": checkpoint_seconds,
        "threads": threads(),
        "command": command,
    }
    with closing(Task.open(demos, replay_data, env, eval_env, eval_episodes)) as task:
        normalizer = demos.normalizer()
        replay = None if env is None else Replay(task.spec, replay_capacity)
        if replay_data is not None:
            replay = replay if replay is not None else Replay(task.spec, replay_data.rows + len(replay_data))
            fill_replay(replay, replay_data, task.spec, normalizer)
        expert = ExpertRows(demos, task.spec, normalizer, algorithm.rows)
        learner = Learner(algorithm, expert, replay, normalizer, task.spec, seed)
        explorer = None
        if task.env is not None and replay is not None:
            settings = {"random_steps": algorithm.random_steps, "noise": algorithm.exploration_noise, "seed": seed}
            explorer = Explorer(task.env, replay, task.spec, normalizer, **settings)
        training = Training(learner, explorer)
        unit = "updates" if env is None else "steps"
        with nullcontext() if out is None else closing(RunFolder(out, config, resume)) as folder:
            keeper = Keeper(folder, training, checkpoint_seconds, unit, begin)
            keeper.recall(total)
            with Watch(
                "none" if quiet else "auto", task.name, total, unit, demos.expert_return, training.done
            ) as watch:
                follow(training, task, keeper, watch, total, eval_every, seed)
            keeper.finish()
    return Run(learner.policy, training.metrics, algorithm, learner.state, out)


def follow(
    training: Training, task: Task, keeper: Keeper, watch: Watch, total: int, eval_every: int, seed: int
) -> None:
    """Trains to the end, with evaluations and checkpoints, and an eye on divergence and signals."""
    learner = training.learner
    with deferred() as signals:
        for done in training.advance(total, eval_every):
            watch.advance(done, learner.updates)
            when = f"{done:,} {keeper.unit}"
            row: Metrics = {"step": 0 if training.explorer is None else done, "updates": learner.updates}
            row |= {"wall_seconds": keeper.seconds} | task.no_returns()
            try:
                keeper.guard.check_finite(learner.last, when)
                if done % eval_every == 0 or done == total:
                    measures = learner.measure()
                    row |= measures
                    # First, since a policy of NaN should not reach the environment.
                    keeper.guard.check_finite(measures, when)
                    row |= task.returns(learner.policy, [seed, done])
                    keeper.guard.check_sample(row.get("effective_sample_size"), done, keeper.unit)
                    keeper.log(row, learner.policy)
                    watch.evaluated(row)
                keeper.save(now=done == total)
            except DivergenceError as error:
                if not training.metrics or training.metrics[-1] is not row:
                    keeper.log(row | learner.last, None)
                raise DivergenceError(f"{error} {keeper.kept()}.") from None
            if signals.caught is not None and done < total:
                keeper.stop(signals.caught)


def algorithm_name(algorithm: Algorithm) -> str:
    """As on the command line."""
    return next(name for name, kind in ALGORITHMS.items() if isinstance(algorithm, kind))
