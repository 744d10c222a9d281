"""Experts: a run of an algorithm that learns from rewards stops at its target, and is resumed like any other."""

from __future__ import annotations

import json
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


# The command.


def test_the_command_says_the_return_and_how_to_record(run, tmp_path):
    out = tmp_path / "run"
    flags = "--hidden 16 --batch-size 16 --random-steps 6 --training-starts 5 --eval-episodes 2 --eval-every 15"
    budget = "--target-return -1e9 --max-steps 30"
    said = run("expert", "--env", "Pendulum-v1", *budget.split(), "--out", out, *flags.split())
    assert said.code == 0
    assert "after 15 steps, target: -1e+09\n" in said.out
    said = run("expert", "--resume", out, "--max-steps", 45, "--target-return", 1e9)
    assert said.code == 0
    assert "after 45 steps, target: 1e+09 (not reached)" in said.out
    assert f"more:   valuedice expert --resume {out}" in said.out
    assert f"valuedice demos collect --policy {out} --env Pendulum-v1" in said.out
    assert json.loads((out / "config.json").read_text())["algorithm"] == "sac"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--target-return 0", "--env is missing"),
        ("--env Pendulum-v1", "--target-return is missing"),
        ("--env CartPole-v1 --target-return 0", "choose another task, or imitate with value-dice, bc or gail"),
        ("--env Pendulum-v1 --target-return 0 --max-steps 10", "end before the first update"),
        ("--env Pendulum-v1 --target-return nan", "--target-return is nan; it must be finite"),
    ],
)
def test_bad_input_is_one_line(arguments, said, refused, own_folder):
    assert said in refused("expert", *arguments.split())


def test_each_command_resumes_its_own_runs(expert, refused, own_folder):
    assert "is a run of sac; resume it with valuedice expert" in refused("train", "--resume", expert.out)
