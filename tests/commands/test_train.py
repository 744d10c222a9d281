"""`valuedice train`: its flags, what it prints, and what it refuses before anything is written."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import fields
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest
from commanding import ROWS, small_flags, store
from tasks import box, linear_policy

from valuedice.algorithms import ALGORITHMS
from valuedice.algorithms.settings import settings_of
from valuedice.commands import train
from valuedice.training.config import TrainConfig
from valuedice.types import Spec

pytestmark = pytest.mark.usefixtures("own_folder")
ONLINE = ("train", "--env", "Pendulum-v1", "--demos", "demos.npz", "--out", "run")
OFFLINE = ("train", "--offline", "--demos", "demos.npz", "--out", "run")
NO_FLAGS = {"target_return", "robust", "on_evaluation", "loggers"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_flags_are_the_fields_of_the_config_and_of_the_algorithm(name, run):
    shown = {
        flag.replace("-", "_") for flag in re.findall(r"--(?!no-)([a-z][a-z-]*)", run("train", name, "--help").out)
    }
    settings = {entry.name for entry in fields(TrainConfig)} | set(settings_of(ALGORITHMS[name]()))
    assert shown == settings - NO_FLAGS | {"preset", "film", "help"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no demonstrations at demos.npz; give the path of an .npz file, or a shipped name: ant, cartpole"),
        (b"s,a\n1,2\n", "not an npz archive"),
        (pickle.dumps({"observations": [1]}), "a pickle"),
        ({"observations": None}, "observations"),
        ({"actions": np.full((ROWS, 1), np.nan)}, "actions holds NaN at row 0, column 0"),
        ({"actions": np.zeros((ROWS, 6))}, "actions have 6 dimensions, those of Pendulum-v1 1"),
        (
            {"actions": np.full((ROWS, 1), 2.5)},
            "first 2.5 at row 0, column 0 of episode 0, where Pendulum-v1 allows",
        ),
    ],
)
def test_data_that_cannot_be_used_are_refused_as_demonstrations_and_for_the_replay_buffer(content, says, refused):
    if isinstance(content, bytes):
        Path("demos.npz").write_bytes(content)
    elif content is not None:
        store(**content)
    assert says in refused(*ONLINE)
    store("good.npz")
    good = ("--demos", "good.npz", "--eval-env", "Pendulum-v1")
    assert says in refused(*OFFLINE, *good, "--replay-data", "demos.npz")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--steps", 0, "--steps is 0; it must be finite and at least 1"),
        ("--steps", "many", "Error parsing --steps: 'many' is not INT; see valuedice train value-dice --help"),
        ("--steps", "1.5", "'1.5' is not INT"),
        ("--seed", 2**64, "--seed is 18446744073709551616; it must be below 2**32"),
        ("--seed", "²", "--seed"),
        ("--threads", "²", "'²' is not INT"),
        ("--threads", "9" * 5000, "--threads"),
        ("--threads", 0, "--threads is 0"),
        ("--eval-every", 0, "--eval-every is 0"),
        ("--checkpoint-seconds", "inf", "--checkpoint-seconds is inf"),
        ("--episodes", 3, "--episodes is 3; it must be 1 to 2, the episodes of demos.npz"),
        ("--subsample", 0, "--subsample is 0; it must be finite and at least 1"),
        ("--subsample", "1.5", "Error parsing --subsample"),
        ("--subsample", 99, "--subsample is 99; it must be a whole number from 1 to "),
        ("--discount", 1, "--discount is 1.0"),
        ("--discount", "high", "--discount"),
        ("--hidden", 0, "--hidden is (0,); it must be one or more positive widths"),
        ("--sampling", "lucky", "'lucky' for argument '--sampling'"),
        ("--dones-are", "lucky", "--dones-are"),
        ("--env", "NoSuchTask-v0", "no environment 'NoSuchTask-v0'"),
        ("--eval-env", "a:b:c", "no environment 'a:b:c'"),
        ("--eval-env", "CartPole-v1", "CartPole-v1 has other observations or actions than Pendulum-v1"),
        ("--updates", 10, "--updates are for offline training; give --steps, or train with --offline"),
        ("--replay-data", "nowhere.npz", "no demonstrations at nowhere.npz"),
        ("--preset", "mine", "'mine' for argument '--preset'"),
        ("--keep", "best", "'best' for argument '--keep'"),
        ("--init-policy", "nowhere", "nowhere; give a policy.safetensors file or a run folder that has one"),
        ("--init-policy", ".", "; give a policy.safetensors file or a run folder that has one"),
        ("--init-policy", "demos.npz", "demos.npz"),
        ("--resume", "nowhere", "is nowhere a run folder?"),
        ("--out", "demos.npz", "demos.npz is a file; give a folder as --out"),
        ("--out", "demos.npz/run", "cannot write to demos.npz/run (Not a directory); choose another --out"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_flag(option, value, says, refused):
    store()
    message = refused(*ONLINE, option, value)
    assert says in message
    assert "`" not in message


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (
            box(3, 1, -2.0, 2.0),
            "units, this run 256, 256; set the widths of the policy, or use another --init-policy",
        ),
        (Spec(4, 2, discrete=True), "observations have 4 features, those of Pendulum-v1 3"),
        (box(3, 1), "other bounds of actions than Pendulum-v1, so its actions would be scaled"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_as_a_start(shape, says, refused):
    store()
    linear_policy(shape).save("start.safetensors")
    assert says in refused(*ONLINE, "--init-policy", "start.safetensors")


@pytest.mark.parametrize(
    ("preset", "keep", "kept"),
    [("default", None, "closest"), ("paper", None, "last"), ("paper", "closest", "closest")],
)
def test_the_preset_of_the_paper_keeps_the_last_policy_unless_told_otherwise(preset, keep, kept, run):
    store()
    given = {"preset": preset, "env": "Pendulum-v1", "updates": 2} | ({} if keep is None else {"keep": keep})
    command = ("train", "bc", *small_flags("bc", demos="demos.npz", out="run", **given))
    result = run(*command)
    assert result.code == 0
    assert ("kept: the policy of update 2, the closest of 1 evaluated ones\n" in result.out) == (kept == "closest")
    assert json.loads(Path("run/config.json").read_text())["keep"] == kept
    assert json.loads(Path("run/summary.json").read_text())["final"]["kept"] == kept


def test_a_setting_of_a_contained_learner_is_refused_by_its_flag(refused):
    store()
    message = refused("train", "dac", *ONLINE[1:], "--critic-lr", "0")
    assert message.startswith("valuedice: error: --critic-lr is 0.0; it must be positive")


@pytest.mark.parametrize("name", ["dac", "dual-dice", "gail"])
def test_what_cannot_learn_offline_says_so_and_never_advises_it(name, refused):
    store()
    for more in (("--offline",), ("--offline", "--env", "Pendulum-v1"), ("--steps", 50)):
        message = refused("train", name, "--demos", "demos.npz", *more)
        assert f"{name} cannot learn offline: it needs an environment to act in; name one with --env" in message


def test_what_training_cannot_do_without_is_asked_for(refused):
    store()
    for more in ((), ("--steps", 50)):
        message = refused("train", "--demos", "demos.npz", *more)
        assert "no environment given; name one with --env, or train without one with --offline" in message
    assert "name a file or shipped ones with --demos" in refused("train", "--env", "Pendulum-v1")
    assert "name a file or shipped ones with --demos" in refused("train", "--offline")
    assert "give --updates for offline training" in refused(*OFFLINE, "--steps", 10)


@pytest.mark.parametrize("held", ["config.json", "metrics.csv", "policy.safetensors", "summary.json"])
def test_a_folder_that_holds_another_run_is_left_as_it_is(held, refused):
    store()
    Path("run").mkdir()
    (Path("run") / held).write_text("precious")
    for command in (ONLINE, OFFLINE):
        assert "already holds a run; choose another --out" in refused(*command)


def test_training_prints_the_result_and_quiet_prints_nothing(run):
    store()
    command = (*OFFLINE[:-2], *small_flags(updates=2, eval_every=1, eval_env="Pendulum-v1"))
    loud = run(*command, "--out", "first")
    assert loud.code == 0
    result, distance, kept, divergence, policy, curves, following = loud.out.splitlines()
    assert result.startswith("return: -")
    assert " on fresh episodes, expert: 7.5 (normalised: " in result
    assert distance.startswith("distance from the demonstrations: ")
    assert kept.startswith("kept: the policy of ")
    assert divergence.startswith("divergence from the expert at the end (KL estimate): ")
    assert policy == "policy: first/policy.safetensors"
    assert curves.startswith("curves: first/metrics.csv, or tensorboard --logdir first")
    assert following == "next:   valuedice evaluate first --env Pendulum-v1 --episodes 10"
    lines = loud.err.splitlines()
    rows = [f"{done}/2 updates" for done in range(3)]
    assert [line.partition(",")[0] for line in lines] == [
        f"value-dice on Pendulum-v1: {what}"
        for what in ("the run is in first", "warm start: 0 of 3 updates of cloning", *rows)
    ]
    assert "\x1b" not in loud.err
    quiet = run(*command, "--out", "second", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert Path("second/policy.safetensors").read_bytes() == Path("first/policy.safetensors").read_bytes()
    assert run("evaluate", "first", "--episodes", 1).out.endswith("over 1 episodes of Pendulum-v1\n")


@pytest.mark.parametrize(
    ("name", "env", "demos", "episodes"),
    [("value-dice", "HalfCheetah-v5", "halfcheetah", 1), ("bc", "CartPole-v1", "cartpole", 11)],
)
def test_without_env_and_demos_a_shipped_demonstration_is_imitated(name, env, demos, episodes, run):
    length = {"updates": 2} if name == "bc" else {"steps": 6}
    assert run("train", name, *small_flags(name, out="run", quiet=True, **length)).code == 0
    config = json.loads(Path("run/config.json").read_text())
    assert (config["env"], config["demos"], config["episodes"]) == (env, demos, episodes)


def test_the_first_run_ends_with_the_return_beside_the_experts_and_a_film(run, monkeypatch):
    monkeypatch.setattr(train, "FILM_FRAMES", 3)
    result = run("train", *small_flags(out="run", steps=6))
    final = json.loads(Path("run/summary.json").read_text())["final"]
    assert (
        f"return: {final['return_mean']:.1f} ± {final['return_std']:.1f} on fresh episodes, expert: 5527.8 "
        f"(normalised: {final['normalized_return']:.2f})\n"
    ) in result.out
    if "cannot be drawn here" in result.out:
        pytest.skip(result.out)
    assert "film:   run/policy.gif, the recorded expert beside the policy\n" in result.out
    assert iio.imread("run/policy.gif").shape[0] == 3


@pytest.mark.parametrize("option", ["--no-film", "--quiet"])
def test_the_first_run_is_not_filmed_if_nobody_wants_it(option, run):
    assert run("train", option, *small_flags(out="run", steps=6)).code == 0
    assert not Path("run/policy.gif").exists()


def test_a_task_that_cannot_be_drawn_ends_with_its_policy_all_the_same(run):
    store()
    result = run(*ONLINE, "--film", *small_flags(steps=6))
    assert result.code == 0
    assert "film:   none (" in result.out
    assert Path("run/policy.safetensors").exists()


def test_without_out_a_new_folder_is_made_each_time(run):
    store()
    for _ in range(2):
        assert run("train", *OFFLINE[1:-2], *small_flags(updates=2, quiet=True)).code == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "demos-value-dice-seed0",
        "demos-value-dice-seed0-2",
    ]
