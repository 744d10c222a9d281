"""The commands. A command's modules are imported when it is used, so that help is quick."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from valuedice import __version__
from valuedice.types import InputError

USAGE = """\
usage: valuedice COMMAND [OPTIONS]

Imitation learning from a few demonstrations, without rewards.

  train [value-dice]          learn a policy from demonstrations, online or offline
  evaluate RUN_OR_POLICY      returns of a policy in an environment
  demos inspect REF           what a demonstration file holds, and what is wrong with it
  demos convert REF OUT       write it in this library's own format
  demos collect               record demonstrations with a policy
  ring                        the paper's Ring MDP study, exactly: figure and numbers

  -h, --help                  this text; valuedice COMMAND --help for a command's options
  --version                   the version
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code says how it ended."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = show_warning
            return dispatch(args)
    except InputError as error:
        return fail(str(error))
    except KeyboardInterrupt:
        print("valuedice: interrupted", file=sys.stderr)  # noqa: T201
        return 130


def fail(message: str) -> int:
    """One line, exit code 2."""
    print(f"valuedice: error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return 2


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line, without the place in the code."""
    print(f"valuedice: warning: {' '.join(str(message).split())}", file=sys.stderr)  # noqa: T201


def say(text: str) -> None:
    """A command's result."""
    print(text)  # noqa: T201


def dispatch(args: list[str]) -> int:
    """Finds the command."""
    if not args or args[0] in ("-h", "--help"):
        say(USAGE)
        return 0
    if args[0] == "--version":
        say(f"valuedice {__version__}")
        return 0
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": train_command,
        "evaluate": evaluate_command,
        "ring": ring_command,
        "demos inspect": inspect_command,
        "demos convert": convert_command,
        "demos collect": collect_command,
    }
    name = " ".join(args[:2]) if args[0] == "demos" else args[0]
    if name not in commands:
        if name in ("demos", "demos -h", "demos --help"):
            say(USAGE)
            return 0
        return fail(f"no command {name!r}; there are: {', '.join(commands)}")
    return commands[name](args[len(name.split()) :])


def parse(kind: type[Any], name: str, args: list[str]) -> Any:
    """Options of a command by its dataclass; what tyro shows in a box becomes the one line that users rely on."""
    import tyro

    problem = io.StringIO()
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.SuppressFixed)
    try:
        with contextlib.redirect_stderr(problem):
            return tyro.cli(kind, prog=f"valuedice {name}", args=args, config=config)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(f"{unboxed(problem.getvalue())}; see valuedice {name} --help") from None


def unboxed(box: str) -> str:
    """The sentence inside tyro's box, without its frame and hints."""
    lines = [line.strip("│ ").strip() for line in box.splitlines() if line.startswith("│")]
    end = next((place for place, line in enumerate(lines) if line.startswith("──")), len(lines))
    return " ".join(lines[:end]).rstrip(".") or "bad options"


# --- train -----------------------------------------------------------------------------------------------------


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
    quiet: bool = False
    """Show no progress."""


def train_command(args: list[str]) -> int:
    """`valuedice train [ALGORITHM] ...`."""
    from dataclasses import make_dataclass

    import tyro

    from valuedice.algorithms import ALGORITHMS

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
    from valuedice.train import train

    env, ref, steps, updates = options.env, options.demos, options.steps, options.updates
    if env is None and ref is None and not options.offline:
        env, ref = FIRST_RUN["env"], FIRST_RUN["demos"]
        steps = FIRST_RUN["steps"] if steps is None else steps
    if ref is None:
        raise InputError("no demonstrations given; name some with --demos FILE.npz")
    if env is None and not options.offline:
        raise InputError("no environment given; name one with --env ID, or train without one with --offline")
    if updates is not None and not options.offline:
        raise InputError("--updates is for offline training; add --offline, or give --steps")
    if steps is not None and options.offline:
        raise InputError("--steps is for training in an environment; give --updates with --offline")
    demos = load_demos(ref, options.episodes, options.seed, options.dones_are)
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


FIRST_RUN: dict[str, Any] = {"env": "InvertedPendulum-v5", "demos": "inverted-pendulum", "steps": 5_000}


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


# --- the other commands ----------------------------------------------------------------------------------------


def evaluate_command(args: list[str]) -> int:
    """`valuedice evaluate RUN_OR_POLICY`."""
    from tyro.conf import Positional

    @dataclass(frozen=True)
    class EvaluateOptions:
        """Returns of a policy over whole episodes, with its mean action."""

        policy: Positional[Path]
        """A policy.safetensors file, or a run folder."""
        env: str | None = None
        """Gymnasium id; of a run folder, its own by default."""
        episodes: int = 10
        """How many."""
        seed: int = 0
        """Decides the resets."""
        stochastic: bool = False
        """Sample actions instead of taking the mean."""

    options = parse(EvaluateOptions, "evaluate", args)
    from valuedice.policy import load_policy

    policy = load_policy(options.policy)
    env = options.env or run_env(options.policy)
    from valuedice.evaluate import evaluate

    result = evaluate(policy, env, options.episodes, options.seed, deterministic=not options.stochastic)
    for number, (total, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        say(f"episode {number}: return {total:.1f}, {length} steps")
    say(f"return: {result.mean:.1f} ± {result.std:.1f} over {options.episodes} episodes of {env}")
    return 0


def run_env(path: Path) -> str:
    """The environment that a run folder was evaluated in."""
    from valuedice.runs import read_config

    env = read_config(path)["eval_env"] if (path / "config.json").is_file() else None
    if env is None:
        raise InputError("no environment given; name one with --env ID")
    return env


def inspect_command(args: list[str]) -> int:
    """`valuedice demos inspect REF`."""
    from tyro.conf import Positional

    @dataclass(frozen=True)
    class InspectOptions:
        """What demonstrations hold: episodes, returns, ranges, and findings that need a look."""

        ref: Positional[str]
        """The name of shipped demonstrations, or the path of an .npz file."""
        env: str | None = None
        """Also check actions and observations against this environment."""
        dones_are: Literal["truncated", "terminated"] | None = None
        """What `dones` means in the authors' file format."""

    options = parse(InspectOptions, "demos inspect", args)
    from valuedice.demos import load_demos
    from valuedice.demos.inspect import format_report, inspect

    demos = load_demos(options.ref, dones_are=options.dones_are, check=False)
    bounds: dict[str, Any] = {}
    if options.env is not None:
        from valuedice.envs import make_env, task_spec

        spec = task_spec(make_env(options.env), options.env)
        low, high = spec.first_action, spec.first_action + spec.action_size - 1
        bounds = {"low": low, "high": high} if spec.discrete else {"low": spec.low, "high": spec.high}
    say(format_report(inspect(demos, **bounds)))
    return 0


def convert_command(args: list[str]) -> int:
    """`valuedice demos convert REF OUT`."""
    from tyro.conf import Positional

    @dataclass(frozen=True)
    class ConvertOptions:
        """Write demonstrations of any known format in this library's own."""

        ref: Positional[str]
        """The name of shipped demonstrations, or the path of an .npz file."""
        out: Positional[Path]
        """The .npz file to write."""
        episodes: int | None = None
        """Only this many episodes, chosen by the seed."""
        seed: int = 0
        """Chooses the episodes."""
        dones_are: Literal["truncated", "terminated"] | None = None
        """What `dones` means in the authors' file format."""

    options = parse(ConvertOptions, "demos convert", args)
    from valuedice.demos import load_demos

    return save_new(load_demos(options.ref, options.episodes, options.seed, options.dones_are), options.out)


def collect_command(args: list[str]) -> int:
    """`valuedice demos collect`."""

    @dataclass(frozen=True)
    class CollectOptions:
        """Record whole episodes of a policy."""

        policy: str
        """A policy file or run folder, package.module:function (observation → action), or "random"."""
        env: str
        """Gymnasium id."""
        episodes: int
        """How many."""
        out: Path
        """The .npz file to write."""
        seed: int = 0
        """Decides the resets."""
        stochastic: bool = False
        """Sample actions of a policy file instead of taking the mean."""

    options = parse(CollectOptions, "demos collect", args)
    refuse_existing(options.out)
    from valuedice.collect import collect_demos

    arguments = asdict(options)
    out = arguments.pop("out")
    # A function of the user's own is found where the command is run.
    sys.path.insert(0, "")
    return save_new(collect_demos(**arguments), out)


def save_new(demos: Any, out: Path) -> int:
    """Writes demonstrations where nothing was before."""
    refuse_existing(out)
    demos.save(out)
    total = "" if demos.expert_return is None else f", mean return {demos.expert_return:.1f}"
    say(f"{out}: {len(demos)} episodes, {demos.rows} steps{total}")
    return 0


def refuse_existing(out: Path) -> None:
    """Nothing is overwritten."""
    if out.exists():
        raise InputError(f"{out} exists; choose another name, or remove it first")


def ring_command(args: list[str]) -> int:
    """`valuedice ring`."""

    @dataclass(frozen=True)
    class RingOptions:
        """The paper's Ring MDP: sparse and stochastic expert, with exact occupancies and divergence."""

        out: Path = Path("runs/ring")
        """Folder for ring.json and ring.png."""

    options = parse(RingOptions, "ring", args)
    from valuedice.ring import run_ring

    result = run_ring(options.out)
    least = min(max(row) for row in result["sparse"]["policy"])
    say(f"sparse expert: least probability of the chosen action over all 8 states: {least:.3f}")
    say(
        f"stochastic expert: KL {result['stochastic']['kl'][-1][1]:.2g} after {result['stochastic']['kl'][-1][0]} updates"
    )
    say(f"figure: {options.out / 'ring.png'}, numbers: {options.out / 'ring.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
