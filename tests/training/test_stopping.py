"""What ends a run before its time: signals and divergence. Everything good is kept."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import numpy as np
import pytest
from resuming import result, same, train

import valuedice as vd
from valuedice.errors import DivergenceError, Interrupted
from valuedice.training import learner
from valuedice.training.run_folder import RunFolder
from valuedice.training.stopping import deferred_signals


def interrupting(at: int) -> Any:
    """A callback that sends a signal at one of the evaluations."""
    return lambda progress: os.kill(os.getpid(), signal.SIGTERM) if progress.step == at else None


def test_an_interrupted_run_says_how_to_continue_and_that_call_works(pendulum, whole, tmp_path):
    with pytest.raises(Interrupted) as stop:
        train(pendulum, "Pendulum-v1", tmp_path / "run", on_evaluation=interrupting(12))
    assert stop.value.signum == signal.SIGTERM
    assert str(stop.value).startswith("stopped after 12 steps; ")
    call = str(stop.value).rpartition("continue with: ")[2]
    assert call == f"load_run({str(tmp_path / 'run')!r}).resume()"
    eval(call.replace("resume()", "resume(quiet=True)"), {"load_run": vd.load_run})
    assert same(tmp_path / "run", whole)


def test_a_run_interrupted_before_its_first_evaluation_continues_too(pendulum, whole, tmp_path, monkeypatch):
    real = RunFolder.save

    def interrupted(self: RunFolder, *, now: bool = False) -> None:
        if self.done == 2 and not now:
            os.kill(os.getpid(), signal.SIGINT)
        real(self, now=now)

    with monkeypatch.context() as patch, pytest.raises(Interrupted, match="stopped after 2 steps"):
        patch.setattr(RunFolder, "save", interrupted)
        train(pendulum, "Pendulum-v1", tmp_path / "run")
    run = vd.load_run(tmp_path / "run")
    assert run.metrics == []
    run.resume(quiet=True)
    assert same(tmp_path / "run", whole)


def test_without_a_folder_an_interrupted_run_says_that_nothing_was_saved(pendulum):
    with pytest.raises(
        Interrupted, match="stopped after 4 steps; nothing was saved, because the run has no folder$"
    ):
        train(pendulum, "Pendulum-v1", on_evaluation=interrupting(4))


def test_a_second_signal_ends_the_run_at_once_and_handlers_are_given_back():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="a second time"), deferred_signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.caught == signal.SIGINT
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_loss_that_is_not_finite_stops_at_once_and_keeps_what_was_good(pendulum, tmp_path, monkeypatch):
    out, real = tmp_path / "run", learner.run_updates
    train(pendulum, "Pendulum-v1", out, steps=8)
    good, _ = result(out)

    def broken(*args: Any) -> Any:
        state, metrics = real(*args)
        return state, metrics | {"objective": np.float32("nan")}

    monkeypatch.setattr(learner, "run_updates", broken)
    said = r"objective is nan at 9 steps\. What usually helps, in a new run folder: .*checkpoint at 8 steps"
    with pytest.raises(DivergenceError, match=said):
        train(pendulum, "Pendulum-v1", out, resume=True)
    assert result(out)[0] == good
    last = (out / "metrics.csv").read_text().splitlines()[-1]
    assert re.match("9,.*nan", last)


def test_a_sample_that_stays_too_small_is_divergence(pendulum, tmp_path, monkeypatch):
    out = tmp_path / "run"
    train(pendulum, "Pendulum-v1", out, steps=8)
    good, _ = result(out)
    monkeypatch.setattr("valuedice.training.stopping.LEAST_SAMPLE_SIZE", 2.0)
    said = r"effective_sample_size is .* since 12 steps.*checkpoint at 8 steps"
    with pytest.raises(DivergenceError, match=said):
        train(pendulum, "Pendulum-v1", out, resume=True)
    assert result(out)[0] == good
    assert (out / "metrics.csv").read_text().splitlines()[-1].startswith("20,")


def test_parameters_that_are_not_finite_never_reach_a_checkpoint(pendulum, tmp_path, monkeypatch):
    real = RunFolder.save

    def poisoned(self: RunFolder, *, now: bool = False) -> None:
        if self.done == 20:
            state: Any = self.parts["learner"].state  # pyright: ignore[reportAttributeAccessIssue]
            state.nu[0] = state.nu[0]._replace(kernel=state.nu[0].kernel * np.nan)
        if self.done in (10, 20):
            real(self, now=True)

    monkeypatch.setattr(RunFolder, "save", poisoned)
    with pytest.raises(DivergenceError, match=r"nu.*is not finite after 20 steps.*checkpoint at 10 steps"):
        train(pendulum, "Pendulum-v1", tmp_path / "run")
