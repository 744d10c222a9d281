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
from faults.harness import end_of, options, resumed, rows, saved, wait_until
from resuming import same, train

import valuedice as vd

Mount = Callable[..., None]
PAGE = 4096
QUICK = options("value-dice", "quick")


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts, undone at the end; if that is not allowed, the test is skipped."""
    places: list[Path] = []

    def mounted(*args: str, on: Path) -> None:
        on.mkdir(exist_ok=True)
        tried = subprocess.run(["mount", *args, str(on)], capture_output=True, text=True, check=False)
        if tried.returncode:
            pytest.skip(f"needs the right to mount: {tried.stderr.strip()}")
        places.append(on)

    if shutil.which("mount") is None:
        pytest.skip("needs mount")
    yield mounted
    for place in reversed(places):
        subprocess.run(["umount", str(place)], capture_output=True, check=False)


def fill(path: Path, free: int = 0) -> None:
    """Leaves only so many bytes of the disk."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(PAGE)):
            pass
    os.truncate(path, max(0, path.stat().st_size - free))


def test_a_full_disk_is_one_line_and_the_run_continues_when_there_is_space(launcher, whole, mount, tmp_path):
    disk = tmp_path / "disk"
    mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", on=disk)
    out = disk / "run"
    process = launcher.until_row(out, *QUICK, "--out", out)
    fill(disk / "filler")
    ended = end_of(process)
    assert ended.refused
    assert "No space left on device" in ended.said
    assert f"free some space, then continue with: valuedice train --resume {out}" in ended.said
    assert saved(out) is not None
    (disk / "filler").unlink()
    assert launcher.run(*resumed(out)).done
    assert same(out, whole("value-dice", "quick"))


@pytest.mark.faults
# TensorBoard's file, if it could not be begun, is closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_may_be_full_at_any_write(mount, tmp_path):
    demos, disk = vd.load_demos("pendulum", episodes=1), tmp_path / "disk"
    mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", on=disk)
    train(demos, "Pendulum-v1", tmp_path / "whole")
    out, refusals, ended = disk / "run", 0, False
    while not ended:
        # One page more each time, until the whole run fits.
        fill(disk / "filler", PAGE * refusals)
        try:
            train(demos, "Pendulum-v1", out, checkpoint_seconds=0)
            ended = True
        except vd.InputError as error:
            refusals += "No space left on device" in str(error)
        (disk / "filler").unlink()
        train(demos, "Pendulum-v1", out, resume=(out / "config.json").exists())
        assert same(out, tmp_path / "whole")
        shutil.rmtree(out)
    assert refusals > 10


@pytest.mark.faults
def test_a_read_only_folder_is_one_line_and_the_run_continues_afterwards(launcher, whole, mount, tmp_path):
    out = tmp_path / "run"
    process = launcher.until_row(out, *QUICK, "--out", out)
    # Mounted over itself: a disk on which files are open cannot be made read-only.
    mount("--bind", str(out), on=out)
    mount("-o", "remount,bind,ro", on=out)
    during, again = end_of(process), launcher.run(*resumed(out))
    for ended in (during, again, launcher.run(*QUICK, "--out", out / "new")):
        assert ended.refused
        assert "Read-only file system" in ended.said
    assert saved(out) is not None
    subprocess.run(["umount", str(out)], check=True)
    assert launcher.run(*resumed(out)).done
    assert same(out, whole("value-dice", "quick"))


@pytest.mark.faults
def test_a_folder_that_is_renamed_is_one_line_and_the_run_continues_under_the_new_name(launcher, whole, tmp_path):
    out, moved = tmp_path / "run", tmp_path / "moved"
    process = launcher.until_row(out, *QUICK, "--out", out)
    os.rename(out, moved)
    assert end_of(process).refused
    assert saved(moved) is not None
    assert launcher.run(*resumed(moved)).done
    assert same(moved, whole("value-dice", "quick"))


@pytest.mark.faults
def test_a_folder_that_is_deleted_is_one_line(launcher, tmp_path):
    out = tmp_path / "run"
    process = launcher.until_row(out, *QUICK, "--out", out)
    # The run may write between two removals.
    while out.exists():
        shutil.rmtree(out, ignore_errors=True)
    ended = end_of(process)
    assert ended.refused
    assert "No such file or directory" in ended.said


@pytest.mark.faults
def test_a_compiled_program_cut_short_by_a_kill_is_compiled_again(launcher, whole, tmp_path):
    reference, out, cache = whole("value-dice", "quick"), tmp_path / "run", tmp_path / "cache"
    launcher.env["XDG_CACHE_HOME"] = str(cache)
    process = launcher.start(*QUICK, "--out", out)
    assert wait_until(process, lambda: rows(out) > 1)
    end_of(process, SIGINT)
    programs = list(cache.rglob("*-cache"))
    assert programs
    for path in programs:
        os.truncate(path, path.stat().st_size // 2)
    ended = launcher.run(*resumed(out))
    assert ended.code == 0
    assert "Traceback" not in ended.said
    assert same(out, reference)
