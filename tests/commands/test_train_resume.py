"""`valuedice train --resume`: flags may repeat what is stored, and changes of the result are refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commanding import flags, small_flags
from small import small

import valuedice as vd
from valuedice.algorithms import BC, ValueDICE
from valuedice.algorithms.settings import settings_of
from valuedice.cli import main
from valuedice.commands.train import TRAIN
from valuedice.training.config import stored_fields

PENDULUM: dict[str, Any] = {"demos": "pendulum", "episodes": 1, "quiet": True}
ONLINE: dict[str, Any] = PENDULUM | {"env": "Pendulum-v1", "steps": 8}
OFFLINE: dict[str, Any] = PENDULUM | {"eval_env": "Pendulum-v1", "offline": True, "updates": 2}
BEGUN: dict[str, list[str]] = {
    "online": small_flags(**ONLINE),
    "offline": ["value-dice", *small_flags(**OFFLINE, replay_data="pendulum", dones_are="truncated")],
    "subsampled": small_flags(**OFFLINE, preset="paper", subsample=20, seed=3),
    "bc": ["bc", *small_flags("bc", **PENDULUM, updates=2, preset="paper", env="Pendulum-v1", lr=0.5)],
    "dac": ["dac", *small_flags("dac", **ONLINE, one_sided=True, preset="paper", seed=3, episodes_seed=1)],
    "gail": ["gail", *small_flags("gail", **ONLINE, preset="paper", replay_capacity=9, checkpoint_seconds=5)],
}
Begun = Callable[[str], Path]
pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Begun:
    """The folder of a finished run, trained once."""
    folder = tmp_path_factory.mktemp("begun")

    def make(name: str) -> Path:
        if not (folder / name).exists():
            assert main(["train", *BEGUN[name], "--out", str(folder / name)]) == 0
        return folder / name

    return make


@pytest.fixture
def copied(begun) -> Begun:
    """A copy of that folder under the name "run"."""
    return lambda name: Path(shutil.copytree(begun(name), "run"))


def stored(out: Path) -> dict[str, Any]:
    """All settings in `config.json` that are flags, those of the algorithm and of what it contains too."""
    config = json.loads((out / "config.json").read_text())
    found = {entry.name: config[entry.name] for entry in stored_fields() if entry.name not in TRAIN.hidden}
    settings = [config["hyperparameters"]]
    for part in settings:
        settings += [value for value in part.values() if isinstance(value, dict)]
        found |= {name: value for name, value in part.items() if not isinstance(value, dict)}
    return {name: value for name, value in found.items() if value is not None}


def accepted(run: Any, out: Path, *args: str) -> None:
    """A finished run is resumed without a word and without a change."""
    before, policy = stored(out), (out / "policy.safetensors").read_bytes()
    result = run("train", *args, "--resume", out, "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert (stored(out), (out / "policy.safetensors").read_bytes()) == (before, policy)


@pytest.mark.parametrize("name", BEGUN)
def test_the_command_line_that_began_a_run_resumes_it(name, begun, run):
    accepted(run, begun(name), *BEGUN[name], "--out", str(begun(name)))


@pytest.mark.parametrize("name", BEGUN)
def test_all_that_is_stored_may_be_said_again(name, begun, run):
    out = begun(name)
    accepted(run, out, *flags(stored(out)))


SETTINGS = {entry.name for entry in stored_fields()} | set(settings_of(ValueDICE()))
UNSET = {"dones_are", "updates", "replay_data", "init_policy", *TRAIN.hidden}


@pytest.mark.parametrize("setting", sorted(SETTINGS - UNSET))
def test_each_stored_setting_may_be_said_again(setting, begun, run):
    out = begun("online")
    accepted(run, out, *flags({setting: stored(out)[setting]}))


def test_a_quiet_run_may_be_resumed_aloud(begun, run):
    result = run("train", "--resume", begun("online"), "--no-quiet")
    assert result.code == 0
    assert f"policy: {begun('online')}/policy.safetensors" in result.out
    assert "value-dice on Pendulum-v1: the run is in" in result.err


def test_settings_that_do_not_decide_what_is_learned_may_change(copied, run):
    out = copied("online")
    changes = {"steps": 10, "eval_every": 3, "checkpoint_seconds": 7.0}
    result = run("train", "--resume", out, "--quiet", *flags(changes))
    assert (result.code, result.err) == (0, "")
    assert stored(out).items() >= changes.items()
    assert [row["step"] for row in vd.load_run(out).metrics] == [0, 8, 9, 10]


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("online", {"seed": 1}, "--seed was 0, now 1"),
        ("online", {"eval_episodes": 2}, "--eval-episodes was 1, now 2"),
        ("online", {"replay_capacity": 9}, "--replay-capacity was 1000000, now 9"),
        ("online", {"episodes": 2}, "--episodes was 1, now 2"),
        ("online", {"episodes_seed": 5}, "--demos holds other episodes"),
        ("online", {"discount": 0.9, "hidden": 8}, "--discount was 0.99, now 0.9; --hidden was [16], now [8]"),
        ("online", {"sampling": "geometric"}, "--sampling was uniform, now geometric"),
        ("online", {"offline": True}, "give --updates for offline training"),
        ("online", {"steps": 7}, "has already made 8 steps, more than the 7 asked for"),
        ("online", {"out": "elsewhere"}, "--out is elsewhere, but a resumed run stays in run; omit --out"),
        ("online", {"preset": "default"}, "take more --steps, or lower --training-starts"),
        ("offline", {"offline": False, "env": "Pendulum-v1"}, "--updates are for offline training; give --steps"),
        ("offline", {"replay_data": "mountaincar"}, "--replay-data holds other episodes"),
        ("subsampled", {"subsample": 10}, "--subsample was 20, now 10; --demos holds other episodes"),
        ("bc", {"preset": "paper"}, "--lr was 0.5, now "),
        ("dac", {"one_sided": False}, "--one-sided was True, now False"),
        ("dac", {"critic_lr": 0.5}, "--critic-lr was "),
        ("gail", {"minibatch": 4}, "--minibatch was 2, now 4"),
    ],
)
def test_a_change_of_the_result_is_refused_by_its_flag(name, changes, says, copied, refused):
    message = refused("train", "--resume", copied(name), *flags(changes))
    assert says in message
    assert "`" not in message


def test_a_run_of_another_algorithm_is_refused(copied, refused):
    out = copied("online")
    assert "the run is one of value-dice, not of bc; omit the algorithm" in refused("train", "bc", "--resume", out)
    assert "run is a run of value-dice; resume it with valuedice train" in refused("expert", "--resume", out)


@dataclass(frozen=True)
class Mine(BC):
    """An algorithm that the command line does not know."""


def test_what_only_python_can_resume_is_refused_with_how(run, refused):
    recorded = vd.collect_demos("random", "Pendulum-v1", 1)
    train: dict[str, Any] = {"updates": 2, "quiet": True, "eval_episodes": 1}
    vd.train(Mine(hidden=(8,)), "pendulum", out="algorithm", **train)
    vd.train(small("bc"), recorded, out="demos", **train)
    vd.train(small("bc"), "pendulum", lambda: vd.envs.make.make_env("Pendulum-v1"), out="env", **train)
    call = "resume it from Python: load_run('algorithm', algorithm=…).resume()\n"
    assert f"algorithm is a run of Mine; {call}" in refused("train", "--resume", "algorithm")
    call = "was begun with Python objects; resume it from Python: load_run('demos').resume(demos=…)\n"
    assert call in refused("train", "--resume", "demos")
    assert "load_run('env').resume(env=…" in refused("train", "--resume", "env", "--env", "Pendulum-v1")
    # The same data from a file are the same data.
    recorded.save("recorded.npz")
    assert run("train", "--resume", "demos", "--demos", "recorded.npz", "--quiet").code == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 5}, "run has format 5; this version resumes only format 6: start a new run in another folder"),
        ({"format": 99}, "run has format 99; this version resumes only format 6: use a newer version of valuedice"),
        ({"format": None}, "config.json has unexpected content; is run a run folder?"),
        ({"seed": "none", "hidden": 3, "env": 3}, "config.json has unexpected content (env, seed)"),
        ({"algorithm": ["bc"]}, "config.json has unexpected content (algorithm)"),
        ({"hyperparameters": {"hidden": "wide"}}, "config.json has unexpected content (hyperparameters)"),
        ({"hyperparameters": {"discount": 2}}, " is 2; it must be above 0 and below 1"),
        ({"fingerprints": []}, "config.json has unexpected content; is run a run folder?"),
    ],
)
def test_the_config_of_another_version_or_a_damaged_one_is_refused(changes, says, copied, refused):
    path = copied("online") / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert says in refused("train", "--resume", "run")
