"""Experts: a run of an algorithm that learns from rewards stops at its target, and is resumed like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from resuming import killed, same
from small import small

import valuedice as vd
from valuedice.errors import InputError

NEVER, ALWAYS = 1e9, -1e9


def train(out: Path, **changes: Any) -> vd.Run:
    settings: dict[str, Any] = {"target_return": NEVER, "max_steps": 24, "eval_every": 4, "eval_episodes": 2}
    algorithm = small("sac", updates_per_step=1, update_every=2)
    return vd.train_expert(algorithm, "Pendulum-v1", out=out, quiet=True, **(settings | changes))


@pytest.fixture(scope="module")
def expert(tmp_path_factory) -> vd.Run:
    return train(tmp_path_factory.mktemp("expert") / "run")


@pytest.mark.parametrize("saves", [5, 18])
def test_an_expert_killed_at_any_step_ends_as_if_it_had_not_been(saves, expert, tmp_path):
    with killed(saves):
        train(tmp_path / "run")
    train(tmp_path / "run", resume=True)
    assert same(tmp_path / "run", expert.out)


def test_it_stops_at_its_target_and_a_higher_one_continues_it(expert, tmp_path):
    run = train(tmp_path / "run", target_return=ALWAYS)
    assert [row["step"] for row in run.metrics] == [4]
    assert (tmp_path / "run" / "summary.json").exists()
    # Nothing is left to do for the old target.
    assert len(run.resume().metrics) == 1
    run.resume(target_return=NEVER)
    assert same(tmp_path / "run", expert.out)


def test_it_knows_no_demonstrations(expert):
    last = expert.metrics[-1]
    assert [last[name] for name in ("expert_return", "normalized_return", "kl_estimate")] == [None] * 3
    assert last["return_mean"] < 0
    assert last["updates"] == len(range(6, 25, 2))
    # Observations are not normalised.
    obs = np.array([1.0, -1.0, 8.0], np.float32)
    np.testing.assert_array_equal(expert.policy.normalizer(obs), obs)


def test_an_algorithm_that_does_not_learn_from_rewards_is_refused():
    with pytest.raises(InputError, match="bc does not learn from rewards; use an algorithm such as SAC"):
        vd.train_expert(small("bc"), "Pendulum-v1", target_return=0)
