"""`valuedice train`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from valuedice.algorithms import ALGORITHMS, BC, DAC, GAIL, DualDICE
from valuedice.commands import parse, say, value_of
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
    preset: Literal["default", "paper"] = "default"
    """Settings to begin with: the algorithm's own, or those of the paper where these differ. Flags change them."""
    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this folder, exactly as if it had never stopped. Only --steps (offline: --updates) and
    how often it is evaluated and saved may be changed."""
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
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    quiet: bool = False
    """Show no progress."""


def train_command(args: list[str]) -> int:
    """`valuedice train [ALGORITHM] ...`."""
    name = None
    if args and not args[0].startswith("-"):
        name, *args = args
        if name not in ALGORITHMS:
            raise InputError(f"no algorithm {name!r}; there are: {', '.join(ALGORITHMS)}")
    folder = value_of("--resume", args)
    config = {} if folder is None else resumable(Path(folder), "train")
    begun = config.get("algorithm", name or "value-dice")
    if name not in (None, begun):
        raise InputError(f"{folder} is a run of {begun}, not of {name}; leave the algorithm away to resume it")
    name = begun
    kind = ALGORITHMS[name]
    flags = Annotated[kind, tyro.conf.arg(name="")]
    options = make_dataclass(
        "TrainOptions",
        [("algorithm", flags, field(default_factory=kind))],
        bases=(TrainOptions,),
        frozen=True,
        namespace={"__doc__": TrainOptions.__doc__},
    )
    if folder is not None:
        begun = config["command"].get("preset", "default")
        if value_of("--preset", args) not in (None, begun):
            raise InputError(f"{folder} was begun with --preset {begun}; resume it without --preset, or start anew")
        default = options(**as_begun(config, Path(folder), kind, TrainOptions))
    else:
        default = options(algorithm=preset(name, value_of("--preset", args)))
    return run_training(parse(options, f"train {name}", args, default))


def preset(name: str, wanted: str | None) -> Any:
    """An algorithm with the settings of a preset; an unknown one is left to the parser to refuse."""
    kind: Any = ALGORITHMS[name]
    if wanted != "paper":
        return kind()
    if not hasattr(kind, "paper"):
        why = "its defaults are the paper's" if name == "value-dice" else "the paper does not say its settings"
        raise InputError(f"{name} has no preset 'paper': {why}; leave --preset away")
    return kind.paper()


def resumable(folder: Path, command: str) -> dict[str, Any]:
    """The configuration of a run that this command began."""
    from valuedice.runs import check_format, command_of, read_config

    config = read_config(folder)
    check_format(folder, config)
    if command_of(config) != command:
        raise InputError(f"{folder} was begun by valuedice {command_of(config)}; resume it with that")
    known = {"train": ALGORITHMS, "expert": {"sac"}}[command]
    if config.get("algorithm") not in known or not isinstance(config.get("command"), dict):
        raise InputError(
            f"{folder} was not begun by valuedice {command}, or by an old version; resume it with what began it "
            "(from Python: train(…, resume=True)), or start anew"
        )
    return config


def as_begun(config: dict[str, Any], folder: Path, kind: Any, command: Any) -> dict[str, Any]:
    """The options with which a run was begun; a flag given now changes them, and is then refused or not."""
    options = {f.name: config["command"][f.name] for f in fields(command) if f.name in config["command"]}
    return options | {"algorithm": rebuilt(kind, config), "resume": folder, "out": folder}


def rebuilt(kind: Any, settings: dict[str, Any]) -> Any:
    """An algorithm from what `config.json` says of it, and what it contains likewise."""
    values: dict[str, Any] = {}
    for entry in fields(kind):
        if entry.name in settings:
            value = settings[entry.name]
            if is_dataclass(entry.default):
                value = rebuilt(type(entry.default), value)
            values[entry.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def run_training(options: Any) -> int:
    """Loads what the options name, trains, and says what came of it."""
    from valuedice.demos import load_demos
    from valuedice.train import algorithm_name, train

    check_machine(options)
    acts, learns_offline = options.algorithm.pace is not None, options.algorithm.learns_offline
    if options.offline and not learns_offline:
        raise InputError(
            f"{algorithm_name(options.algorithm)} cannot learn offline; name an environment with --env ID instead "
            "of --offline, or use value-dice or bc"
        )
    if options.env is None and options.demos is None and not options.offline:
        first = FIRST_RUNS.get(type(options.algorithm), FIRST_RUN)
        options = replace(options, **{k: v for k, v in first.items() if getattr(options, k) is None})
    env, steps, updates = options.env, options.steps, options.updates
    if options.demos is None:
        raise InputError(
            "no demonstrations given; name a file with --demos, or what is shipped (see valuedice demos inspect)"
        )
    if env is None and not options.offline and acts:
        instead = ", or train without one with --offline" if learns_offline else ""
        raise InputError(f"no environment given; name one with --env ID{instead}")
    if updates is not None and not options.offline and acts:
        instead = ", or add --offline" if learns_offline else ""
        raise InputError(f"--updates is for offline training; give --steps{instead}")
    if steps is not None and options.offline:
        raise InputError("--steps is for training in an environment; give --updates with --offline")
    demos = load_demos(options.demos, options.episodes, options.seed, options.dones_are)
    extra = None
    if options.replay_data is not None:
        extra = load_demos(options.replay_data, dones_are=options.dones_are)
    place = env or options.eval_env
    task = f"{place or Path(options.demos).stem}-{algorithm_name(options.algorithm)}"
    out = options.out or default_folder(task, options.seed)
    run = train(
        options.algorithm,
        demos,
        None if options.offline else env,
        steps=steps,
        updates=updates,
        seed=options.seed,
        out=out,
        resume=options.resume is not None,
        eval_env=options.eval_env or env,
        eval_every=options.eval_every,
        eval_episodes=options.eval_episodes,
        replay_data=extra,
        replay_capacity=options.replay_capacity,
        checkpoint_seconds=options.checkpoint_seconds,
        command=as_command(options, TrainOptions),
        quiet=options.quiet,
    )
    if not options.quiet:
        report(run, place)
    return 0


def check_machine(options: Any) -> None:
    """What every command that trains asks of the machine."""
    from valuedice.system.machine import keep_compiled

    if options.threads is not None and options.threads < 1:
        raise InputError(f"threads is {options.threads}; it must be at least 1")
    if options.resume is not None and options.out != options.resume:
        raise InputError(f"--out is {options.out}, but a resumed run stays in {options.resume}; leave --out away")
    keep_compiled()


def as_command(options: Any, command: Any) -> dict[str, Any]:
    """The options as `config.json` notes them, such that --resume works from any folder."""
    noted = {f.name: getattr(options, f.name) for f in fields(command) if f.name not in ("out", "resume")}
    for name in ("demos", "replay_data"):
        if noted.get(name) is not None and Path(noted[name]).is_file():
            noted[name] = str(Path(noted[name]).resolve())
    return noted


FIRST_RUN: dict[str, Any] = {"env": "HalfCheetah-v5", "demos": "halfcheetah", "episodes": 1, "steps": 10_000}
"""What `valuedice train` does without options."""

FIRST_RUNS: dict[type, dict[str, Any]] = {
    BC: {"env": "CartPole-v1", "demos": "cartpole", "updates": 3_000},
    DAC: {"env": "Pendulum-v1", "demos": "pendulum", "episodes": 5, "steps": 5_000},
    DualDICE: {"env": "MountainCarContinuous-v0", "demos": "mountaincar", "episodes": 3, "steps": 4_000},
    GAIL: {"env": "CartPole-v1", "demos": "cartpole", "steps": 50_000},
}
"""What the others do: within SAC actions are continuous, and on-policy learning takes more steps."""


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
    if last["kl_estimate"] is not None:
        lines.append(f"divergence from the expert (KL estimate): {last['kl_estimate']:.3g}")
    lines += [
        f"curves: {run.out}/metrics.csv, or tensorboard --logdir {run.out} (pip install tensorboard)",
    ]
    if env is not None:
        lines.append(f"next:   valuedice evaluate {run.out} --env {env} --episodes 10")
    say("\n".join(lines))
