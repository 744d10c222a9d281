"""Ctrl-C and SIGTERM save the run and say how to continue; a second signal ends it at once; nothing is lost."""

from __future__ import annotations

import re
import time
from pathlib import Path
from signal import SIGINT, SIGTERM

import pytest
from faults.harness import end_of, options, resumed, saved, wait_until
from resuming import same

STOPPED = (
    r"valuedice: stopped after (\d+) steps; .* holds the checkpoint at \1 steps; "
    r"continue with: valuedice (train|expert) --resume (.*)\n"
)
AT_ONCE = "valuedice: interrupted a second time; stopped at once\n"


def test_interrupted_runs_continue_where_they_stopped(launcher, whole, tmp_path):
    out = tmp_path / "run"
    # No checkpoint but those that the signals bring about.
    args = [*options("value-dice", "quick", checkpoint_seconds=3600), "--out", str(out)]
    for signum, code in ((SIGINT, 130), (SIGTERM, 143)):
        ended = end_of(launcher.until_row(out, *args), signum)
        assert ended.code == code
        said = re.fullmatch(STOPPED, ended.said)
        assert said is not None
        assert int(said[1]) == saved(out)
        args = resumed(said[3], said[2])
    ended = end_of(launcher.until_row(out, *args), SIGINT, SIGINT)
    # The run may have been quicker than the second signal.
    assert ended.code == 130
    assert re.fullmatch(f"{STOPPED}|{AT_ONCE}", ended.said)
    assert saved(out) is not None
    assert launcher.run(*args).done
    assert same(out, whole("value-dice", "quick"))


@pytest.mark.faults
def test_an_interrupted_expert_names_its_own_command(launcher, whole, tmp_path):
    out = tmp_path / "run"
    ended = end_of(launcher.until_row(out, *options("sac", "expert"), "--out", out), SIGTERM)
    said = re.fullmatch(STOPPED, ended.said)
    assert ended.code == 143
    assert said is not None
    assert launcher.run(*resumed(said[3], said[2])).done
    assert same(out, whole("sac", "expert"))


@pytest.mark.faults
def test_a_second_signal_ends_a_run_that_is_slow_to_stop_at_once(launcher, tmp_path):
    out = tmp_path / "run"
    # An evaluation of many minutes.
    process = launcher.start(*options("value-dice", "quick", eval_episodes=9999), "--out", out)

    def evaluates() -> bool:
        states = list(out.glob("checkpoint/*/state"))
        return bool(states) and time.time() - max(path.stat().st_mtime for path in states) > 2.0

    assert wait_until(process, evaluates, pause=0.1)
    before = saved(out)
    process.send_signal(SIGINT)
    time.sleep(1.0)
    assert process.poll() is None
    begin = time.monotonic()
    ended = end_of(process, SIGINT)
    assert time.monotonic() - begin < 5
    assert (ended.code, ended.said) == (130, AT_ONCE)
    assert saved(out) == before is not None


@pytest.mark.faults
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux, to see when signals are handled")
@pytest.mark.parametrize("signum", [SIGINT, SIGTERM])
@pytest.mark.parametrize("pause", [0.0, 0.3, 0.8])
def test_a_signal_in_start_up_is_one_line(signum, pause, launcher, tmp_path):
    process = launcher.start(*options("value-dice", "quick"), "--out", tmp_path / "run")

    def handles() -> bool:
        (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
        return bool(int(mask, 16) >> (SIGTERM - 1) & 1)

    # Before that, Python itself is being loaded, and this library cannot decide what it does with a signal.
    assert wait_until(process, handles)
    time.sleep(pause)
    ended = end_of(process, signum)
    assert (ended.code, ended.said) == (128 + signum, "valuedice: interrupted\n")
