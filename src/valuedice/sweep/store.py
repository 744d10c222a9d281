"""Where a sweep keeps its runs: a folder, or an fsspec URL such as s3://bucket/sweep.

A folder is shared by all who work on the sweep, so runs are made in place. At a URL files cannot be changed in
place: a run is made in a scratch folder, which is packed and sent there from time to time, and unpacked where the
run goes on.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import tempfile
import time
import warnings
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from valuedice.errors import InputError
from valuedice.system.files import file_system, write_whole, writing_to
from valuedice.training.run_folder import lock

RUN_FILES = ("config.json", "progress.json", "metrics.csv", "policy.safetensors", "policy-last.safetensors")
RING_FILES = ("ring.json", "ring.png", "comparison.png", "comparison.json")
SMALL = (*RUN_FILES, *RING_FILES, "summary.json")
"""Files of a run that others read; at a URL these stand beside the packed run. The summary arrives last."""
PACKED = "run.tar"
QUIET_SECONDS = 30.0
"""A sweep that has not been heard of for so long has died."""
SEND_SECONDS = 60.0
"""Seconds between two packed copies of a run that goes on."""


class Place(Protocol):
    """The folder in which one run works."""

    folder: Path

    def send(self, *, now: bool = False) -> None:
        """Called when the run is at rest: after an evaluation, and at its end (`now`)."""
        ...


class Store(Protocol):
    """Small files by name, and a place to work in for each run."""

    def read(self, name: str) -> str | None:
        """The text of a file; None if it does not exist."""
        ...

    def write(self, name: str, text: str) -> None:
        """Writes a file whole."""
        ...

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        ...

    def work(self, name: str) -> AbstractContextManager[Place]:
        """A context that gives the `Place` of a run."""
        ...

    def locked(self) -> AbstractContextManager[object]:
        """Held while a sweep goes on, where the store can."""
        ...


class FolderStore:
    """A folder of this machine, or one that all machines share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> str | None:
        """The text of a file."""
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{self.path / name} cannot be read ({error}); remove it or choose another `out`"
            ) from None

    def write(self, name: str, text: str) -> None:
        """Writes a file whole."""
        with writing_to(self.path):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / name, text)

    def remove(self, name: str) -> None:
        """Removes a file."""
        with writing_to(self.path):
            (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def work(self, name: str) -> Generator[Place]:
        """The run's own folder: nothing has to be sent."""
        yield InPlace(self.path / name)

    def locked(self) -> AbstractContextManager[object]:
        """Refuses a second sweep in the same folder."""
        with writing_to(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            return lock(self.path)


class InPlace:
    """A run that is made where it is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def send(self, *, now: bool = False) -> None:
        """Everything is there already."""


class UrlStore:
    """An fsspec URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files, self.root = file_system(url)

    def read(self, name: str) -> str | None:
        """The text of a file."""
        with self._translated():
            try:
                return self.files.cat_file(f"{self.root}/{name}").decode()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, text: str) -> None:
        """Writes a file whole."""
        self._put(name, text.encode())

    def remove(self, name: str) -> None:
        """Removes a file."""
        with self._translated():
            if self.files.exists(f"{self.root}/{name}"):
                self.files.rm_file(f"{self.root}/{name}")

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Each kind of store has exceptions of its own."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InputError(f"cannot use {self.url} ({reason}); check it, or choose another `out`") from None

    def _put(self, name: str, content: bytes) -> None:
        path = f"{self.root}/{name}"
        with self._translated():
            self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
            # Renamed at the end: on a disk, a reader never sees half a file. Object stores show whole objects only.
            self.files.pipe_file(f"{path}.partial", content)
            self.files.mv(f"{path}.partial", path)

    def locked(self) -> AbstractContextManager[object]:
        """A URL cannot be locked; a sweep that goes on shows in its status."""
        status = as_dict(self.read("status.json"))
        if not status.get("over", True) and time.time() - float(status.get("time") or 0) < QUIET_SECONDS:
            raise InputError(f"another sweep is using {self.url}; wait for it, or half a minute if it has died")
        return nullcontext()

    @contextmanager
    def work(self, name: str) -> Generator[Place]:
        """A scratch folder with the last packed copy of the run."""
        scratch = Path(tempfile.mkdtemp(prefix="valuedice-"))
        try:
            folder = scratch / name
            folder.mkdir()
            packed = f"{self.root}/{name}/{PACKED}"
            if self.files.exists(packed):
                with tarfile.open(fileobj=io.BytesIO(self.files.cat_file(packed))) as archive:
                    archive.extractall(folder, filter="data")
            yield Packed(self, name, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def send(self, name: str, folder: Path) -> None:
        """Packs the run and sends it, then the files that others read."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            archive.add(folder, arcname=".", filter=lambda entry: None if entry.name.endswith("/.lock") else entry)
        self._put(f"{name}/{PACKED}", content.getvalue())
        for file in SMALL:
            if (folder / file).exists():
                self._put(f"{name}/{file}", (folder / file).read_bytes())


class Packed:
    """A run that is made in a scratch folder and kept at a URL."""

    def __init__(self, store: UrlStore, name: str, folder: Path) -> None:
        self.store, self.name, self.folder = store, name, folder
        self._due = time.monotonic() + SEND_SECONDS

    def send(self, *, now: bool = False) -> None:
        """Sends a copy, if it is time for one."""
        if not now and time.monotonic() < self._due:
            return
        try:
            self.store.send(self.name, self.folder)
        except InputError as error:
            if now:
                raise
            # The run goes on: the next copy replaces this one.
            warnings.warn(f"a copy of the run was not sent: {error}", stacklevel=2)
        self._due = time.monotonic() + SEND_SECONDS


def as_dict(text: str | None) -> dict[str, Any]:
    """JSON that should be an object; anything else, such as a damaged file, is nothing."""
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def store_of(out: str) -> Store:
    """The store that a path or URL names."""
    return UrlStore(out) if "://" in out else FolderStore(Path(out).absolute())
