"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from valuedice.errors import InputError


@contextmanager
def writing_to(path: Path, advice: str = "choose another `out`") -> Generator[None]:
    """Turns a failed write into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {path} ({error.strerror or error}); {advice}") from None


def file_system(url: str) -> tuple[Any, str]:
    """The file system behind a URL such as s3://bucket/folder, and the folder's path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError(f"{url} needs a package that is not installed: pip install fsspec") from None
    try:
        files, root = url_to_fs(url)
        files.exists(root)
    except Exception as error:  # each kind of store has exceptions of its own
        reason = " ".join(str(error).split())
        raise InputError(f"cannot use {url} ({reason}); check the address and your access to it") from None
    return files, str(root).rstrip("/")


def write_whole(path: Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Writes a temporary file, flushes it to the disk and renames it: a crash leaves the old file or the new one.
    `content` may be a function that writes to an open file."""
    partial = path.parent / f".{path.name}.partial"
    try:
        with partial.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            # Python's own buffer is not yet in the file.
            file.flush()
            sync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, content: Any) -> None:
    """Writes indented JSON."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def sync(descriptor: int) -> None:
    """Waits until the file is on the disk."""
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Waits until a folder's entries are on the disk: new, renamed and removed ones."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
