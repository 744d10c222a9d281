"""Demonstrations in .npz files: reads three formats, which their keys tell apart; writes Gymnasium's."""

from __future__ import annotations

import os
import textwrap
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from valuedice.demos.archive import check_sizes, read_array
from valuedice.demos.arrays import (
    as_actions,
    as_flags,
    as_matrix,
    as_vector,
    check_rows,
    describe,
    first_nonfinite,
    gaps,
)
from valuedice.demos.episodes import Demos, DonesAre, Episode
from valuedice.errors import InputError
from valuedice.system.files import write_whole, writing_to

MANY_EPISODES = 20_000
"""A file may contain more episodes only if it has at least one byte for each."""


@dataclass(frozen=True)
class Format:
    """A format is known by its required keys; it may have the optional ones too."""

    title: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ("rewards",)


GYMNASIUM = Format("Gymnasium's", ("observations", "actions", "next_observations", "terminations", "truncations"))
AUTHORS = Format("the ValueDICE authors'", ("states", "actions", "next_states", "dones"))
D4RL = Format("D4RL's", ("observations", "actions", "terminals"), ("timeouts", "next_observations", "rewards"))
FORMATS = (GYMNASIUM, AUTHORS, D4RL)


def read(path: str | os.PathLike[str], dones_are: DonesAre | None = None, check: bool = True) -> Demos:
    """Reads all episodes of a file. `check=False` accepts NaN and infinity, for `inspect` to report.

    `dones_are` says how episodes ended in the authors' format; the other formats say it themselves.
    """
    if dones_are not in (None, "truncated", "terminated"):
        raise InputError(f'`dones_are` is {dones_are!r}; it must be "truncated" or "terminated"')
    kind, raw = _load(path)
    check_rows(f"{path}", raw)
    casts = {"actions": as_actions, "rewards": as_vector}
    casts |= dict.fromkeys(("states", "next_states", "observations", "next_observations"), as_matrix)
    arrays = {key: casts.get(key, as_flags)(f"{path}: {key}", array) for key, array in raw.items()}
    prefix = "states" if kind is AUTHORS else "observations"
    observations, next_observations = arrays[prefix], arrays.get(f"next_{prefix}")
    if next_observations is not None and next_observations.shape != observations.shape:
        raise InputError(
            f"{path}: {prefix} has {observations.shape[1]} columns, next_{prefix} "
            f"{next_observations.shape[1]}; store the same features in both"
        )

    if kind is GYMNASIUM:
        terminated, ends = arrays["terminations"], arrays["terminations"] | arrays["truncations"]
    elif kind is AUTHORS:
        terminated, ends = _ends_of_dones(path, arrays["dones"], dones_are)
    else:
        terminated, ends = _ends_of_d4rl(path, arrays)
    _check_count(path, int(ends.sum()))
    if check:
        _check_finite(path, arrays, ends)
    episodes = _split(observations, arrays["actions"], next_observations, arrays.get("rewards"), terminated, ends)
    if not episodes:
        raise InputError(f"{path}: no step has a known next observation; store next_observations too")
    return Demos.from_episodes(episodes, str(path), check)


def write(path: str | os.PathLike[str], demos: Demos) -> None:
    """Writes Gymnasium's format, whole or not at all: a failure leaves an old file as it was."""
    if demos.every > 1:
        raise InputError(
            f"{path}: a file holds whole episodes, and these hold 1 step in {demos.every}; save them whole, and "
            "give `subsample` when you load them"
        )
    ends = np.zeros(demos.rows, bool)
    ends[np.cumsum([len(episode) for episode in demos.episodes]) - 1] = True
    terminated = np.repeat([e.terminated for e in demos.episodes], [len(e) for e in demos.episodes])
    arrays: dict[str, Any] = {
        "observations": np.concatenate([e.observations for e in demos.episodes]),
        "actions": np.concatenate([e.actions for e in demos.episodes]),
        "next_observations": np.concatenate([e.next_observations for e in demos.episodes]),
        "terminations": ends & terminated,
        "truncations": ends & ~terminated,
    }
    rewards = [e.rewards for e in demos.episodes if e.rewards is not None]
    if rewards:
        arrays["rewards"] = np.concatenate(rewards)
    with writing_to(Path(path), "give a file name in a folder that exists and is writable"):
        write_whole(Path(path), lambda file: np.savez_compressed(file, **arrays))


def _load(path: str | os.PathLike[str]) -> tuple[Format, dict[str, np.ndarray]]:
    """The format of a file and its arrays; arrays under other keys are never read."""
    _check_kind(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            kind = next((kind for kind in FORMATS if set(kind.required) <= set(members)), None)
            known = [*kind.required, *kind.optional] if kind else []
            wanted = {key: members[key] for key in known if key in members}
            check_sizes(path, wanted.values())
            arrays = {key: read_array(archive, member) for key, member in wanted.items()}
    except InputError:
        raise
    except Exception as error:  # damaged bytes raise many kinds of errors in zipfile, zlib and numpy
        reason = textwrap.shorten(str(error), 200, placeholder="…") or type(error).__name__
        raise InputError(f"{path}: truncated or corrupt ({reason}); copy or download the file again") from error
    if kind is None:
        known = "; ".join(f"{kind.title} ({', '.join(kind.required)})" for kind in FORMATS)
        found = textwrap.shorten(", ".join(map(repr, members)), 500, placeholder=" …")
        raise InputError(
            f"{path}: its keys fit no known format; found {found or 'none'}; known are {known}; rename the arrays"
        )
    return kind, arrays


def _check_kind(path: str | os.PathLike[str]) -> None:
    """Refuses files that are not zip archives, by their first bytes; numpy takes unknown files for pickles."""
    if os.path.isdir(path):
        raise InputError(f"{path} is a directory; give the path of an .npz file")
    if not os.path.isfile(path):
        raise InputError(f"no demonstrations at {path}; give the path of an .npz file")
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        raise InputError(
            f"{path}: a pickle, which could run code when read; save its arrays with numpy.savez instead"
        )
    what = "empty" if not head else "one .npy array" if head.startswith(b"\x93NUMPY") else "another kind of file"
    raise InputError(f"{path}: not an npz archive ({what}); save the arrays with numpy.savez")


def _ends_of_dones(
    path: str | os.PathLike[str], dones: np.ndarray, dones_are: DonesAre | None
) -> tuple[np.ndarray, np.ndarray]:
    if dones_are is None:
        warnings.warn(
            f"{path}: dones do not distinguish termination from a time limit; ends count as time limits "
            "(set `dones_are` to truncated or terminated)",
            stacklevel=4,
        )
    return (dones if dones_are == "terminated" else np.zeros_like(dones)), dones


def _ends_of_d4rl(path: str | os.PathLike[str], arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    terminals = arrays["terminals"]
    if "timeouts" in arrays:
        return terminals, terminals | arrays["timeouts"]
    if "next_observations" not in arrays:
        raise InputError(
            f"{path}: without timeouts and next_observations, time limits are unknown; store one of the two"
        )
    breaks = gaps(arrays["observations"], arrays["next_observations"])
    return terminals, terminals | np.append(breaks, False)


def _check_count(path: str | os.PathLike[str], episodes: int) -> None:
    """Refuses more episodes than a file can record: a few compressed bytes can expand to millions of ends."""
    size = os.path.getsize(path)
    if episodes > max(MANY_EPISODES, size):
        raise InputError(
            f"{path}: {episodes:,} episodes in {size:,} bytes; mark only the last step of each episode as its end"
        )


def _check_finite(path: str | os.PathLike[str], arrays: dict[str, np.ndarray], ends: np.ndarray) -> None:
    for key, array in arrays.items():
        if (bad := first_nonfinite(array)) is not None:
            raise InputError(
                f"{path}: {key} holds {describe(array, bad)} (episode {ends[: bad[0]].sum()}, "
                "counted from 0); repair or drop that step"
            )


def _split(
    observations: np.ndarray,
    actions: np.ndarray,
    next_observations: np.ndarray | None,
    rewards: np.ndarray | None,
    terminated: np.ndarray,
    ends: np.ndarray,
) -> list[Episode]:
    """Splits rows after each end. Rows after the last end are an episode that the end of the recording cut."""
    stops = np.union1d(np.flatnonzero(ends) + 1, [len(ends)])
    episodes: list[Episode] = []
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        over = bool(terminated[stop - 1])
        if next_observations is not None:
            after = next_observations[start:stop]
        elif over:
            # The last s′ was not recorded. It becomes the absorbing state, so any value will do.
            after = np.concatenate([observations[start + 1 : stop], observations[stop - 1 : stop]])
        else:
            # The last s′ was not recorded, and the task did not end there: the row is dropped.
            stop -= 1
            after = observations[start + 1 : stop + 1]
        if stop > start:
            rows = slice(start, stop)
            reward = None if rewards is None else rewards[rows]
            episodes.append(Episode(observations[rows], actions[rows], after, reward, over))
    return episodes
