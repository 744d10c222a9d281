"""`valuedice expert`."""

from __future__ import annotations

from typing import Any

from valuedice.algorithms import REWARD_LEARNERS
from valuedice.commands import say
from valuedice.commands.run_options import RunCommand, default_folder, pasted, where_to_look
from valuedice.envs.make import file_name
from valuedice.errors import InputError
from valuedice.training.run import EXPERT_EVAL_EVERY, EXPERT_STEPS, Run

EXPERT = RunCommand(
    name="expert",
    doc="Train an expert on the rewards of a task, until it reaches a target return.",
    hidden={"demos", "episodes", "episodes_seed", "subsample", "dones_are", "keep"}
    | {"offline", "updates", "replay_data", "eval_env"},
    renamed={"steps": "max-steps"},
    defaults={"steps": EXPERT_STEPS, "eval_every": EXPERT_EVAL_EVERY},
)


def expert_command(args: list[str]) -> int:
    """`valuedice expert --env ID --target-return R`."""
    stored = EXPERT.stored(args, REWARD_LEARNERS)
    algorithm = None if stored is None else stored.rebuilt_algorithm()
    options = EXPERT.parse(args, algorithm or REWARD_LEARNERS["sac"](), stored)
    for name in ("env", "target_return"):
        if getattr(options, name) is None:
            raise InputError(
                f"`{name}` is missing; give the task with `env` and the return to reach with `target_return`"
            )
    run = EXPERT.run(options, out=options.out or default_folder(f"expert-{options.env}", options.seed))
    if not options.quiet:
        report(run, options)
    return 0


def report(run: Run, options: Any) -> None:
    """The return next to the target, and what to do with the expert."""
    last = run.metrics[-1]
    short = last["return_mean"] < options.target_return
    lines = [
        f"return: {last['return_mean']:.1f} ± {last['return_std']:.1f} after {last['step']:,} steps, "
        f"target: {options.target_return:g}{' (not reached)' if short else ''}",
        *where_to_look(run),
    ]
    if short:
        lines.append(f"more:   valuedice expert --resume {pasted(run)} --max-steps {2 * options.steps}")
    name = file_name(options.env)
    lines.append(
        f"next:   valuedice demos collect --policy {pasted(run)} --env {options.env} --episodes 11 --out {name}.npz"
    )
    say("\n".join(lines))
