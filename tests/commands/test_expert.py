"""`valuedice expert`: stops at its target, says what to do next, and names its own flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commanding import small_flags

from valuedice.training.evaluation import Evaluation

pytestmark = pytest.mark.usefixtures("own_folder")
PENDULUM = ("--algorithm", "sac", "--env", "Pendulum-v1", "--target-return")
SHORT = ("--max-steps", 12, "--eval-every", 6, "--out", "run", *small_flags("sac"))


def test_the_return_and_how_to_record_are_printed(run):
    result = run("expert", *PENDULUM, -1e9, *SHORT)
    assert result.code == 0
    assert "after 6 steps, target: -1e+09\n" in result.out
    assert (
        "next:   valuedice demos collect --policy run --env Pendulum-v1 --episodes 11 --out Pendulum-v1.npz"
        in result.out
    )
    assert json.loads(Path("run/config.json").read_text())["algorithm"] == "sac"
    # A higher target continues the run.
    result = run("expert", "--resume", "run", "--target-return", 1e9)
    assert "after 12 steps, target: 1e+09 (not reached)" in result.out
    assert "more:   valuedice expert --resume run --max-steps 24" in result.out


def test_ppo_is_the_default_and_its_robustness_is_printed(run, refused):
    short = ("--max-steps", 12, "--eval-every", 6, "--out", "run", *small_flags("ppo"))
    result = run("expert", "--env", "Pendulum-v1", "--target-return", 1e9, *short)
    assert result.code == 0
    final = json.loads(Path("run/summary.json").read_text())["final"]
    assert (
        f"robust: {final['return_mean']:.1f} with the mean action on fresh episodes, "
        f"{final['sampled_return']:.1f} with sampled actions, {final['noisy_return']:.1f} under noise 0.1\n"
    ) in result.out
    assert json.loads(Path("run/config.json").read_text())["algorithm"] == "ppo"
    assert "omit --algorithm to resume it" in refused("expert", "--resume", "run", "--algorithm", "sac")
    assert run("expert", "--resume", "run", "--algorithm", "ppo", "--max-steps", 16).code == 0
    for option in ("--init-policy", "--replay-capacity"):
        assert f"Unrecognized options: {option}" in refused("expert", "--env", "Pendulum-v1", option, "9")


def test_an_expert_that_noise_ruins_is_called_fragile(run, monkeypatch):
    command = ("expert", *PENDULUM, -1e9, *SHORT)
    monkeypatch.setattr(Evaluation, "robustness", lambda *_: {"sampled_return": -9e4, "noisy_return": -9e4})
    assert "It loses more than a tenth under noise" in run(*command).out
    monkeypatch.setattr(Evaluation, "robustness", lambda *_: {"sampled_return": -1.0, "noisy_return": -1.0})
    assert "It loses" not in run(*command[: -len(SHORT)], *SHORT[:4], "--out", "other", *SHORT[6:]).out


def test_an_expert_that_is_not_robust_in_time_is_told_apart(run, monkeypatch):
    monkeypatch.setattr(Evaluation, "noisy_return", lambda *_: -9e9)
    result = run("expert", *PENDULUM, -1e9, "--robust", *SHORT)
    assert "after 12 steps, target: -1e+09 (reached, but not robust)\n" in result.out
    assert "more:   valuedice expert --resume run --max-steps 24" in result.out


def test_a_run_resumes_with_the_command_line_that_began_it_and_with_its_own_command_only(run, refused):
    command = ("expert", *PENDULUM, 0, *SHORT, "--quiet")
    assert run(*command).code == 0
    policy = Path("run/policy.safetensors").read_bytes()
    result = run(*command, "--resume", "run")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert Path("run/policy.safetensors").read_bytes() == policy
    assert "more than the 9 asked for" in refused("expert", "--resume", "run", "--max-steps", 9)
    assert "--seed was 0, now 1" in refused("expert", "--resume", "run", "--seed", 1)
    assert "run is a run of sac; resume it with valuedice expert" in refused("train", "--resume", "run")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--target-return", 0), "--env is missing"),
        (("--env", "Pendulum-v1"), "--target-return is missing"),
        (
            ("--algorithm", "sac", "--env", "CartPole-v1", "--target-return", 0),
            "imitate with value-dice, bc or gail, or learn from rewards with ppo",
        ),
        ((*PENDULUM, 0, "--max-steps", 9), "9 steps end before the first update, at step"),
        ((*PENDULUM, 0, "--max-steps", 9), "take more --max-steps, or lower --training-starts"),
        ((*PENDULUM, 0, "--max-steps", 0), "--max-steps is 0"),
        ((*PENDULUM, 0, "--discount", 1), "--discount is 1.0"),
        ((*PENDULUM, "nan"), "--target-return is nan; it must be finite"),
        ((*PENDULUM, 0, "--demos", "pendulum"), "Unrecognized options: --demos"),
        (("--algorithm", "dqn", *PENDULUM[2:], 0), "--algorithm"),
        (
            (*PENDULUM[2:], 0, "--least-std", 0.001),
            "--least-std is 0.001; it must be 0, or above 0.0067 and below 1",
        ),
        ((*PENDULUM[2:], 0, "--units", "sin"), "--units"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_the_flag(arguments, says, refused):
    assert says in refused("expert", *arguments)
