"""What ends a run before its time: signals and divergence. Everything good is kept."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from resuming import result, same, train

import valuedice as vd
from valuedice.errors import DivergenceError, Interrupted
from valuedice.training import learner
from valuedice.training.run_folder import RunFolder
from valuedice.training.stopping import deferred_signals


def before_saving(monkeypatch: pytest.MonkeyPatch, what: Callable[[RunFolder], object]) -> None:
    """Calls a function at the end of each round, before the folder decides whether to save."""
    real = RunFolder.save

    def save(self: RunFolder, *, now: bool = False) -> None:
        what(self)
        real(self, now=now)

    monkeypatch.setattr(RunFolder, "save", save)


# The first evaluation is at step 4: before it, there is no policy yet.
@pytest.mark.parametrize("step", [2, 12])
def test_an_interrupted_run_says_how_to_continue_and_that_call_works(step, pendulum, whole, tmp_path, monkeypatch):
    def interrupt(folder: RunFolder) -> None:
        if folder.done == step:
            monkeypatch.undo()
            os.kill(os.getpid(), signal.SIGTERM)

    before_saving(monkeypatch, interrupt)
    with pytest.raises(Interrupted) as stop:
        train(pendulum, "Pendulum-v1", tmp_path / "run")
    assert stop.value.signum == signal.SIGTERM
    said, _, call = str(stop.value).partition("; continue with: ")
    assert said == f"stopped after {step} steps; {tmp_path / 'run'} holds the checkpoint at {step} steps"
    assert call == f"load_run({str(tmp_path / 'run')!r}).resume()"
    eval(f"vd.{call}", {"vd": vd})
    assert same(tmp_path / "run", whole)


def test_without_a_folder_an_interrupted_run_says_that_nothing_was_saved(pendulum):
    with pytest.raises(Interrupted, match="nothing was saved, because the run has no folder"):
        train(pendulum, "Pendulum-v1", on_evaluation=lambda _: os.kill(os.getpid(), signal.SIGINT))


def test_a_second_signal_ends_the_run_at_once_and_handlers_are_given_back():
    before = signal.getsignal(signal.SIGINT)
    with deferred_signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.caught == signal.SIGINT
        with pytest.raises(Interrupted, match="a second time"):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def good(pendulum, tmp_path) -> Path:
    """A run of eight steps."""
    train(pendulum, "Pendulum-v1", tmp_path / "run", steps=8)
    return tmp_path / "run"


def test_a_loss_that_is_not_finite_stops_at_once_and_keeps_what_was_good(good, monkeypatch):
    before, real = result(good), learner.run_updates

    def broken(*args: Any) -> Any:
        state, metrics = real(*args)
        return state, metrics | {"objective": np.float32("nan")}

    monkeypatch.setattr(learner, "run_updates", broken)
    said = r"objective is nan at 9 steps\. What usually helps, in a new run folder: .*checkpoint at 8 steps"
    with pytest.raises(DivergenceError, match=said):
        vd.load_run(good).resume(steps=24, quiet=True)
    assert (result(good).last, result(good).kept) == (before.last, before.kept)
    assert re.match("9,.*nan", (good / "metrics.csv").read_text().splitlines()[-1])


def test_a_sample_that_stays_too_small_is_divergence(good, monkeypatch):
    before = result(good)
    monkeypatch.setattr("valuedice.training.stopping.LEAST_SAMPLE_SIZE", 2.0)
    with pytest.raises(DivergenceError, match=r"effective_sample_size is .* since 12 steps.*checkpoint at 8 steps"):
        vd.load_run(good).resume(steps=24, quiet=True)
    assert (result(good).last, result(good).kept) == (before.last, before.kept)
    assert (good / "metrics.csv").read_text().splitlines()[-1].startswith("20,")


def test_parameters_that_are_not_finite_never_reach_a_checkpoint(good, monkeypatch):
    def poison(folder: RunFolder) -> None:
        if folder.done == 24:
            state = folder.parts["learner"].state  # pyright: ignore[reportAttributeAccessIssue]
            state.nu[0] = state.nu[0]._replace(kernel=state.nu[0].kernel * np.nan)

    before_saving(monkeypatch, poison)
    with pytest.raises(DivergenceError, match=r"nu.*is not finite after 24 steps.*checkpoint at 8 steps"):
        vd.load_run(good).resume(steps=24, quiet=True)
