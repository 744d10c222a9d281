"""`valuedice sweep`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from valuedice.commands import parse, say
from valuedice.errors import InputError
from valuedice.sweep.board import Board
from valuedice.sweep.cell import Cell
from valuedice.sweep.loop import Backend, run_sweep
from valuedice.sweep.plan import About, checked_data, planned, write_sweep
from valuedice.sweep.store import FolderStore, as_dict, store_of
from valuedice.sweep.suite import Overrides, Suite, load_suite, shipped_suites
from valuedice.sweep.table import Screen, clock, status
from valuedice.sweep.worker import run_request
from valuedice.system.machine import cores

FAILED = 1
"""Exit code of a sweep of which some runs failed."""


@dataclass(frozen=True)
class SweepOptions:
    """Make a grid of runs: a suite names tasks, algorithms with settings, demonstrations and seeds. Finished runs
    are skipped and interrupted ones resumed exactly, so the same command can be given again at any time."""

    suite: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE", help_behavior_hint="")] = None
    """A .toml file, or shipped: ablations, cloning, dual-dice, frontier, library, offline, paper-1, paper-10,
    quick, ring, subsampled."""
    demos: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder of demonstrations, with a file TASK.npz for each task. By default the suite's own or shipped ones."""
    seeds: Annotated[str | None, tyro.conf.arg(metavar="SEEDS", help_behavior_hint="")] = None
    """Seeds instead of the suite's: 0-2, or 0,3,5."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Environment steps of each online run, instead of the suite's."""
    updates: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Updates of each offline run, instead of the suite's."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PATTERN", help_behavior_hint="")] = ()
    """Make only the runs whose names match one of these patterns, for example 'Hopper*' '*seed0'."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: one for each core)")] = (
        None
    )
    """Runs side by side on this machine."""
    threads: int = 1
    """Cores for each run."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Use a Ray cluster: its address, auto for the one of this machine, or local for a new one."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/SUITE)")] = None
    """Folder of the sweep, or an fsspec URL such as s3://bucket/sweep."""
    extend: bool = False
    """Add runs to a sweep that has begun, or make its runs longer."""
    dry_run: bool = False
    """Show the grid and an estimate of the hours, and run nothing."""
    status: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Show how far the sweep in this folder is."""
    quiet: bool = False
    """Show no progress."""


def sweep_command(args: list[str]) -> int:
    """`valuedice sweep`."""
    options: SweepOptions = parse(SweepOptions, "sweep", args)
    if options.status is not None:
        return show_status(options.status)
    if options.suite is None:
        raise InputError(f"no suite given; name a .toml file, or one of: {', '.join(shipped_suites())}")
    for name in ("jobs", "threads", "steps", "updates"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"`{name}` is {value}; it must be at least 1")
    if options.jobs is not None and options.ray not in (None, "local"):
        raise InputError("`jobs` is for this machine; a cluster runs as many as it has cores for: omit `jobs`")
    suite = load_suite(options.suite)
    cells = suite.cells(Overrides(options.demos, options.seeds, options.steps, options.updates))
    if options.dry_run:
        return show_grid(suite, matching(cells, options.only), options)
    return make_runs(suite, cells, options, f"valuedice sweep {shlex.join(args)}")


def make_runs(suite: Suite, cells: list[Cell], options: SweepOptions, again: str) -> int:
    """Makes the runs, and says how they ended."""
    matching(cells, options.only)
    shown = options.out or f"runs/{suite.name}"
    out = shown if "://" in shown else str(Path(shown).absolute())
    store = store_of(out)
    about = About(suite.name, suite.description, options.threads, checked_data(cells))
    cells = planned(store, out, about, cells, options.extend)
    backend = backend_of(options, out)
    try:
        with store.locked():
            write_sweep(store, about, cells)
            board = Board(store, cells)
            chosen = [cell.name for cell in matching(cells, options.only)]
            failed = run_sweep(board, chosen, backend, suite.name, Screen(board, quiet=options.quiet), again)
    finally:
        backend.close()
    if not options.quiet:
        for name in failed:
            say(f"{board.entries[name].state}: {name}: {board.entries[name].error}")
        say(f"{len(chosen) - len(failed)} of {len(chosen)} runs are finished, in {shown}")
        into = "report" if "://" in shown else f"{shown}/report"
        say(f"next:   valuedice report {shlex.quote(shown)} --out {shlex.quote(into)}")
    return FAILED if failed else 0


def backend_of(options: SweepOptions, out: str) -> Backend:
    """This machine or a cluster."""
    if options.ray is not None:
        from valuedice.sweep.cluster import RayBackend

        return RayBackend(out, options.ray, options.threads, options.jobs)
    from valuedice.sweep.local import LocalBackend

    return LocalBackend(out, options.jobs, options.threads)


def matching(cells: list[Cell], patterns: tuple[str, ...]) -> list[Cell]:
    """The cells that the user asks for."""
    found = [cell for cell in cells if not patterns or any(fnmatch(cell.name, pattern) for pattern in patterns)]
    if not found:
        raise InputError(f"no run matches {' '.join(patterns)}; their names look like {cells[0].name}")
    return found


def show_grid(suite: Suite, cells: list[Cell], options: SweepOptions) -> int:
    """What would run, and for how long."""
    from valuedice.sweep.estimate import estimate

    seconds = estimate(cells)
    say(f"{suite.name}: {suite.description}")
    for cell in cells:
        say(f"{cell.name}: {cell.about()}, about {clock(seconds[cell.name])}")
    total = sum(seconds.values())
    jobs = options.jobs or max(1, cores() // options.threads)
    say(f"{len(cells)} runs, {total / 3600:.1f} core hours: about {clock(total / jobs)} with {jobs} at once here")
    return 0


def show_status(out: str) -> int:
    """The table of a sweep, from any shell."""
    store = store_of(out)
    content = as_dict(store.read("status.json"))
    if not content:
        missing = isinstance(store, FolderStore) and not store.path.exists()
        raise InputError(
            f"{out} {'does not exist' if missing else 'holds no sweep that has begun'}; name its folder"
        )
    try:
        found, note = status(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{out}/status.json has unexpected content; was it made by another version?") from None
    console = Console(file=sys.stdout)
    # Whatever reads a pipe wants a line for each run.
    Console(file=sys.stdout, width=None if console.is_terminal else 160).print(found)
    if note:
        say(note)
    return 0


def run_command(args: list[str]) -> int:
    """`valuedice sweep-run REQUEST`: one run, in a process that the sweep starts."""
    run_request(" ".join(args))
    return 0
