"""`train` and what it returns: a run, new or loaded from its folder."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import jax

from valuedice.algorithms import Algorithm, AnyAlgorithm, algorithm_name
from valuedice.algorithms.protocol import SuitsDemos
from valuedice.demos import Demos
from valuedice.demos.rows import ExpertRows, fill_replay
from valuedice.envs.episodes import Evaluator
from valuedice.envs.fit import check_fit, demos_spec
from valuedice.envs.make import EnvRef, env_name, make_env, task_spec
from valuedice.errors import InputError
from valuedice.policy import Policy, load_policy
from valuedice.replay import Replay, Rollouts
from valuedice.training.acting import Actor, Collector, Env, Explorer, Nobody
from valuedice.training.batches import Batches
from valuedice.training.checkpoint import Checkpoints
from valuedice.training.choice import Choice
from valuedice.training.config import BLOCK, TrainConfig
from valuedice.training.evaluation import Evaluation
from valuedice.training.learner import Learner, restored, start
from valuedice.training.loop import run_training
from valuedice.training.opening import Opening
from valuedice.training.progress import Display
from valuedice.training.run_folder import RunFolder, below, check_folder
from valuedice.training.stored import StoredConfig, load_data, read_config
from valuedice.types import Metrics, Normalizer, Spec, Transition


def expert_length(algorithm: AnyAlgorithm) -> dict[str, int]:
    """Steps of an expert's training, and between evaluations. On-policy learning takes more, cheaper steps."""
    if algorithm.pace is not None and algorithm.pace.rollout is not None:
        return {"steps": 10_000_000, "eval_every": 50_000}
    return {"steps": 1_000_000, "eval_every": 5_000}


@dataclass(frozen=True)
class Run:
    """A training run: what `train` returns and `load_run` reads."""

    config: TrainConfig
    metrics: list[Metrics] = field(repr=False)
    """A row for each evaluation, as in `metrics.csv`; of a loaded run, up to its last checkpoint."""
    final: Metrics | None = field(repr=False)
    """The policy that the run ends with, on fresh episodes: `return_mean, return_std, normalized_return, distance,
    distance_floor, kept, step, updates`; of an expert also `sampled_return, noisy_return`. None if the run has not
    finished."""
    _policy: Policy | None = field(repr=False)
    _algorithm: AnyAlgorithm | None
    _state: Any = field(default=None, repr=False)

    @property
    def out(self) -> Path | None:
        """The run folder."""
        return self.config.folder

    @property
    def algorithm(self) -> AnyAlgorithm:
        """The algorithm with its settings."""
        if self._algorithm is None:
            raise InputError(f"the algorithm of {self.out} is not part of valuedice; give it to load_run")
        return self._algorithm

    @cached_property
    def policy(self) -> Policy:
        """The policy that the run ends with: of the evaluated ones, that with the smallest `distance`, or the last
        (`keep`). No return chooses it."""
        if self._policy is not None:
            return self._policy
        assert self.out is not None
        return load_policy(self.out)

    @cached_property
    def state(self) -> Any:
        """The algorithm's state; of a loaded run, that of its last checkpoint."""
        if self._state is not None:
            return self._state
        assert self.out is not None
        saved = Checkpoints(self.out / "checkpoint").load()
        if saved is None:
            raise InputError(f"{self.out} holds no checkpoint yet; there is no state to load")
        empty = start(self.algorithm, jax.random.key(0), self.policy.spec)
        return restored(empty, below(saved.arrays, "learner"))

    def transitions(self, demos: Demos) -> Transition:
        """Episodes as the networks see them, for example for `algorithm.log_ratio(state, …)`."""
        sampling = self.algorithm.data.sampling
        return ExpertRows(demos, self.policy.spec, self.policy.normalizer, sampling).all()

    def resume(self, **changes: Any) -> Run:
        """Continues the run in its folder, exactly as if it had never stopped. `changes` are settings of `train`:
        usually more `steps` or `updates`; also what was given as a Python object, which a folder cannot hold."""
        if self.out is None:
            raise InputError("the run has no folder, so it cannot be resumed; train with `out`")
        missing = [name for name in read_config(self.out).objects if name not in changes]
        missing = [name for name in missing if getattr(self.config, name) is None]
        if missing:
            raise InputError(f"{self.out} was given `{'`, `'.join(missing)}` as Python objects; give them again")
        # The loggers of this run are closed.
        return run_algorithm(self.algorithm, replace(self.config, **({"loggers": ()} | changes | {"resume": True})))


P = ParamSpec("P")


def takes_settings(
    config: Callable[P, TrainConfig],
) -> Callable[[Callable[[AnyAlgorithm, TrainConfig], Run]], Callable[Concatenate[AnyAlgorithm, P], Run]]:
    """Gives a function the fields of the config as its arguments, so that each setting is stated once."""

    def decorate(
        function: Callable[[AnyAlgorithm, TrainConfig], Run],
    ) -> Callable[Concatenate[AnyAlgorithm, P], Run]:
        def train(algorithm: AnyAlgorithm, /, *args: P.args, **kwargs: P.kwargs) -> Run:
            try:
                settings = config(*args, **kwargs)
            except TypeError as error:
                reason = str(error).replace("TrainConfig.__init__()", "train")
                raise TypeError(reason) from None
            return function(algorithm, settings)

        first = inspect.Parameter("algorithm", inspect.Parameter.POSITIONAL_ONLY, annotation="Algorithm")
        rest = list(inspect.signature(config).parameters.values())
        train.__signature__ = inspect.Signature([first, *rest], return_annotation="Run")  # pyright: ignore[reportFunctionMemberAccess]
        train.__doc__ = function.__doc__
        return train

    return decorate


def run_algorithm(algorithm: AnyAlgorithm, config: TrainConfig) -> Run:
    """Trains `algorithm` and returns the run.

    It imitates `demos`: online for `steps` in `env`, or offline (no `env`, or `offline`) for `updates`. An
    algorithm that learns from rewards takes no `demos` and trains in `env` until `target_return`. Evaluation uses
    environments of its own, of `eval_env` or else `env`. `resume` continues the run in the folder `out` exactly;
    then only settings that do not decide what is learned may change, such as a larger number of `steps`.
    """
    begin = time.monotonic()
    with ExitStack() as stack:
        for logger in config.loggers:
            stack.callback(logger.close)
        check_algorithm(algorithm)
        config = config.resolved(algorithm)
        folder = config.folder
        demos, extra = load_data(config)
        if demos is not None and isinstance(algorithm, SuitsDemos):
            algorithm = algorithm.suited(clipped=demos.clipped)
        stored = StoredConfig.of(algorithm, config, demos, extra)
        # Also before anything slow: the run folder itself checks once more when it is made.
        check_folder(folder, stored, resume=config.resume)
        envs: list[Env] = []
        if config.training_env is not None and algorithm.pace is not None:
            for _ in range(algorithm.pace.environments):
                envs.append(stack.enter_context(closing(make_env(config.training_env))))
        evaluator = None
        if config.eval_env is not None:
            evaluator = stack.enter_context(Evaluator(config.eval_env, config.eval_episodes))
        name, spec = task_of(config, envs, evaluator, [data for data in (demos, extra) if data is not None])
        normalizer = Normalizer.none(spec.obs_size) if demos is None else demos.normalizer()
        batches = open_batches(algorithm, config, spec, normalizer, demos, extra)
        learner = Learner(algorithm, batches, normalizer, spec, config.seed)
        actor = open_actor(algorithm, config, envs, batches, normalizer)
        opening = Opening(algorithm, learner, demos, config.seed)
        begun = folder is not None and Checkpoints(folder / "checkpoint").begun
        # A run that has begun does not need the file any more.
        if config.init_policy is not None and not begun:
            opening.take(config.init_policy, name)
        evaluation = Evaluation(config, learner, evaluator, demos)
        assert config.keep is not None
        choice = Choice(config.keep, spec)
        parts = {"learner": learner, "batches": batches, "actor": actor, "evaluation": evaluation, "choice": choice}
        kept = stack.enter_context(
            closing(RunFolder(folder, stored, parts, batches.replay, resume=config.resume, begin=begin))
        )
        kept.restore(config.total)
        title = f"{stored.algorithm} on {name}"
        goals = {"expert": evaluation.expert_return, "target": config.target_return}
        goal = next((f"{what} {value:.0f}" for what, value in goals.items() if value is not None), "")
        with Display(
            title, config.total, config.unit, goal=goal, start=kept.done, quiet=config.quiet, folder=folder
        ) as display:
            if folder is not None:
                display.say(f"{title}: the run is in {folder}")
            run_training(config, opening, learner, actor, evaluation, choice, kept, display)
        policy, final = choice.policy or learner.policy, evaluation.final(choice)
        if not evaluation.guard.suspicious:
            # Again, because an interrupted run may have written policies of evaluations that were discarded.
            kept.write_policies(learner.policy, policy)
        kept.finish(final)
    return Run(config, kept.rows, final, policy, algorithm, learner.state)


train = takes_settings(TrainConfig)(run_algorithm)


def train_expert(
    algorithm: AnyAlgorithm, env: EnvRef, *, target_return: float, max_steps: int | None = None, **settings: Any
) -> Run:
    """Learns from the rewards of `env` until an evaluation reaches `target_return`, or for `max_steps`.

    `settings` are those of `train`; an expert is a run of an algorithm that learns from rewards.
    """
    if algorithm.data.demos:
        raise InputError(f"{algorithm_name(algorithm)} does not learn from rewards; use an algorithm such as PPO()")
    goal = {"target_return": target_return} | ({} if max_steps is None else {"steps": max_steps})
    given: dict[str, Any] = expert_length(algorithm) | settings | goal
    return train(algorithm, None, env, **given)


def load_run(folder: str | Path, algorithm: AnyAlgorithm | None = None) -> Run:
    """The run in a folder: its config, metrics, policy and state; `resume` continues it.

    `algorithm` is needed for the state and to resume if the algorithm is not one of this library's.
    """
    folder = Path(folder)
    stored = read_config(folder)
    saved = Checkpoints(folder / "checkpoint").load()
    rows: list[Metrics] = [] if saved is None else saved.facts["rows"]
    known = stored.rebuilt_algorithm() if algorithm is None else algorithm
    return Run(stored.train_config(folder), rows, read_final(folder), None, known)


def read_final(folder: Path) -> Metrics | None:
    """The headline in `summary.json`; None if the run has not finished."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return dict(json.loads((folder / "summary.json").read_text())["final"])
    return None


def check_algorithm(algorithm: object) -> None:
    """Refuses what does not keep the contract, before it fails somewhere inside."""
    if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm) or not is_dataclass(algorithm):
        raise InputError(
            f"{algorithm!r} is no algorithm; give an object such as ValueDICE(), or a frozen dataclass that keeps "
            "the contract valuedice.Algorithm"
        )
    try:
        hash(algorithm)
    except TypeError as error:
        raise InputError(
            f"{algorithm!r} cannot be compiled ({error}); freeze the dataclass, and give tuples instead of lists"
        ) from None


def task_of(
    config: TrainConfig, envs: list[Env], evaluator: Evaluator | None, data: list[Demos]
) -> tuple[str, Spec]:
    """The name and the shape of the task; refuses environments and data that are not of one task."""
    if envs and config.env is not None:
        name, spec = env_name(config.env), task_spec(envs[0], env_name(config.env))
    elif evaluator is not None:
        name, spec = evaluator.name, evaluator.spec
    else:
        name, spec = Path(data[0].source).stem, demos_spec(data)
    for part in data:
        check_fit(part, spec, name)
    if evaluator is not None and evaluator.spec != spec:
        raise InputError(
            f"{evaluator.name} has other observations or actions than {name}; evaluate in the same task"
        )
    return name, spec


def open_batches(
    algorithm: AnyAlgorithm,
    config: TrainConfig,
    spec: Spec,
    normalizer: Normalizer,
    demos: Demos | None,
    extra: Demos | None,
) -> Batches:
    """The sources of data that the algorithm asks for."""
    data, pace = algorithm.data, None if config.offline else algorithm.pace
    rollouts = None if pace is None or pace.rollout is None else Rollouts(spec, *pace.rollout)
    replay = None if pace is None or rollouts is not None else Replay(spec, config.replay_capacity)
    if extra is not None:
        replay = replay if replay is not None else Replay(spec, extra.rows + len(extra))
        fill_replay(replay, extra, spec, normalizer)
    learned, aside = (None, None) if demos is None else demos.split(data.held_out, config.seed)
    expert = None if learned is None else ExpertRows(learned, spec, normalizer, data.sampling)
    held_out = None if aside is None else ExpertRows(aside, spec, normalizer, data.sampling)
    ahead = BLOCK if pace is None else 0
    return Batches(
        data, spec, config.seed, expert=expert, held_out=held_out, replay=replay, rollouts=rollouts, ahead=ahead
    )


def open_actor(
    algorithm: AnyAlgorithm, config: TrainConfig, envs: list[Env], batches: Batches, normalizer: Normalizer
) -> Actor:
    """Who fills the replay buffer or the rollouts."""
    pace, seed = algorithm.pace, config.seed
    if not envs or pace is None:
        return Nobody()
    if batches.rollouts is not None:
        threads = config.threads or 1
        if not algorithm.data.demos:
            # Such an algorithm normalises by itself, what the policy sees as it is.
            normalizer = replace(normalizer, clip=inf)
        return Collector(envs, batches.rollouts, batches.spec, normalizer, seed=seed, threads=threads)
    assert batches.replay is not None
    return Explorer(envs[0], batches.replay, batches.spec, normalizer, pace, seed=seed)
