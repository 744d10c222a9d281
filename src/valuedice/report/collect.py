"""Finds runs in what the user names: folders, the report's own files, and URLs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from valuedice.errors import InputError
from valuedice.report.compact import ROWS, RUNS, is_compact, read_compact
from valuedice.report.folders import MARKS, is_run, read_run, read_sweep
from valuedice.report.labels import labelled, telling_settings
from valuedice.report.records import Run, groups_of
from valuedice.report.ring import PICTURES, Ring, is_ring, read_ring
from valuedice.system.files import file_system

SWEEP = "sweep.json"
FILES = {*MARKS, SWEEP, ROWS, RUNS, "ring.json", "comparison.json", *PICTURES}
"""All that a report reads."""


@dataclass(frozen=True)
class Found:
    """Runs with where they were found, which tells apart runs of the same name."""

    run: Run
    place: PurePosixPath


@dataclass(frozen=True)
class Collection:
    """All that a report shows."""

    runs: tuple[Run, ...]
    rings: tuple[Ring, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know: runs that share a seed, for example."""


def collect(sources: Sequence[str], out: Path | None = None) -> Collection:
    """The runs of all sources, labelled; each run once. An earlier report in `out` is not a source by itself."""
    found: list[Found] = []
    rings: list[Ring] = []
    for source in sources:
        if "://" in source:
            with tempfile.TemporaryDirectory() as folder:
                above, _, name = source.rpartition("/")
                url = above if name in (ROWS, RUNS) else source
                copy = Path(folder) / (PurePosixPath(url.partition("://")[2]).name or "runs")
                fetch(url, copy)
                pieces = list(search(copy, None, source))
        else:
            pieces = list(search(Path(source), out, source))
        if not pieces:
            raise InputError(f"no runs in {source}; give run folders, folders of them, or a folder of a report")
        found += [piece for piece in pieces if isinstance(piece, Found)]
        rings += [piece for piece in pieces if isinstance(piece, Ring) and piece not in rings]
    runs = labelled(once(found))
    if all(run.status == "failed" and not run.rows for run in runs):
        raise InputError(f"no run can be shown; {runs[0].name} failed: {runs[0].error}")
    return Collection(tuple(runs), tuple(rings), (*shared_seeds(runs), *mixed_settings(runs)))


def search(root: Path, out: Path | None, source: str) -> Iterator[Found | Ring]:
    """What a folder or file holds."""
    if root.name in (ROWS, RUNS) and root.is_file():
        root = root.parent
        if not is_compact(root):
            raise InputError(f"{root} lacks {ROWS} or {RUNS}, which belong together")
    if root.is_file():
        raise InputError(f"{source} is a file; give a run folder, or {ROWS} of a report")
    if not root.is_dir():
        raise InputError(f"no folder {source}; give run folders, or folders of them")
    excluded = None if out is None or out.resolve() == root.resolve() else out.resolve()
    # A copy of what a URL holds is where the URL says.
    base = PurePosixPath(source.partition("://")[2] or Path(os.path.abspath(root)).as_posix())
    for path, folders, _ in os.walk(root):
        folder = Path(path)
        place = base / folder.relative_to(root).as_posix()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if folder.resolve() == excluded:
            folders.clear()
        elif (folder / SWEEP).is_file():
            cells = read_sweep(folder)
            # A ring has no seeds, and is found among the other folders.
            cells = {name: cell for name, cell in cells.items() if not is_ring(folder / name)}
            yield from (Found(read_run(folder / name, name, cell), place / name) for name, cell in cells.items())
            folders[:] = [name for name in folders if name not in cells]
        elif is_compact(folder):
            yield from (Found(run, place / run.name) for run in read_compact(folder))
        elif is_ring(folder):
            run, ring = read_ring(folder, place.name)
            yield Found(run, place)
            if ring is not None:
                yield ring
            folders.clear()
        elif is_run(folder):
            yield Found(read_run(folder, place.name), place)
            folders.clear()


def fetch(url: str, into: Path) -> None:
    """Copies what a report reads from a URL into a folder."""
    files, root = file_system(url)
    try:
        into.mkdir()
        for path in sorted(files.find(root)):
            inside = PurePosixPath(path.removeprefix(root).lstrip("/"))
            if inside.name in FILES and ".." not in inside.parts:
                (into / inside).parent.mkdir(parents=True, exist_ok=True)
                (into / inside).write_bytes(files.cat_file(path))
    # Each kind of store has errors of its own.
    except Exception as error:
        raise InputError(f"cannot read {url} ({type(error).__name__}: {error})") from None


def once(found: Iterable[Found]) -> list[Run]:
    """Each run once, under a name of its own."""
    kept: list[Found] = []
    for new in found:
        same = next((i for i, old in enumerate(kept) if old.place == new.place or is_same(old.run, new.run)), None)
        if same is None:
            kept.append(new)
        elif len(new.run.rows) > len(kept[same].run.rows):
            kept[same] = new
    names = [piece.run.name for piece in kept]
    for depth in (2, 3):
        twice = {name for name in names if names.count(name) > 1}
        longer = ["/".join(piece.place.parts[-depth:]) for piece in kept]
        names = [more if name in twice else name for name, more in zip(names, longer, strict=True)]
    again = [names[:place].count(name) for place, name in enumerate(names)]
    names = [f"{name} ({count + 1})" if count else name for name, count in zip(names, again, strict=True)]
    return [replace(piece.run, name=name) for piece, name in zip(kept, names, strict=True)]


def is_same(one: Run, other: Run) -> bool:
    """Whether two records are of one run: the same evaluations, or the same name and those of an earlier moment."""
    labels = [(run.algorithm, run.task, run.regime, run.seed) for run in (one, other)]
    if labels[0] != labels[1] or not one.task:
        return False
    if one.contestant and other.contestant and one.contestant != other.contestant:
        return False
    if one.rows == other.rows and one.rows:
        return True
    shorter, longer = sorted((one.rows, other.rows), key=len)
    return one.name.rpartition("/")[2] == other.name.rpartition("/")[2] and longer[: len(shorter)] == shorter


def shared_seeds(runs: Iterable[Run]) -> list[str]:
    """A note on each group in which two different runs have one seed."""
    seen: dict[tuple[object, ...], list[str]] = {}
    for run in runs:
        if run.rows and run.seed is not None:
            seen.setdefault((run.group, run.seed), []).append(run.name)
    return [
        f"{len(names)} different runs have the same labels and seed, and all of them count: {', '.join(names)}"
        for names in seen.values()
        if len(names) > 1
    ]


def mixed_settings(runs: Iterable[Run]) -> list[str]:
    """A note on each contestant whose runs of one task differ in more than their seeds. Sources made apart
    may use one name for different settings."""
    found: dict[str, list[str]] = {}
    for group, members in groups_of(runs).items():
        # A preset is a name for settings, and is compared as those.
        bare = [replace(run, settings={k: v for k, v in run.settings.items() if k != "preset"}) for run in members]
        found.setdefault(group.contestant, []).extend(telling_settings(bare))
    return [
        f"runs that count as {contestant} have different settings: {', '.join(dict.fromkeys(names))}"
        for contestant, names in found.items()
        if names
    ]
