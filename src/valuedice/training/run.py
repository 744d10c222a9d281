"""The one loop: environment steps → replay → K updates in one compiled call → evaluation → run folder.

Offline is the same loop without an environment: there, time is counted in updates instead of steps.
"""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from valuedice.algorithms import ALGORITHMS, SAC, Algorithm, Learning
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
from valuedice.rollouts import Collector, Rollouts
from valuedice.runs import RunFolder, refuse_other_run
from valuedice.task import Task, check_budget, check_mode, check_places, check_types
from valuedice.training import Training
from valuedice.types import Metrics, Normalizer, Transition


@dataclass(frozen=True)
class Run:
    """What training gives back. The policy is that of the last step; of behavioural cloning with held-out episodes,
    the one that knew these best. No return ever chooses it."""

    policy: Policy
    metrics: list[Metrics]
    """A row for each evaluation, as in `metrics.csv`."""
    algorithm: Learning
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
    the environment that training uses. Behavioural cloning never trains in one: its `env` is where it is evaluated.
    `replay_data` is other, non-expert data in the replay buffer. With `resume`,
    the run that the folder `out` holds is continued exactly; only `steps` or `updates` may grow, and when it is
    evaluated and saved may change. `command` is noted in `config.json`.
    """
    begin = time.monotonic()
    check_types(algorithm, demos, replay_data, env, eval_env)
    name = algorithm_name(algorithm)
    if algorithm.pace is None:
        # An environment can only be looked at.
        env, eval_env = None, env if eval_env is None else eval_env
    check_mode(name, algorithm, env, steps, replay_data)
    total = check_budget(env, steps, updates, eval_every, seed, replay_capacity, checkpoint_seconds)
    # All environments step together, so the last step may take some more than asked for.
    environments = 1 if algorithm.pace is None else algorithm.pace.environments
    total = -(-total // environments) * environments
    check_folder(algorithm, None if env is None else total, out, resume)
    eval_env = env if eval_env is None else eval_env
    config = {
        "algorithm": name,
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
    with closing(Task.open(demos, replay_data, env, eval_env, eval_episodes, environments)) as task:
        normalizer = demos.normalizer()
        shape = None if algorithm.pace is None else algorithm.pace.rollout
        rollouts = None if shape is None else Rollouts(task.spec, *shape)
        replay = None if env is None or rollouts is not None else Replay(task.spec, replay_capacity)
        if replay_data is not None:
            replay = replay if replay is not None else Replay(task.spec, replay_data.rows + len(replay_data))
            fill_replay(replay, replay_data, task.spec, normalizer)
        learned, unseen = demos.split(algorithm.held_out, seed)
        expert = ExpertRows(learned, task.spec, normalizer, algorithm.rows)
        held_out = None if unseen is None else ExpertRows(unseen, task.spec, normalizer, algorithm.rows)
        learner = Learner(algorithm, expert, replay, normalizer, task.spec, seed, held_out, rollouts)
        training = Training(learner, explorer_of(learner, task, seed))
        schedule = Schedule(total, eval_every, checkpoint_seconds)
        return carry_out(training, task, schedule, config, None if out is None else Path(out), resume, begin, quiet)


def train_expert(
    algorithm: SAC,
    env: EnvRef,
    *,
    target_return: float,
    max_steps: int = 1_000_000,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    eval_every: int = 5_000,
    eval_episodes: int = 10,
    replay_capacity: int = 1_000_000,
    checkpoint_seconds: float = 60.0,
    command: dict[str, Any] | None = None,
    quiet: bool = False,
) -> Run:
    """Learns from the rewards of `env` until an evaluation reaches `target_return`, or for `max_steps`.

    The rest is as in `train`; when resumed, `target_return` may change too. Observations are taken as they are: no
    data that is there at the start tells the scale of what a good policy will see.
    """
    begin = time.monotonic()
    if not isinstance(algorithm, SAC):
        raise InputError(f"{algorithm!r} does not learn from rewards; give SAC()")
    check_places(env)
    if not isfinite(target_return):
        raise InputError(f"target_return is {target_return}; it must be finite")
    total = check_budget(env, max_steps, None, eval_every, seed, replay_capacity, checkpoint_seconds)
    check_folder(algorithm, total, out, resume)
    config = {
        "algorithm": "sac",
        **asdict(algorithm),
        "env": env_name(env),
        "eval_env": env_name(env),
        "target_return": target_return,
        "steps": total,
        "seed": seed,
        "eval_every": eval_every,
        "eval_episodes": eval_episodes,
        "replay_capacity": replay_capacity,
        "checkpoint_seconds": checkpoint_seconds,
        "threads": threads(),
        "command": command,
    }
    with closing(Task.open(None, None, env, env, eval_episodes)) as task:
        normalizer = Normalizer.none(task.spec.obs_size)
        replay = Replay(task.spec, replay_capacity)
        learner = Learner(algorithm, None, replay, normalizer, task.spec, seed)
        training = Training(learner, explorer_of(learner, task, seed))
        schedule = Schedule(total, eval_every, checkpoint_seconds, target_return)
        return carry_out(training, task, schedule, config, None if out is None else Path(out), resume, begin, quiet)


@dataclass(frozen=True)
class Schedule:
    """When a run is evaluated, saved and ended."""

    total: int
    """Environment steps, offline updates."""
    eval_every: int
    checkpoint_seconds: float
    target_return: float | None = None
    """Where it ends before its time."""

    def reached(self, metrics: list[Metrics]) -> bool:
        """Whether the last evaluation was good enough, or the algorithm has nothing left to learn."""
        last: Metrics = metrics[-1] if metrics else {}
        now = last.get("return_mean")
        return bool(last.get("converged")) or (
            self.target_return is not None and now is not None and now >= self.target_return
        )


def explorer_of(learner: Learner, task: Task, seed: int) -> Explorer | Collector | None:
    """What fills the learner's replay buffer or rollouts; None where there is no environment to explore."""
    pace, normalizer = learner.algorithm.pace, learner.normalizer
    if not task.envs or pace is None:
        return None
    if learner.rollouts is not None:
        return Collector(task.envs, learner.rollouts, task.spec, normalizer, seed=seed)
    assert learner.replay is not None
    settings = {"random_steps": pace.random_steps, "noise": pace.noise, "seed": seed}
    return Explorer(task.envs[0], learner.replay, task.spec, normalizer, **settings)


def check_folder(algorithm: Learning, steps: int | None, out: str | Path | None, resume: bool) -> None:
    """Before anything is made: whether there is something to learn, and a place for it."""
    if steps is not None and algorithm.pace is not None and steps < algorithm.pace.training_starts:
        setting = "--training-starts" if algorithm.pace.rollout is None else "--rollout"
        raise InputError(
            f"{steps} steps end before the first update, at step {algorithm.pace.training_starts}; take more "
            f"steps, or lower {setting}"
        )
    if resume and out is None:
        raise InputError("nothing to resume; name the folder of the run with out")
    if out is not None and not resume:
        refuse_other_run(Path(out))


def carry_out(
    training: Training,
    task: Task,
    schedule: Schedule,
    config: dict[str, Any],
    out: Path | None,
    resume: bool,
    begin: float,
    quiet: bool,
) -> Run:
    """A run from its folder's last checkpoint, if there is one, to its end."""
    learner, unit = training.learner, "updates" if training.explorer is None else "steps"
    with nullcontext() if out is None else closing(RunFolder(out, config, resume)) as folder:
        keeper = Keeper(folder, training, schedule.checkpoint_seconds, unit, begin)
        keeper.recall(schedule.total)
        show = "none" if quiet else "auto"
        goals = {"expert": task.expert_return, "target": schedule.target_return}
        goal = next((f"{name} {value:.0f}" for name, value in goals.items() if value is not None), "")
        name = f"{config['algorithm']} on {task.name}"
        with Watch(show, name, schedule.total, unit, goal, training.done) as watch:
            if out is not None:
                watch.say(f"{name}: the run is in {out}")
            follow(training, task, keeper, watch, schedule, config["seed"])
        keeper.finish()
    return Run(learner.policy, training.metrics, learner.algorithm, learner.state, out)


def follow(training: Training, task: Task, keeper: Keeper, watch: Watch, schedule: Schedule, seed: int) -> None:
    """Trains to the end, with evaluations and checkpoints, and an eye on divergence and signals."""
    learner, total = training.learner, schedule.total
    if schedule.reached(training.metrics):
        return
    with deferred() as signals:
        for done in training.advance(total, schedule.eval_every):
            watch.advance(done)
            when = f"{done:,} {keeper.unit}"
            row: Metrics = {"step": 0 if training.explorer is None else done, "updates": learner.updates}
            row |= {"wall_seconds": keeper.seconds} | task.no_returns() | {"kl_estimate": None}
            try:
                keeper.guard.check_finite(learner.last, when)
                # Where several environments step together, the first count at or behind a multiple.
                if evaluated := done % schedule.eval_every < training.stride or done == total:
                    measures = learner.measure()
                    row |= measures
                    # First, since a policy of NaN should not reach the environment.
                    keeper.guard.check_finite(measures, when)
                    row |= task.returns(learner.policy, [seed, done])
                    keeper.guard.check_sample(row.get("effective_sample_size"), done, keeper.unit)
                    keeper.log(row, learner.policy)
                    watch.evaluated(row)
                over = done == total or (evaluated and schedule.reached(training.metrics))
                keeper.save(now=over)
            except DivergenceError as error:
                if not training.metrics or training.metrics[-1] is not row:
                    keeper.log(row | learner.last, None)
                raise DivergenceError(f"{error} {keeper.kept()}.") from None
            if over:
                return
            if signals.caught is not None:
                keeper.stop(signals.caught)


def algorithm_name(algorithm: Algorithm) -> str:
    """As on the command line."""
    return next(name for name, kind in ALGORITHMS.items() if isinstance(algorithm, kind))
