"""`valuedice expert`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from valuedice.algorithms import SAC
from valuedice.commands import parse, say, value_of
from valuedice.commands.training import as_begun, as_command, check_machine, default_folder, resumable
from valuedice.errors import InputError


@dataclass(frozen=True)
class ExpertOptions:
    """Learn from the rewards of a task, by soft actor-critic, until a target is reached: an expert to record
    demonstrations with."""

    env: str | None = None
    """Gymnasium id of the task; also module:Id-v0, which imports the module first."""
    target_return: float | None = None
    """Stop when the mean return of an evaluation reaches this."""
    max_steps: int = 1_000_000
    """Stop after so many environment steps at the latest."""
    seed: int = 0
    """Decides everything random."""
    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this folder, exactly as if it had never stopped. Only --target-return, --max-steps and
    how often it is evaluated and saved may be changed."""
    eval_every: int = 5_000
    """Steps between evaluations."""
    eval_episodes: int = 10
    """Episodes of an evaluation, with the mean action."""
    replay_capacity: int = 1_000_000
    """Rows of the replay buffer."""
    threads: int | None = None
    """Cores to use; all by default. For several runs side by side, 1 for each is the best use of them."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    quiet: bool = False
    """Show no progress."""


def expert_command(args: list[str]) -> int:
    """`valuedice expert --env ID --target-return R`."""
    folder = value_of("--resume", args)
    config = {} if folder is None else resumable(Path(folder), "expert")
    options = make_dataclass(
        "ExpertOptions",
        [("algorithm", Annotated[SAC, tyro.conf.arg(name="")], field(default_factory=SAC))],
        bases=(ExpertOptions,),
        frozen=True,
        namespace={"__doc__": ExpertOptions.__doc__},
    )
    default = None if folder is None else options(**as_begun(config, Path(folder), SAC, ExpertOptions))
    return run_expert(parse(options, "expert", args, default))


def run_expert(options: Any) -> int:
    """Trains, and says what came of it."""
    check_machine(options)
    if options.env is None or options.target_return is None:
        missing = "--env ID" if options.env is None else "--target-return R"
        raise InputError(f"{missing} is missing; say which task, and which return is good enough")
    from valuedice.train import train_expert

    names = [f.name for f in fields(ExpertOptions) if f.name not in ("env", "out", "resume", "threads")]
    run = train_expert(
        options.algorithm,
        options.env,
        **{name: getattr(options, name) for name in names},
        out=options.out or default_folder(f"expert-{options.env}", options.seed),
        resume=options.resume is not None,
        command=as_command(options, ExpertOptions),
    )
    if not options.quiet:
        report(run, options)
    return 0


def report(run: Any, options: Any) -> None:
    """The return next to the target, and what to do with the expert."""
    last = run.metrics[-1]
    short = last["return_mean"] < options.target_return
    lines = [
        f"return: {last['return_mean']:.1f} ± {last['return_std']:.1f} after {last['step']:,} steps, "
        f"target: {options.target_return:g}{' (not reached)' if short else ''}",
        f"policy: {run.out}/policy.safetensors",
        f"curves: {run.out}/metrics.csv, or tensorboard --logdir {run.out} (pip install tensorboard)",
    ]
    if short:
        lines.append(f"more:   valuedice expert --resume {run.out} --max-steps {2 * options.max_steps}")
    name = options.env.replace(":", "-").replace("/", "-")
    lines.append(
        f"next:   valuedice demos collect --policy {run.out} --env {options.env} --episodes 11 --out {name}.npz"
    )
    say("\n".join(lines))
