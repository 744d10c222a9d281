"""`valuedice expert`: stops at its target, says what to do next, and names its own flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commanding import small_flags

pytestmark = pytest.mark.usefixtures("own_folder")
PENDULUM = ("--env", "Pendulum-v1", "--target-return")
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
            ("--env", "CartPole-v1", "--target-return", 0),
            "choose another task, or imitate with value-dice, bc or gail",
        ),
        ((*PENDULUM, 0, "--max-steps", 9), "9 steps end before the first update, at step"),
        ((*PENDULUM, 0, "--max-steps", 9), "take more --max-steps, or lower --training-starts"),
        ((*PENDULUM, 0, "--max-steps", 0), "--max-steps is 0"),
        ((*PENDULUM, 0, "--discount", 1), "--discount is 1.0"),
        ((*PENDULUM, "nan"), "--target-return is nan; it must be finite"),
        ((*PENDULUM, 0, "--demos", "pendulum"), "Unrecognized options: --demos"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_the_flag(arguments, says, refused):
    assert says in refused("expert", *arguments)
