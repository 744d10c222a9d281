"""Experts: a run of an algorithm that learns from rewards stops at its target, and is resumed like any other."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from resuming import killed, same
from small import small

from valuedice.cli import main
from valuedice.errors import InputError
from valuedice.policy import load_policy
from valuedice.training.run import Run, train_expert

FLAGS = "--hidden 16 --batch-size 16 --random-steps 6 --training-starts 5 --update-every 2 --eval-episodes 2"
NEVER, ALWAYS = 1e9, -1e9


def train(out: Path, **changes: Any) -> Run:
    settings: dict[str, Any] = {"target_return": NEVER, "max_steps": 24, "eval_every": 4, "eval_episodes": 2}
    algorithm = small("sac", updates_per_step=1, update_every=2)
    return train_expert(algorithm, "Pendulum-v1", out=out, quiet=True, **(settings | changes))


@pytest.fixture(scope="module")
def expert(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("expert") / "run"
    train(out)
    return out


@pytest.mark.parametrize("saves", [1, 5, 18])
def test_an_expert_killed_at_any_step_ends_as_if_it_had_not_been(saves, expert, tmp_path):
    with killed(saves):
        train(tmp_path / "run")
    train(tmp_path / "run", resume=True)
    assert same(tmp_path / "run", expert)


def test_it_stops_at_its_target_and_a_higher_one_continues_it(expert, tmp_path):
    run = train(tmp_path / "run", target_return=ALWAYS)
    assert [row["step"] for row in run.metrics] == [4]
    assert (tmp_path / "run" / "summary.json").exists()
    # Nothing is left to do for the old target.
    assert len(run.resume().metrics) == 1
    run.resume(target_return=NEVER)
    assert same(tmp_path / "run", expert)


def test_columns_about_demonstrations_are_empty(expert):
    with (expert / "metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert [last[name] for name in ("expert_return", "normalized_return", "kl_estimate")] == ["", "", ""]
    assert float(last["return_mean"]) < 0
    assert int(last["updates"]) == len(range(6, 25, 2))


def test_the_policy_takes_observations_as_they_are(expert):
    obs = np.array([1.0, -1.0, 8.0], np.float32)
    np.testing.assert_array_equal(load_policy(expert).normalizer(obs), obs)


def test_an_algorithm_that_does_not_learn_from_rewards_is_refused():
    with pytest.raises(InputError, match="bc does not learn from rewards; use an algorithm such as SAC"):
        train_expert(small("bc"), "Pendulum-v1", target_return=0)


# The command.


def run_command(arguments: str) -> int:
    return main(arguments.split())


def test_the_command_says_the_return_and_how_to_record(tmp_path, capsys):
    out = tmp_path / "run"
    budget = "--target-return -1e9 --max-steps 30 --eval-every 15"
    assert run_command(f"expert --env Pendulum-v1 {budget} --out {out} {FLAGS}") == 0
    assert "after 15 steps, target: -1e+09\n" in capsys.readouterr().out
    assert run_command(f"expert --resume {out} --max-steps 45 --target-return 1e9") == 0
    said = capsys.readouterr().out
    assert "after 45 steps, target: 1e+09 (not reached)" in said
    assert f"more:   valuedice expert --resume {out}" in said
    assert f"valuedice demos collect --policy {out} --env Pendulum-v1" in said
    assert json.loads((out / "config.json").read_text())["algorithm"] == "sac"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--target-return 0", "--env is missing"),
        ("--env Pendulum-v1", "--target-return is missing"),
        ("--env CartPole-v1 --target-return 0", "choose another task, or imitate with value-dice, bc or gail"),
        ("--env Pendulum-v1 --target-return 0 --max-steps 10", "end before the first update"),
        ("--env Pendulum-v1 --target-return 0 --discount 1", "--discount is 1.0"),
        ("--env Pendulum-v1 --target-return nan", "--target-return is nan; it must be finite"),
    ],
)
def test_bad_input_is_one_line(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command(f"expert {arguments}") == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_each_command_resumes_its_own_runs(expert, capsys):
    assert run_command(f"train --resume {expert}") == 2
    assert "is a run of sac; resume it with valuedice expert" in capsys.readouterr().err
