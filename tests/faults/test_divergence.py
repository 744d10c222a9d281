"""A run that really diverges is stopped, and what was good stays; a run that works is left alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from commanding import flags
from faults.harness import options, resumed, saved

from valuedice import load_policy


def is_finite(out: Path) -> bool:
    return all(np.isfinite(array).all() for layer in load_policy(out).layers for array in layer)


@pytest.mark.faults
@pytest.mark.parametrize("task", ["quick", "discrete"])
def test_a_step_that_is_too_large_is_stopped_with_what_was_good_kept(task, launcher, tmp_path):
    out = tmp_path / "run"
    # Some evaluations with random actions only, then steps that no network survives.
    wild = {"nu_lr": 1e25, "gradient_penalty": 0.0, "training_starts": 160, "random_steps": 300, "steps": 400}
    ended = launcher.run(*options("value-dice", task, **wild), "--out", out)
    assert ended.code == 3
    assert ended.said.count("\n") == 1
    assert ended.said.startswith("valuedice: Training diverged: ")
    assert "a smaller --nu-lr" in ended.said
    assert f"{out} holds the checkpoint at {saved(out)} steps" in ended.said
    header, *_, last = (out / "metrics.csv").read_text().splitlines()
    cells = dict(zip(header.split(","), last.split(","), strict=True))
    # At once: before the next evaluation, at 200.
    assert 160 <= int(cells["step"]) < 200
    assert not all(math.isfinite(float(cell)) for cell in cells.values() if cell)
    assert is_finite(out)
    again = launcher.run(*resumed(out))
    # It ends the same, whichever checkpoint the clock has chosen by then.
    assert again.code == 3
    assert again.said.partition(" holds ")[0] == ended.said.partition(" holds ")[0]
    assert is_finite(out)


@pytest.mark.faults
@pytest.mark.parametrize(("env", "demos"), [("Pendulum-v1", "pendulum"), ("CartPole-v1", "cartpole")])
def test_runs_that_work_do_not_trip_the_guard(env, demos, launcher, tmp_path):
    budget = {"steps": 900, "random_steps": 300, "training_starts": 200, "eval_every": 100, "eval_episodes": 1}
    works = {"env": env, "demos": demos, "hidden": 64, "batch_size": 64, "threads": 1, "quiet": True}
    assert launcher.run("train", *flags(works | budget), "--out", tmp_path / "run").done
    assert is_finite(tmp_path / "run")
