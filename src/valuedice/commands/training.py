"""`valuedice train`."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from valuedice.algorithms import ALGORITHMS
from valuedice.commands import parse, say
from valuedice.errors import InputError


@dataclass(frozen=True)
class TrainOptions:
    """Learn a policy from demonstrations. Without --env and --demos, imitates a shipped demonstration."""

    env: str | None = None
    """Gymnasium id of the task; also module:Id-v0, which imports the module first."""
    demos: str | None = None
    """Demonstrations: the name of a shipped one, or the path of an .npz file."""
    episodes: int | None = None
    """Use this many episodes of them, chosen by the seed; all by default."""
    steps: int | None = None
    """Environment steps, online (default 10,000)."""
    seed: int = 0
    """Decides everything random, and which episodes are used."""
    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    offline: bool = False
    """Learn from the demonstrations alone; no environment is touched for training."""
    updates: int | None = None
    """Updates, offline (default 40,000)."""
    replay_data: str | None = None
    """Other, non-expert data for the replay buffer, in any format of --demos."""
    eval_env: str | None = None
    """Evaluate in this environment instead of --env."""
    eval_every: int = 1_000
    """Steps (offline: updates) between evaluations."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""
    replay_capacity: int = 1_000_000
    """Rows of the replay buffer."""
    dones_are: Literal["truncated", "terminated"] | None = None
    """What `dones` means in the authors' file format, which does not tell."""
    threads: int | None = None
    """Cores to use; all by default. For several runs side by side, 1 for each is the best use of them."""
    quiet: bool = False
    """Show no progress."""


def train_command(args: list[str]) -> int:
    """`valuedice train [ALGORITHM] ...`."""
    name = "value-dice"
    if args and not args[0].startswith("-"):
        name, *args = args
        if name not in ALGORITHMS:
            raise InputError(f"no algorithm {name!r}; there are: {', '.join(ALGORITHMS)}")
    kind = ALGORITHMS[name]
    flags = Annotated[kind, tyro.conf.arg(name="")]
    options = make_dataclass(
        "TrainOptions",
        [("algorithm", flags, field(default_factory=kind))],
        bases=(TrainOptions,),
        frozen=True,
        namespace={"__doc__": TrainOptions.__doc__},
    )
    return run_training(parse(options, f"train {name}", args))


def run_training(options: Any) -> int:
    """Loads what the options name, trains, and says what came of it."""
    from valuedice.demos import load_demos
    from valuedice.machine import keep_compiled
    from valuedice.train import train

    if options.threads is not None and options.threads < 1:
        raise InputError(f"threads is {options.threads}; it must be at least 1")
    keep_compiled()

    env, ref, episodes = options.env, options.demos, options.episodes
    steps, updates = options.steps, options.updates
    if env is None and ref is None and not options.offline:
        env, ref = FIRST_RUN["env"], FIRST_RUN["demos"]
        steps = FIRST_RUN["steps"] if steps is None else steps
        episodes = FIRST_RUN["episodes"] if episodes is None else episodes
    if ref is None:
        raise InputError("no demonstrations given; name some with --demos FILE.npz")
    if env is None and not options.offline:
        raise InputError("no environment given; name one with --env ID, or train without one with --offline")
    if updates is not None and not options.offline:
        raise InputError("--updates is for offline training; add --offline, or give --steps")
    if steps is not None and options.offline:
        raise InputError("--steps is for training in an environment; give --updates with --offline")
    demos = load_demos(ref, episodes, options.seed, options.dones_are)
    extra = None
    if options.replay_data is not None:
        extra = load_demos(options.replay_data, dones_are=options.dones_are)
    out = options.out or default_folder(env or options.eval_env or Path(ref).stem, options.seed)
    run = train(
        options.algorithm,
        demos,
        None if options.offline else env,
        steps=steps,
        updates=updates,
        seed=options.seed,
        out=out,
        eval_env=options.eval_env or env,
        eval_every=options.eval_every,
        eval_episodes=options.eval_episodes,
        replay_data=extra,
        replay_capacity=options.replay_capacity,
        quiet=options.quiet,
    )
    if not options.quiet:
        report(run, env or options.eval_env)
    return 0


FIRST_RUN: dict[str, Any] = {"env": "CartPole-v1", "demos": "cartpole", "episodes": 1, "steps": 3_000}
"""What `valuedice train` does without options."""


def default_folder(task: str, seed: int) -> Path:
    """A folder under runs/ that does not exist yet."""
    name = f"{task.replace(':', '-').replace('/', '-')}-seed{seed}"
    number = 1
    while (folder := Path("runs") / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


def report(run: Any, env: str | None) -> None:
    """The return next to the expert's, and where to look next."""
    last = run.metrics[-1]
    lines = [f"policy: {run.out}/policy.safetensors"]
    if last["return_mean"] is not None:
        expert = "unknown" if last["expert_return"] is None else f"{last['expert_return']:.1f}"
        lines.insert(0, f"return: {last['return_mean']:.1f} ± {last['return_std']:.1f}, expert: {expert}")
    lines += [
        f"divergence from the expert (KL estimate): {last['kl_estimate']:.3g}",
        f"curves: {run.out}/metrics.csv, or tensorboard --logdir {run.out} (pip install tensorboard)",
    ]
    if env is not None:
        lines.append(f"next:   valuedice evaluate {run.out} --env {env} --episodes 10")
    say("\n".join(lines))
