"""`valuedice demos inspect`, `convert`, `collect` and `distance`."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from valuedice.commands import parse, say
from valuedice.demos import Demos, DonesAre
from valuedice.errors import InputError


@dataclass(frozen=True)
class InspectOptions:
    """Show what demonstrations hold: episodes, returns, ranges, and anything suspicious."""

    ref: Annotated[Positional[str | None], tyro.conf.arg(metavar="REF", help_behavior_hint="")] = None
    """The name of shipped demonstrations, or the path of an .npz file; without one, the shipped ones are listed."""
    env: Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="")] = None
    """Also check actions and observations against this environment."""
    dones_are: DonesAre | None = None
    """What `dones` means in the authors' file format."""


@dataclass(frozen=True)
class ConvertOptions:
    """Read demonstrations in any known format and write them in this library's own."""

    ref: Annotated[Positional[str], tyro.conf.arg(metavar="REF")]
    """The name of shipped demonstrations, or the path of an .npz file."""
    out: Annotated[Positional[Path], tyro.conf.arg(metavar="OUT")]
    """The .npz file to write."""
    episodes: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Only this many episodes, chosen by the seed; all by default."""
    seed: int = 0
    """Chooses the episodes."""
    dones_are: DonesAre | None = None
    """What `dones` means in the authors' file format."""


@dataclass(frozen=True)
class CollectOptions:
    """Record whole episodes of a policy."""

    policy: str
    """A policy file or run folder, package.module:function (observation → action), or "random"."""
    env: str
    """Gymnasium id."""
    episodes: int
    """Number of episodes."""
    out: Path
    """The .npz file to write."""
    seed: int = 0
    """Seed of the environment resets."""
    stochastic: bool = False
    """Sample actions of a policy file instead of taking the mean."""
    noise: float = 0.0
    """Noise on the actions: its standard deviation on actions scaled to [-1, 1], or the fraction of random ones if
    actions are discrete."""
    least_return: float = -inf
    """Leave out episodes with a lower return, such as falls, and record further ones in their place."""


@dataclass(frozen=True)
class DistanceOptions:
    """Measure how far the behaviour in one recording is from that in another, without rewards (energy distance)."""

    a: Annotated[Positional[str], tyro.conf.arg(metavar="A")]
    """The recording to measure: the name of shipped demonstrations, or the path of an .npz file."""
    b: Annotated[Positional[str], tyro.conf.arg(metavar="B")]
    """The reference, which sets the scale: likewise."""
    dones_are: DonesAre | None = None
    """What `dones` means in the authors' file format."""


def inspect_command(args: list[str]) -> int:
    """`valuedice demos inspect [REF]`."""
    options = parse(InspectOptions, "demos inspect", args)
    from valuedice.demos import load_demos, shipped_demos
    from valuedice.demos.inspect import format_report, format_shipped, inspect

    if options.ref is None:
        say(format_shipped({name: load_demos(name) for name in shipped_demos()}))
        return 0
    demos = load_demos(options.ref, dones_are=options.dones_are, check=False)
    spec, unfit = None, []
    if options.env is not None:
        from valuedice.envs.fit import differences
        from valuedice.envs.make import make_env, task_spec

        with closing(make_env(options.env)) as environment:
            spec = task_spec(environment, options.env)
        unfit = differences(demos, spec, options.env)
    report = inspect(demos, spec)
    say(format_report(replace(report, findings=[*unfit, *report.findings])))
    return 0


def convert_command(args: list[str]) -> int:
    """`valuedice demos convert REF OUT`."""
    options = parse(ConvertOptions, "demos convert", args)
    from valuedice.demos import load_demos

    return save_new(load_demos(options.ref, options.episodes, options.seed, options.dones_are), options.out)


def collect_command(args: list[str]) -> int:
    """`valuedice demos collect`."""
    options = parse(CollectOptions, "demos collect", args)
    refuse_existing(options.out)
    from valuedice.envs.recording import collect_demos

    arguments = asdict(options)
    out = arguments.pop("out")
    # A function of the user's own is found where the command is run.
    sys.path.insert(0, "")
    return save_new(collect_demos(**arguments), out)


def distance_command(args: list[str]) -> int:
    """`valuedice demos distance A B`."""
    options = parse(DistanceOptions, "demos distance", args)
    from valuedice.demos import load_demos
    from valuedice.energy import Reference

    recording, demos = (load_demos(ref, dones_are=options.dones_are) for ref in (options.a, options.b))
    reference = Reference(demos)
    found, floor = reference.distance(recording), reference.floor
    scale = "unknown: too few rows" if floor is None else f"{floor:.4g}"
    say(f"distance of {options.a} from {options.b}: {found:.4g} (noise floor of {options.b}: {scale})")
    return 0


def save_new(demos: Demos, out: Path) -> int:
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
