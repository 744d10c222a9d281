"""Checkpoints on disk: two slots that take turns, each complete in itself.

A slot holds `state`, one file with a checksum that holds everything but the replay rows, and `rows-N` files that
only grow: a checkpoint appends the rows that its slot lacks. Nothing is rewritten. After a crash, bytes beyond the
length that `state` records are ignored, and damage to one slot does not affect the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import textwrap
import warnings
import zlib
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors.numpy import load, save

from valuedice.errors import InputError
from valuedice.replay import Replay
from valuedice.system.files import sync, sync_folder, write_whole

FORMAT = 1
SLOTS = ("a", "b")
SEGMENT_ROWS = 65_536
"""Rows of a file; rows too old for the buffer are removed by whole files."""


Arrays = dict[str, np.ndarray]
Facts = dict[str, Any]
"""What JSON can hold."""


class Part(Protocol):
    """Something that a checkpoint holds."""

    def save(self) -> tuple[Arrays, Facts]:
        """What `restore` needs."""
        ...

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Continues from what `save` returned."""
        ...


class DamageError(Exception):
    """A slot cannot be used; the message says why."""


@dataclass(frozen=True)
class Segment:
    """A file of replay rows."""

    first: int
    """Number of its first row, also in its name."""
    rows: int
    checksum: int

    @property
    def stop(self) -> int:
        """Number after its last row."""
        return self.first + self.rows

    def path(self, slot: Path) -> Path:
        """Where it is."""
        return slot / f"rows-{self.first}"


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read and found intact."""

    number: int
    arrays: Arrays
    facts: Facts
    slot: Path
    segments: list[Segment]

    def fill(self, replay: Replay) -> None:
        """Fills the replay buffer, one file at a time."""
        if self.facts["width"] != replay.width:
            raise InputError(
                f"the checkpoint has rows of {self.facts['width']} numbers instead of {replay.width}: another "
                "version of valuedice wrote it; resume with that one, or start a new run"
            )
        oldest = max(0, self.facts["replay_count"] - replay.capacity)
        for segment in self.segments:
            rows = np.fromfile(segment.path(self.slot), "<f4", segment.rows * replay.width)
            skip = max(0, oldest - segment.first)
            replay.restore(segment.first + skip, rows.reshape(segment.rows, replay.width)[skip:])


class Checkpoints:
    """The checkpoints of one run, in an existing folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._next = 0
        self._segments: dict[str, list[Segment]] = {slot: [] for slot in SLOTS}

    @property
    def begun(self) -> bool:
        """Whether any checkpoint was completed."""
        # Not the method of Path, which raises on a name that is too long.
        return any(os.path.exists(self.folder / name / "state") for name in SLOTS)

    def save(self, arrays: Arrays, facts: Facts, replay: Replay | None) -> None:
        """Writes to the slot of the older checkpoint; the newer one stays until this one is complete."""
        name = SLOTS[self._next % len(SLOTS)]
        slot = self.folder / name
        slot.mkdir(exist_ok=True)
        segments = [] if replay is None else append_rows(slot, self._segments[name], replay)
        about = facts | {
            "number": self._next,
            "replay_count": 0 if replay is None else replay.count,
            "width": 0 if replay is None else replay.width,
            "segments": [[part.first, part.rows, part.checksum] for part in segments],
        }
        content = save(arrays, {"format": str(FORMAT), "facts": json.dumps(about)})
        write_whole(slot / "state", hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        self._segments[name] = segments
        self._next += 1
        kept = {part.path(slot) for part in segments}
        for path in slot.glob("rows-*"):
            if path not in kept:
                path.unlink()

    def load(self) -> Saved | None:
        """The newest intact checkpoint; None if none was completed. Warns about a damaged one."""
        found: list[Saved] = []
        problems: list[str] = []
        for name in SLOTS:
            try:
                saved = read_slot(self.folder / name)
            except DamageError as error:
                problems.append(f"{self.folder / name} is damaged ({error})")
                continue
            if saved is not None:
                found.append(saved)
                self._segments[name] = saved.segments
        if not found and problems:
            raise InputError(f"no checkpoint can be used: {'; '.join(problems)}; start a new run in another folder")
        if not found:
            return None
        newest = max(found, key=lambda saved: saved.number)
        self._next = newest.number + 1
        if problems:
            warnings.warn(f"{problems[0]}; the other checkpoint is used", stacklevel=2)
        return newest


def append_rows(slot: Path, segments: list[Segment], replay: Replay) -> list[Segment]:
    """Writes the rows that the slot lacks, and returns the files that now hold the buffer."""
    segments = [part for part in segments if part.stop > replay.oldest]
    start = segments[-1].stop if segments else replay.oldest
    while start < replay.count:
        if not segments or segments[-1].rows >= SEGMENT_ROWS:
            segments.append(Segment(start, 0, 0))
        last = segments[-1]
        stop = min(replay.count, last.first + SEGMENT_ROWS)
        content = replay.export(start, stop).astype("<f4", copy=False).tobytes()
        path = last.path(slot)
        length = last.rows * replay.width * 4
        with path.open("r+b" if length else "wb") as file:
            # A crash may have left more than the last complete checkpoint records.
            file.truncate(length)
            file.seek(length)
            file.write(content)
            file.flush()
            sync(file.fileno())
        segments[-1] = Segment(last.first, stop - last.first, zlib.crc32(content, last.checksum))
        start = stop
    sync_folder(slot)
    return segments


def read_slot(slot: Path) -> Saved | None:
    """A slot whose checksums all agree; None if nothing was completed there."""
    path = slot / "state"
    try:
        if not path.exists():
            return None
        checksum, _, content = path.read_bytes().partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != checksum:
            raise DamageError("the checksum of state differs")
        about = read_about(content)
        numbers = [about["number"], about["width"], about["replay_count"], *chain(*about["segments"])]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise DamageError("state does not hold counts")
        segments = [Segment(*part) for part in about["segments"]]
        if any(before.stop != after.first for before, after in pairwise(segments)):
            raise DamageError("rows are missing")
        for part in segments:
            check_segment(part.path(slot), part, about["width"])
        return Saved(about["number"], load(content), about, slot, segments)
    except (DamageError, InputError):
        raise
    except OSError as error:
        raise DamageError(f"{error.strerror}: {error.filename}") from None
    except Exception as error:  # what a valid checksum covers may still be anything
        reason = textwrap.shorten(str(error), 200, placeholder="…") or type(error).__name__
        raise DamageError(f"state has unexpected content ({reason})") from None


def read_about(content: bytes) -> Facts:
    """The facts, which are text in the safetensors header."""
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size])["__metadata__"]
    if (form := int(metadata["format"])) > FORMAT:
        raise InputError(
            f"the checkpoint has format {form}, this version reads up to {FORMAT}; "
            "resume with the version of valuedice that wrote it, or a newer one"
        )
    return json.loads(metadata["facts"])


def check_segment(path: Path, segment: Segment, width: int) -> None:
    """Compares the checksum of the recorded rows."""
    left, checksum = segment.rows * width * 4, 0
    with path.open("rb") as file:
        while left:
            block = file.read(min(left, 1 << 20))
            if not block:
                raise DamageError(f"{path.name} is cut short")
            checksum, left = zlib.crc32(block, checksum), left - len(block)
    if checksum != segment.checksum:
        raise DamageError(f"the checksum of {path.name} differs")
