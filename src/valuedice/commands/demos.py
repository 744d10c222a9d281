"""`valuedice demos inspect`, `convert` and `collect`."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from valuedice.commands import parse, say
from valuedice.errors import InputError


@dataclass(frozen=True)
class InspectOptions:
    """What demonstrations hold: episodes, returns, ranges, and findings that need a look."""

    ref: Positional[str | None] = None
    """The name of shipped demonstrations, or the path of an .npz file; without one, the shipped ones are listed."""
    env: str | None = None
    """Also check actions and observations against this environment."""
    dones_are: Literal["truncated", "terminated"] | None = None
    """What `dones` means in the authors' file format."""


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
    noise: float = 0.0
    """Disturb the actions: standard deviation (they span [-1, 1]), or share of random discrete ones."""


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
