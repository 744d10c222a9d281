"""`valuedice expert`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import tyro

from valuedice.algorithms import REWARD_LEARNERS
from valuedice.commands import say, value_of
from valuedice.commands.run_options import RunCommand, default_folder, pasted, where_to_look
from valuedice.envs.episodes import NOISE, is_robust
from valuedice.envs.make import file_name
from valuedice.errors import InputError
from valuedice.training.run import Run, expert_length

LearnerName = Annotated[
    Literal["ppo", "sac"],
    tyro.conf.arg(name="algorithm", help="Proximal policy optimisation, or soft actor-critic."),
]
EXPERT = RunCommand(
    name="expert",
    doc="Train an expert on the rewards of a task, until it reaches a target return.",
    hidden={"demos", "episodes", "episodes_seed", "subsample", "dones_are", "keep"}
    | {"offline", "updates", "replay_data", "eval_env"},
    renamed={"steps": "max-steps", "learner": "algorithm"},
    defaults={},
    further=(("learner", LearnerName, "ppo"),),
)


def expert_command(args: list[str]) -> int:
    """`valuedice expert --env ID --target-return R`."""
    stored, name = EXPERT.stored(args, REWARD_LEARNERS), value_of("--algorithm", args)
    if stored is not None and name not in (None, stored.algorithm):
        raise InputError(f"the run is one of {stored.algorithm}, not of {name}; omit --algorithm to resume it")
    known = "ppo" if stored is None else stored.algorithm
    # The parser refuses an unknown name.
    algorithm = REWARD_LEARNERS.get(name or known, REWARD_LEARNERS[known])()
    unused = {"replay_capacity", "init_policy"} if algorithm.data.replay == "unused" else set[str]()
    command = replace(EXPERT, defaults=expert_length(algorithm), hidden={*EXPERT.hidden, *unused})
    if stored is not None:
        algorithm = stored.rebuilt_algorithm() or algorithm
    options = command.parse(args, algorithm, stored)
    for name in ("env", "target_return"):
        if getattr(options, name) is None:
            raise InputError(
                f"`{name}` is missing; give the task with `env` and the return to reach with `target_return`"
            )
    run = command.run(options, out=options.out or default_folder(f"expert-{options.env}", options.seed))
    if not options.quiet:
        report(run, options)
    return 0


def report(run: Run, options: Any) -> None:
    """The return next to the target, how robust the expert is, and what to do with it."""
    last, final = run.metrics[-1], run.final
    short = last["return_mean"] < options.target_return
    noisy = last.get("noisy_return")
    fragile = options.robust and (noisy is None or not is_robust(last["return_mean"], noisy))
    missed = " (not reached)" if short else " (reached, but not robust)" if fragile else ""
    lines = [
        f"return: {last['return_mean']:.1f} ± {last['return_std']:.1f} after {last['step']:,} steps, "
        f"target: {options.target_return:g}{missed}"
    ]
    if final is not None and final.get("noisy_return") is not None:
        lines.append(
            f"robust: {final['return_mean']:.1f} with the mean action on fresh episodes, "
            f"{final['sampled_return']:.1f} with sampled actions, {final['noisy_return']:.1f} under noise {NOISE:g}"
        )
        if not is_robust(final["return_mean"], final["noisy_return"]):
            lines.append("        It loses more than a tenth under noise, so it may be hard to imitate.")
    lines += where_to_look(run)
    if missed:
        lines.append(f"more:   valuedice expert --resume {pasted(run)} --max-steps {2 * options.steps}")
    name = file_name(options.env)
    lines.append(
        f"next:   valuedice demos collect --policy {pasted(run)} --env {options.env} --episodes 11 --out {name}.npz"
    )
    say("\n".join(lines))
