"""Demonstrations in .npz files: three dialects in, told apart by their keys; Gymnasium's out; no pickles."""

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
from valuedice.system.files import write_whole

MANY_EPISODES = 20_000
"""A file may hold more of them only if it has a byte for each."""


@dataclass(frozen=True)
class Dialect:
    """The keys by which a dialect is known, and those that it may have besides."""

    title: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ("rewards",)


GYMNASIUM = Dialect("Gymnasium's", ("observations", "actions", "next_observations", "terminations", "truncations"))
AUTHORS = Dialect("the ValueDICE authors'", ("states", "actions", "next_states", "dones"))
D4RL = Dialect("D4RL's", ("observations", "actions", "terminals"), ("timeouts", "next_observations", "rewards"))


def read(path: str | os.PathLike[str], dones_are: DonesAre | None = None, check: bool = True) -> Demos:
    """All episodes of a file. `check=False` lets NaN and infinity pass, for `inspect` to report.

    `dones_are` says how the episodes of the authors' dialect ended; other dialects tell it themselves.
    """
    if dones_are not in (None, "truncated", "terminated"):
        raise InputError(f'dones_are is {dones_are!r}; say "truncated" or "terminated"')
    dialect, raw = _load(path)
    check_rows(f"{path}", raw)
    casts = {"actions": as_actions, "rewards": as_vector}
    casts |= dict.fromkeys(("states", "next_states", "observations", "next_observations"), as_matrix)
    arrays = {key: casts.get(key, as_flags)(f"{path}: {key}", array) for key, array in raw.items()}
    prefix = "states" if dialect is AUTHORS else "observations"
    observations, next_observations = arrays[prefix], arrays.get(f"next_{prefix}")
    if next_observations is not None and next_observations.shape != observations.shape:
        raise InputError(
            f"{path}: {prefix} has {observations.shape[1]} columns, next_{prefix} "
            f"{next_observations.shape[1]}; store the same features in both"
        )

    if dialect is GYMNASIUM:
        terminated, ends = arrays["terminations"], arrays["terminations"] | arrays["truncations"]
    elif dialect is AUTHORS:
        terminated, ends = _ends_of_dones(path, arrays["dones"], dones_are)
    else:
        terminated, ends = _ends_of_d4rl(path, arrays)
    _check_count(path, int(ends.sum()))
    if check:
        _check_finite(path, arrays, ends)
    episodes = _split(observations, arrays["actions"], next_observations, arrays.get("rewards"), terminated, ends)
    if not episodes:
        raise InputError(
            f"{path}: no episode has a step with a known next observation; store next_observations as well"
        )
    return Demos.from_episodes(episodes, str(path), check)


def write(path: str | os.PathLike[str], demos: Demos) -> None:
    """Writes Gymnasium's dialect, whole or not at all: a failure leaves an old file as it was."""
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
    try:
        write_whole(Path(path), lambda file: np.savez_compressed(file, **arrays))
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; give a file name in a folder that exists and is writable"
        ) from error


def _load(path: str | os.PathLike[str]) -> tuple[Dialect, dict[str, np.ndarray]]:
    """The dialect of a file and the arrays that belong to it; others are never even read."""
    _check_kind(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            dialect = next((d for d in (GYMNASIUM, AUTHORS, D4RL) if set(d.required) <= set(members)), None)
            known = [*dialect.required, *dialect.optional] if dialect else []
            wanted = {key: members[key] for key in known if key in members}
            check_sizes(path, wanted.values())
            arrays = {key: read_array(archive, member) for key, member in wanted.items()}
    except InputError:
        raise
    except Exception as error:  # damaged bytes fail in zipfile, zlib and numpy's parser in a dozen ways
        reason = textwrap.shorten(str(error), 200, placeholder="…") or type(error).__name__
        raise InputError(f"{path}: truncated or corrupt ({reason}); copy or download the file again") from error
    if dialect is None:
        known = "; ".join(f"{d.title} ({', '.join(d.required)})" for d in (GYMNASIUM, AUTHORS, D4RL))
        found = textwrap.shorten(", ".join(map(repr, members)), 500, placeholder=" …")
        raise InputError(
            f"{path}: keys of no known dialect; found {found or 'none'}; known are {known}; rename the arrays"
        )
    return dialect, arrays


def _check_kind(path: str | os.PathLike[str]) -> None:
    """Refuse what is not a zip archive by its first bytes; numpy calls anything unknown a pickle."""
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
    what = "empty" if not head else "one .npy array" if head.startswith(b"\x93NUMPY") else "no .npz file"
    raise InputError(f"{path}: not an npz archive ({what}); save the arrays with numpy.savez")


def _ends_of_dones(
    path: str | os.PathLike[str], dones: np.ndarray, dones_are: DonesAre | None
) -> tuple[np.ndarray, np.ndarray]:
    if dones_are is None:
        warnings.warn(
            f"{path}: `dones` does not tell termination from time limit; ends count as time limits "
            "(dones_are / --dones-are truncated or terminated says it)",
            stacklevel=4,
        )
    return (dones if dones_are == "terminated" else np.zeros_like(dones)), dones


def _ends_of_d4rl(path: str | os.PathLike[str], arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    terminals = arrays["terminals"]
    if "timeouts" in arrays:
        return terminals, terminals | arrays["timeouts"]
    if "next_observations" not in arrays:
        raise InputError(
            f"{path}: neither timeouts nor next_observations, so where a time limit ended an episode "
            "cannot be known; store one of the two"
        )
    breaks = gaps(arrays["observations"], arrays["next_observations"])
    return terminals, terminals | np.append(breaks, False)


def _check_count(path: str | os.PathLike[str], episodes: int) -> None:
    """Refuse episodes that are mere repetition: a few bytes of a compressed file can promise millions."""
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
    """Cut rows after each end. What follows the last end is an episode cut by the end of the recording."""
    stops = np.union1d(np.flatnonzero(ends) + 1, [len(ends)])
    episodes = []
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        over = bool(terminated[stop - 1])
        if next_observations is not None:
            after = next_observations[start:stop]
        elif over:
            # The last s′ was not recorded. It becomes the absorbing state, so that any value serves.
            after = np.concatenate([observations[start + 1 : stop], observations[stop - 1 : stop]])
        else:
            # The last s′ was not recorded, and a time limit does not end the task: the row says nothing.
            stop -= 1
            after = observations[start + 1 : stop + 1]
        if stop > start:
            rows = slice(start, stop)
            reward = None if rewards is None else rewards[rows]
            episodes.append(Episode(observations[rows], actions[rows], after, reward, over))
    return episodes
