"""Expert demonstrations: load them, select episodes, normalise, inspect, save."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from valuedice.demos import npz
from valuedice.demos.episodes import Demos, DonesAre, Episode, Origin
from valuedice.errors import InputError

__all__ = ["Demos", "DonesAre", "Episode", "load_demos", "shipped_demos"]

LIBRARY = Path(__file__).parent / "library"


def shipped_demos() -> dict[str, Path]:
    """The demonstrations that come with the library, by name."""
    return {path.stem: path for path in sorted(LIBRARY.glob("*.npz"))}


def load_demos(
    ref: str | os.PathLike[str],
    episodes: int | None = None,
    seed: int = 0,
    dones_are: DonesAre | None = None,
    check: bool = True,
    *,
    subsample: int = 1,
) -> Demos:
    """Loads demonstrations: `ref` is a shipped name or the path of an .npz file. `episodes` of them are chosen by
    `seed`; all by default. Of each, every step is used, or one in `subsample`, from an offset chosen by `seed`.

    `dones_are` says whether dones in the authors' format mean "truncated" or "terminated".
    `check=False` accepts NaN and infinity, so that `inspect` can report them; do not train on the result.
    """
    shipped = shipped_demos()
    path: str | os.PathLike[str] = ref
    origin = Origin(os.path.abspath(ref), dones_are)
    if str(ref) in shipped and not os.path.isfile(ref):
        path, origin = shipped[str(ref)], Origin(str(ref), dones_are)
    elif not os.path.exists(ref):
        raise InputError(
            f"no demonstrations at {ref}; give the path of an .npz file, or a shipped name: {', '.join(shipped)}"
        )
    demos = replace(npz.read(path, dones_are, check), origin=origin)
    demos = demos if episodes is None else demos.select(episodes, seed)
    return demos.subsample(subsample, seed)
