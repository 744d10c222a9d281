"""Files that are whole or not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: bytes | str) -> None:
    """Under a temporary name, flushed to the disk, then renamed: a crash leaves the old file or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            sync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, content: Any) -> None:
    """Readable by people."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def sync(descriptor: int) -> None:
    """Waits until the disk has it."""
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Makes names last: created, renamed and removed ones."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
