"""Ctrl-C and SIGTERM save and say how to go on; a second signal ends at once; nothing is lost either way."""

from __future__ import annotations

import re
import time
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

import pytest
from conftest import Whole
from harness import Launcher, options, rows, same, saved, signalled, wait_until

KEPT = r".* holds the checkpoint of \1 steps"
STOPPED = rf"valuedice: stopped after (\d+) steps; {KEPT}; go on with: valuedice train --resume (.*)"


def test_interrupted_runs_go_on_where_they_stopped(launcher: Launcher, whole: Whole, tmp_path: Path):
    reference, out = whole("value-dice", "quick"), tmp_path / "run"
    # No checkpoint but those that the signals bring about.
    args = [*options("value-dice", "quick", checkpoint_seconds=3600), "--out", str(out)]
    for signum, code in ((SIGINT, 130), (SIGTERM, 143)):
        process, before = launcher.start("train", *args), rows(out)
        assert wait_until(process, lambda before=before: rows(out) > before)
        ended = signalled(process, signum)
        assert ended.code == code
        (line,) = ended.lines
        said = re.fullmatch(STOPPED, line)
        assert said is not None
        assert int(said[1]) == saved(out)
        args = ["--resume", said[2]]
    process, before = launcher.start("train", *args), rows(out)
    assert wait_until(process, lambda: rows(out) > before)
    ended = signalled(process, SIGINT, SIGINT)
    # The run may have been quicker than the second signal.
    assert ended.code == 130
    assert re.fullmatch(rf"{STOPPED}|valuedice: interrupted again, at once", ended.lines[-1])
    assert len(ended.lines) == 1
    assert saved(out) is not None
    ended = launcher.run("train", *args)
    assert (ended.code, ended.said) == (0, "")
    assert same(out, reference)


@pytest.mark.faults
def test_a_second_signal_ends_a_run_that_is_slow_to_stop_at_once(launcher: Launcher, tmp_path: Path):
    out = tmp_path / "run"
    # An evaluation of many minutes.
    process = launcher.start("train", *options("value-dice", "quick", eval_episodes=9999), "--out", out)

    def evaluates() -> bool:
        states = list(out.glob("checkpoint/*/state"))
        return bool(states) and time.time() - max(path.stat().st_mtime for path in states) > 2.0

    assert wait_until(process, evaluates, pause=0.1)
    before = saved(out)
    process.send_signal(SIGINT)
    time.sleep(1.0)
    assert process.poll() is None
    begin = time.monotonic()
    ended = signalled(process, SIGINT)
    assert time.monotonic() - begin < 5
    assert (ended.code, ended.said) == (130, "valuedice: interrupted again, at once\n")
    assert saved(out) == before is not None


@pytest.mark.faults
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux, to see when signals are handled")
@pytest.mark.parametrize("signum", [SIGINT, SIGTERM])
@pytest.mark.parametrize("pause", [0.0, 0.3, 0.8])
def test_a_signal_in_start_up_is_one_line(signum: Signals, pause: float, launcher: Launcher, tmp_path: Path):
    process = launcher.start("train", *options("value-dice", "quick"), "--out", tmp_path / "run")
    # Before that, Python itself is loaded, and what it does with a signal is not up to this library.
    assert wait_until(process, lambda: handles(process.pid, SIGTERM))
    time.sleep(pause)
    ended = signalled(process, signum)
    assert (ended.code, ended.said) == (128 + signum, "valuedice: interrupted\n")


def handles(pid: int, signum: Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(mask, 16) >> (signum - 1) & 1)
