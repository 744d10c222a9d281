"""`valuedice expert`: stops at its target, goes on exactly, and says what to do next."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from resuming import KilledError, killed_after, result

from valuedice.algorithms import SAC
from valuedice.cli import main
from valuedice.errors import InputError
from valuedice.policy import load_policy
from valuedice.train import Run, train_expert

SMALL: dict[str, Any] = {
    "hidden": (8,),
    "batch_size": 8,
    "random_steps": 9,
    "training_starts": 7,
    "update_every": 2,
}
FLAGS = "--hidden 8 --batch-size 8 --random-steps 9 --training-starts 7 --update-every 2 --eval-episodes 2"
NEVER, ALWAYS = 1e9, -1e9


def train(out: Path | None, **changes: Any) -> Run:
    settings: dict[str, Any] = {"target_return": NEVER, "max_steps": 60, "eval_every": 15, "eval_episodes": 2}
    return train_expert(SAC(**SMALL), "Pendulum-v1", out=out, quiet=True, **(settings | changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    train(out)
    return out


@pytest.mark.parametrize("saves", [1, 8, 15, 44])
def test_an_expert_killed_at_any_step_ends_as_if_it_had_not_been(saves, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        killed_after(saves, patch)
        with pytest.raises(KilledError):
            train(tmp_path / "run")
    train(tmp_path / "run", resume=True)
    assert result(tmp_path / "run") == result(whole)


def test_it_stops_at_the_first_evaluation_that_reaches_the_target(tmp_path):
    run = train(tmp_path / "run", target_return=ALWAYS)
    assert [row["step"] for row in run.metrics] == [15]
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_higher_target_goes_on_as_if_it_had_been_asked_for_at_once(whole, tmp_path):
    train(tmp_path / "run", target_return=ALWAYS)
    # Nothing is left to do for the old one.
    assert len(train(tmp_path / "run", target_return=ALWAYS, resume=True).metrics) == 1
    train(tmp_path / "run", resume=True)
    assert result(tmp_path / "run") == result(whole)


def test_columns_that_make_no_sense_are_empty(whole):
    with (whole / "metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert [last[name] for name in ("expert_return", "normalized_return", "kl_estimate")] == ["", "", ""]
    assert float(last["return_mean"]) < 0
    assert int(last["updates"]) == len(range(8, 61, 2))


def test_the_policy_file_takes_observations_as_they_are(whole):
    policy = load_policy(whole)
    obs = np.array([1.0, -1.0, 8.0], np.float32)
    np.testing.assert_array_equal(policy.normalizer(obs), obs)


def test_something_else_than_sac_is_refused():
    with pytest.raises(InputError, match="does not learn from rewards"):
        train_expert("sac", "Pendulum-v1", target_return=0)  # pyright: ignore[reportArgumentType]


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
        ("--target-return 0", "--env ID is missing"),
        ("--env Pendulum-v1", "--target-return R is missing"),
        ("--env CartPole-v1 --target-return 0", "choose another task, or imitate with value-dice, bc or gail"),
        ("--env Pendulum-v1 --target-return 0 --max-steps 10", "end before the first update"),
        ("--env Pendulum-v1 --target-return 0 --discount 1", "discount is 1.0"),
        ("--env Pendulum-v1 --target-return nan", "target_return is nan; it must be finite"),
        ("--env Pendulum-v1 --target-return 0 --target-entropy nan", "target_entropy is nan; it must be finite"),
        ("--env Pendulum-v1 --target-return 0 --checkpoint-seconds nan", "checkpoint_seconds is nan"),
    ],
)
def test_bad_input_is_one_line(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command(f"expert {arguments}") == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_each_command_resumes_its_own_runs(whole, tmp_path, capsys):
    assert run_command(f"train --resume {whole}") == 2
    assert "was begun by valuedice expert; resume it with that" in capsys.readouterr().err
