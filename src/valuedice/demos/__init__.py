"""Expert demonstrations: load them, select episodes, normalise, inspect, save."""

from __future__ import annotations

import os

from valuedice.demos import npz
from valuedice.demos.episodes import Demos, Episode

__all__ = ["Demos", "Episode", "load_demos"]


def load_demos(
    ref: str | os.PathLike[str],
    episodes: int | None = None,
    seed: int = 0,
    dones_are: npz.DonesAre | None = None,
    check: bool = True,
) -> Demos:
    """The demonstrations at `ref`, the path of an .npz file; all of them, or `episodes` chosen by `seed`.

    `dones_are` says whether `dones` of the authors' dialect mean "truncated" or "terminated".
    `check=False` lets NaN and infinity pass, so that `inspect` can report them; do not train on the result.
    """
    demos = npz.read(ref, dones_are, check)
    return demos if episodes is None else demos.select(episodes, seed)
