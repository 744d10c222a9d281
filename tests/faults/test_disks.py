"""Disks that fill up or turn read-only, and folders that vanish: one line, and the last checkpoint stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGINT

import pytest
from conftest import Whole
from harness import Launcher, end_of, options, rows, same, saved, signalled, wait_until

Mount = Callable[..., None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts, undone at the end; where that is not allowed, the test is skipped."""
    places: list[Path] = []

    def mounted(*args: str, on: Path) -> None:
        tried = subprocess.run(["mount", *args, str(on)], capture_output=True, text=True, check=False)
        if tried.returncode:
            pytest.skip(f"needs the right to mount: {tried.stderr.strip()}")
        places.append(on)

    if shutil.which("mount") is None:
        pytest.skip("needs mount")
    yield mounted
    for place in reversed(places):
        subprocess.run(["umount", str(place)], capture_output=True, check=False)


def fill(path: Path) -> None:
    """Until the disk has nothing left."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_space(
    launcher: Launcher, whole: Whole, mount: Mount, tmp_path: Path
):
    reference, disk = whole("value-dice", "quick"), tmp_path / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", on=disk)
    out = disk / "run"
    process = launcher.start("train", *options("value-dice", "quick"), "--out", out)
    assert wait_until(process, lambda: rows(out) > 0)
    fill(disk / "filler")
    ended = end_of(process)
    assert ended.is_one_line()
    assert "No space left on device" in ended.said
    assert f"free some space, then go on with: valuedice train --resume {out}" in ended.said
    assert saved(out) is not None
    (disk / "filler").unlink()
    ended = launcher.run("train", "--resume", out)
    assert (ended.code, ended.said) == (0, "")
    assert same(out, reference)


@pytest.mark.faults
def test_a_folder_that_turns_read_only_is_one_line_and_the_run_goes_on_afterwards(
    launcher: Launcher, whole: Whole, mount: Mount, tmp_path: Path
):
    reference, out = whole("value-dice", "quick"), tmp_path / "run"
    process = launcher.start("train", *options("value-dice", "quick"), "--out", out)
    assert wait_until(process, lambda: rows(out) > 0)
    # Mounted over itself: a disk on which files are open cannot be made read-only.
    mount("--bind", str(out), on=out)
    mount("-o", "remount,bind,ro", on=out)
    during, again = end_of(process), launcher.run("train", "--resume", out)
    fresh = launcher.run("train", *options("value-dice", "quick"), "--out", out / "new")
    for ended in (during, again, fresh):
        assert ended.is_one_line()
        assert "Read-only file system" in ended.said
    assert saved(out) is not None
    subprocess.run(["umount", str(out)], check=True)
    ended = launcher.run("train", "--resume", out)
    assert (ended.code, ended.said) == (0, "")
    assert same(out, reference)


@pytest.mark.faults
def test_a_folder_that_is_renamed_is_one_line_and_the_run_goes_on_under_the_new_name(
    launcher: Launcher, whole: Whole, tmp_path: Path
):
    reference, out, moved = whole("value-dice", "quick"), tmp_path / "run", tmp_path / "moved"
    process = launcher.start("train", *options("value-dice", "quick"), "--out", out)
    assert wait_until(process, lambda: rows(out) > 0)
    os.rename(out, moved)
    ended = end_of(process)
    assert ended.is_one_line()
    assert saved(moved) is not None
    ended = launcher.run("train", "--resume", moved)
    assert (ended.code, ended.said) == (0, "")
    assert same(moved, reference)


@pytest.mark.faults
def test_a_folder_that_is_deleted_is_one_line(launcher: Launcher, tmp_path: Path):
    out = tmp_path / "run"
    process = launcher.start("train", *options("value-dice", "quick"), "--out", out)
    assert wait_until(process, lambda: rows(out) > 0)
    # The run may write between two removals.
    while out.exists():
        shutil.rmtree(out, ignore_errors=True)
    ended = end_of(process)
    assert ended.is_one_line()
    assert "No such file or directory" in ended.said


@pytest.mark.faults
def test_a_compiled_program_cut_short_by_a_kill_is_compiled_again(launcher: Launcher, whole: Whole, tmp_path: Path):
    reference, out = whole("value-dice", "quick"), tmp_path / "run"
    cache = tmp_path / "cache"
    launcher.env["XDG_CACHE_HOME"] = str(cache)
    process = launcher.start("train", *options("value-dice", "quick"), "--out", out)
    assert wait_until(process, lambda: rows(out) > 1)
    signalled(process, SIGINT)
    programs = list(cache.rglob("*-cache"))
    assert programs
    for path in programs:
        os.truncate(path, path.stat().st_size // 2)
    ended = launcher.run("train", "--resume", out)
    assert ended.code == 0
    assert "Traceback" not in ended.said
    assert same(out, reference)
