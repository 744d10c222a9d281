"""The command line: every bad input is one line and exit code 2, and nothing is written or lost."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from commanding import ROWS, pendulum, store, with_entry
from gymnasium import spaces

from valuedice import __version__, load_demos


class Odd(gym.Env[Any, Any]):
    """Spaces that are not supported."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions


BOX = spaces.Box(-1, 1, (3,))
ODD: dict[str, tuple[spaces.Space[Any], spaces.Space[Any]]] = {
    "Dict": (spaces.Dict({"a": BOX}), BOX),
    "Image": (spaces.Box(0, 255, (8, 8, 3), np.uint8), BOX),
    "MultiDiscrete": (BOX, spaces.MultiDiscrete([2, 2])),
    "Unbounded": (BOX, spaces.Box(-np.inf, np.inf, (1,))),
}


pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(autouse=True)
def _odd_environments() -> Iterator[None]:
    for name, (observations, actions) in ODD.items():
        kwargs = {"observations": observations, "actions": actions}
        gym.register(f"valuedice-tests/{name}-v0", lambda **spaces: Odd(**spaces), kwargs=kwargs)
    yield
    for name in ODD:
        del gym.registry[f"valuedice-tests/{name}-v0"]


ONLINE = ("train", "--env", "Pendulum-v1", "--demos", "demos.npz", "--out", "run")
OFFLINE = ("train", "--offline", "--demos", "demos.npz", "--out", "run")
SMALL = ("--hidden", "16", "--batch-size", "16", "--updates-per-step", "2", "--eval-episodes", "1")
SMALL = (*SMALL, "--random-steps", "2", "--training-starts", "2")


FILES = {
    "missing": (None, "no demonstrations at demos.npz"),
    "empty": (b"", "not an npz archive"),
    "text": (b"s,a\n1,2\n", "not an npz archive"),
    "pickle": (pickle.dumps({"observations": [1]}), "a pickle"),
    "not whole": (b"PK\x03\x04 and no more", "truncated or corrupt"),
}


@pytest.mark.parametrize(("content", "says"), FILES.values(), ids=FILES)
@pytest.mark.parametrize("command", [ONLINE, OFFLINE, ("demos", "inspect", "demos.npz")], ids=" ".join)
def test_a_file_that_is_no_npz_is_refused(refused, content, says, command):
    if content is not None:
        Path("demos.npz").write_bytes(content)
    assert says in refused(*command)


def test_a_truncated_npz_is_refused(refused):
    path = store()
    path.write_bytes(path.read_bytes()[:-100])
    assert "truncated or corrupt" in refused(*ONLINE)


ARRAYS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "pickled objects": ({"observations": np.array([{}] * ROWS, object)}, ("pickled objects",)),
    "unknown keys": (
        {"observations": None, "states_of_mind": np.zeros(ROWS)},
        ("states_of_mind", "Gymnasium's", "next_states", "D4RL's"),
    ),
    "NaN": ({"actions": with_entry(pendulum()["actions"], np.nan)}, ("actions holds NaN at row 4, column 0",)),
    "infinity": (
        {"observations": with_entry(pendulum()["observations"], np.inf)},
        ("observations holds infinity", "row 4, column 0"),
    ),
    "rows of different length": (
        {"actions": np.zeros((ROWS - 1, 1))},
        ("different length", "observations 6", "actions 5"),
    ),
    "no episodes": ({key: array[:0] for key, array in pendulum().items()}, ("holds no rows",)),
    "observations of another task": (
        {"observations": np.zeros((ROWS, 17)), "next_observations": np.zeros((ROWS, 17))},
        ("observations of 17 features, Pendulum-v1 of 3",),
    ),
    "actions of another task": ({"actions": np.zeros((ROWS, 6))}, ("actions of 6 dimensions, Pendulum-v1 of 1",)),
    "actions outside the bounds": (
        {"actions": with_entry(pendulum()["actions"], 2.5)},
        ("outside the bounds of Pendulum-v1: 2.5 in episode 1, row 1", "-2 to 2"),
    ),
    "discrete actions for a Box": (
        {"actions": np.zeros(ROWS, int)},
        ("discrete actions, Pendulum-v1 takes continuous ones",),
    ),
}


@pytest.mark.parametrize(("changes", "says"), ARRAYS.values(), ids=ARRAYS)
def test_demonstrations_that_cannot_be_used_are_refused(refused, changes, says):
    store(**changes)
    message = refused(*ONLINE)
    for part in says:
        assert part in message


@pytest.mark.parametrize(("changes", "says"), ARRAYS.values(), ids=ARRAYS)
def test_replay_data_that_cannot_be_used_are_refused(refused, changes, says):
    np.savez("other.npz", **pendulum(**changes))
    store()
    command = (*OFFLINE, "--eval-env", "Pendulum-v1", "--replay-data", "other.npz")
    message = refused(*command)
    for part in says:
        assert part in message


def test_missing_replay_data_are_refused(refused):
    store()
    assert "no demonstrations at nowhere.npz" in refused(*OFFLINE, "--replay-data", "nowhere.npz")


def test_continuous_actions_for_a_discrete_task_are_refused(refused):
    store(observations=np.zeros((ROWS, 4)), next_observations=np.zeros((ROWS, 4)))
    message = refused("train", "--env", "CartPole-v1", "--demos", "demos.npz", "--out", "run")
    assert "continuous actions, CartPole-v1 takes discrete ones" in message


def test_a_discrete_action_that_the_task_lacks_is_refused(refused):
    observations = np.zeros((ROWS, 4))
    store(observations=observations, next_observations=observations, actions=np.array([0, 1, 0, 0, 2, 1]))
    message = refused("train", "--env", "CartPole-v1", "--demos", "demos.npz", "--out", "run")
    assert "2 in episode 1, row 1; allowed is 0 to 1" in message


@pytest.mark.parametrize("episodes", [0, -1, 3])
def test_an_impossible_number_of_episodes_is_refused_with_both(refused, episodes):
    store()
    message = refused(*ONLINE, "--episodes", episodes)
    assert f"{episodes} episodes asked" in message
    assert "holds 2" in message


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Dict", "FlattenObservation"),
        ("Image", "encode images"),
        ("MultiDiscrete", "ActionWrapper"),
        ("Unbounded", "finite bounds"),
    ],
)
def test_an_unsupported_space_is_refused_with_what_to_do(refused, name, says):
    store()
    env = f"valuedice-tests/{name}-v0"
    message = refused("train", "--env", env, "--demos", "demos.npz", "--out", "run")
    assert env in message
    assert says in message
    assert says in refused(*OFFLINE, "--eval-env", env)


@pytest.mark.parametrize("env", ["NoSuchTask-v0", "CartPole-v99", "nowhere:Task-v0", "no id", "a:b:c"])
@pytest.mark.parametrize("option", ["--env", "--eval-env"])
def test_an_unknown_environment_is_refused(refused, env, option):
    store()
    assert f"no environment '{env}'" in refused(*ONLINE, option, env)


@pytest.mark.parametrize("held", ["config.json", "metrics.csv", "policy.safetensors", "summary.json"])
def test_a_folder_that_holds_another_run_is_left_as_it_is(refused, held):
    store()
    Path("run").mkdir()
    (Path("run") / held).write_text("precious")
    assert "already holds a run" in refused(*ONLINE)
    assert "already holds a run" in refused(*OFFLINE)


def test_an_output_that_is_a_file_or_below_one_is_refused(refused):
    store()
    assert "is a file" in refused(*ONLINE, "--out", "demos.npz")
    assert "cannot write" in refused(*ONLINE, "--out", "demos.npz/run")


NUMBERS = {
    "γ of 1": ("--discount", "1", "discount is 1.0"),
    "γ above 1": ("--discount", "1.5", "discount is 1.5"),
    "γ of 0": ("--discount", "0", "discount is 0.0"),
    "γ not a number": ("--discount", "nan", "discount is nan"),
    "α of 1": ("--replay-regularization", "1", "replay_regularization is 1.0"),
    "α below 0": ("--replay-regularization", "-0.1", "replay_regularization is -0.1"),
    "α not a number": ("--replay-regularization", "nan", "replay_regularization is nan"),
    "negative steps": ("--steps", "-5", "steps is -5"),
    "no steps": ("--steps", "0", "steps is 0"),
    "negative seed": ("--seed", "-1", "seed is -1"),
    "huge seed": ("--seed", str(2**64), "2**32"),
    "no evaluation": ("--eval-every", "0", "eval_every is 0"),
    "no evaluation episodes": ("--eval-episodes", "0", "0 evaluation episodes"),
    "no capacity": ("--replay-capacity", "0", "replay_capacity is 0"),
    "no batch": ("--batch-size", "0", "batch_size is 0"),
    "no step size": ("--actor-lr", "0", "actor_lr is 0.0"),
    "infinite step size": ("--nu-lr", "inf", "nu_lr is inf"),
    "no number of seconds": ("--checkpoint-seconds", "nan", "checkpoint_seconds is nan"),
    "endless seconds": ("--checkpoint-seconds", "inf", "checkpoint_seconds is inf"),
    "negative penalty": ("--gradient-penalty", "-1", "gradient_penalty is -1.0"),
    "no width": ("--hidden", "0", "hidden is (0,)"),
    "steps in words": ("--steps", "many", "--steps"),
    "steps in parts": ("--steps", "1.5", "--steps"),
    "discount in words": ("--discount", "high", "--discount"),
    "unknown choice": ("--sampling", "lucky", "lucky"),
}


@pytest.mark.parametrize(("option", "value", "says"), NUMBERS.values(), ids=NUMBERS)
def test_a_nonsensical_number_is_refused_by_its_name(refused, option, value, says):
    store()
    assert says in refused(*ONLINE, option, value)


def test_a_nonsensical_number_inside_an_algorithm_is_refused_by_its_name(refused):
    store()
    message = refused("train", "dac", *ONLINE[1:], "--critic-lr", "0")
    assert message.startswith("valuedice: error: critic_lr is 0.0; it must be positive")


def test_a_run_of_another_algorithm_is_not_resumed(run, refused):
    store()
    assert run(*OFFLINE, *SMALL, "--updates", 2, "--quiet").code == 0
    said = refused("train", "bc", "--resume", "run")
    assert "run is a run of value-dice, not of bc; leave the algorithm away to resume it" in said


@pytest.mark.parametrize("updates", ["0", "-3"])
def test_a_nonsensical_number_of_updates_is_refused(refused, updates):
    store()
    assert f"updates is {updates}" in refused(*OFFLINE, "--updates", updates)


def test_options_that_belong_to_the_other_way_of_training_are_refused(refused):
    store()
    assert "--offline" in refused(*ONLINE, "--updates", 10)
    assert "--updates" in refused(*OFFLINE, "--steps", 10)


@pytest.mark.parametrize("name", ["dac", "dual-dice", "gail"])
def test_what_cannot_learn_offline_says_so_and_never_advises_it(refused, name):
    store()
    for more in ((), ("--demos", "demos.npz"), ("--demos", "demos.npz", "--env", "Pendulum-v1")):
        assert f"{name} cannot learn offline" in refused("train", name, "--offline", *more)
    for more in ((), ("--env", "Pendulum-v1", "--updates", 5)):
        assert "--offline" not in refused("train", name, "--demos", "demos.npz", *more)


def test_what_training_cannot_do_without_is_asked_for(refused):
    store()
    assert "--env" in refused("train", "--demos", "demos.npz")
    assert "--demos" in refused("train", "--env", "Pendulum-v1")
    assert "--demos" in refused("train", "--offline")


def test_unknown_options_commands_and_algorithms_are_refused_by_name(refused):
    store()
    assert "--stepps" in refused(*ONLINE, "--stepps", "5")
    assert "no algorithm 'value-mice'; there are: value-dice" in refused("train", "value-mice", *ONLINE[1:])
    assert "no command 'trian'" in refused("trian")
    assert "no command '--stepps'" in refused("--stepps")
    assert "no command 'demos burn'" in refused("demos", "burn")
    assert "--stepps" in refused("demos", "inspect", "demos.npz", "--stepps")
    assert "Missing" in refused("demos", "convert", "demos.npz")


@pytest.mark.parametrize("look", [{"FORCE_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}], ids=["colour", "ascii"])
def test_the_reason_survives_a_terminal_with_colours_or_without_lines(look):
    command = [sys.executable, "-m", "valuedice.cli", "demos", "inspect", "x", "--stepps"]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | look, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("valuedice: error: Unrecognized options: --stepps")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",), ("demos",), ("demos", "--help")], ids=" ".join)
def test_help_lists_the_commands(run, args):
    result = run(*args)
    assert result.code == 0
    for command in ("train", "evaluate", "demos inspect", "ring"):
        assert command in result.out


@pytest.mark.parametrize("command", ["train", "train value-dice", "evaluate", "ring", "demos inspect"])
def test_every_command_has_help_of_its_own(run, command):
    result = run(*command.split(), "--help")
    assert result.code == 0
    assert f"usage: valuedice {command}" in result.out
    assert result.err == ""


def test_help_of_train_explains_every_hyperparameter(run):
    out = run("train", "--help").out
    for option in ("--discount", "--replay-regularization", "--actor-lr", "--initial-states", "--quiet"):
        assert option in out


def test_the_version_is_printed(run):
    result = run("--version")
    assert (result.code, result.out) == (0, f"valuedice {__version__}\n")


def test_evaluating_refuses_what_it_cannot_do(refused):
    Path("folder").mkdir()
    Path("text").write_text("no policy")
    assert "no policy at nobody" in refused("evaluate", "nobody", "--env", "Pendulum-v1")
    assert "no policy at folder" in refused("evaluate", "folder", "--env", "Pendulum-v1")
    assert "no readable safetensors" in refused("evaluate", "text", "--env", "Pendulum-v1")


@pytest.fixture
def trained(run) -> Path:
    """A quick run on demonstrations without an environment to step in."""
    store()
    result = run(*OFFLINE, *SMALL, "--updates", 2, "--env", "Pendulum-v1")
    assert result.code == 0
    return Path("run")


def test_a_run_can_be_evaluated_and_recorded_and_is_never_overwritten(run, refused, trained):
    result = run("evaluate", trained, "--episodes", 2)
    assert result.code == 0
    assert result.out.count("200 steps") == 2
    assert "over 2 episodes of Pendulum-v1" in result.out
    assert "negative" in refused("evaluate", trained, "--seed", -1)
    assert "at least 1" in refused("evaluate", trained, "--episodes", 0)
    assert "3 in the policy, 4 in CartPole-v1" in refused("evaluate", trained, "--env", "CartPole-v1")
    assert "already holds a run" in refused(*OFFLINE, *SMALL, "--updates", 2)

    command = ("demos", "collect", "--policy", trained, "--env", "Pendulum-v1", "--episodes", 1, "--out", "own.npz")
    assert run(*command).out.startswith("own.npz: 1 episodes, 200 steps")
    assert [len(episode) for episode in load_demos("own.npz").episodes] == [200]

    (trained / "config.json").write_text("{")
    assert "config.json cannot be read" in refused("evaluate", trained)
    (trained / "config.json").write_text(json.dumps({"eval_env": None}))
    assert "--env" in refused("evaluate", trained)


def test_training_says_what_came_of_it_and_quiet_says_nothing(run):
    store()
    command = (*OFFLINE[:-1], "first", *SMALL, "--updates", 2, "--eval-every", 1, "--eval-env", "Pendulum-v1")
    loud = run(*command)
    assert loud.code == 0
    assert "policy: first/policy.safetensors" in loud.out
    assert "expert: 7.5" in loud.out
    lines = loud.err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        f"value-dice on Pendulum-v1: {what}" for what in ("the run is in first", "1/2 updates", "2/2 updates")
    ]
    assert "\x1b" not in loud.err
    quiet = run(*command, "--out", "second", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert Path("second/policy.safetensors").read_bytes() == Path("first/policy.safetensors").read_bytes()


def test_without_env_and_demos_a_shipped_demonstration_is_imitated(run):
    assert run("train", *SMALL, "--steps", 4, "--out", "run", "--quiet").code == 0
    config = json.loads(Path("run/config.json").read_text())
    assert (config["env"], config["episodes"]) == ("HalfCheetah-v5", 1)
    assert Path(config["demos"]).name == "halfcheetah.npz"


def test_without_out_a_new_folder_is_made_each_time(run):
    store()
    for _ in range(2):
        assert run("train", "--offline", "--demos", "demos.npz", *SMALL, "--updates", 2, "--quiet").code == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "demos-value-dice-seed0",
        "demos-value-dice-seed0-2",
    ]


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m valuedice.cli demos inspect pendulum | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
