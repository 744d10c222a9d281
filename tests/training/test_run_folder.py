"""What a run leaves behind, what may change when it is resumed, and who may write there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from resuming import train
from small import same, small

import valuedice as vd
from valuedice.errors import InputError


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_folder_holds_what_the_design_promises(finished, whole, pendulum):
    names = sorted(path.name.partition(".tfevents")[0] for path in whole.iterdir())
    policies = ["policy.safetensors", "policy-last.safetensors"]
    promised = ["config.json", "metrics.csv", *policies, "summary.json", "checkpoint"]
    assert names == sorted([*promised, ".lock", "events.out"])
    assert same(vd.load_policy(whole), finished.policy)
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["final"] == finished.final
    assert summary["last"] == finished.metrics[-1]
    assert summary["best"] == max(finished.metrics, key=lambda row: row["return_mean"])
    assert {"python", "valuedice", "jax", "gymnasium"} <= set(summary["versions"])
    assert summary["hardware"]["cores"] >= 1
    config = json.loads((whole / "config.json").read_text())
    expected = {"algorithm": "value-dice", "env": "Pendulum-v1", "eval_env": "Pendulum-v1", "steps": 24, "seed": 0}
    expected |= {"demos": "pendulum", "episodes": 1, "episodes_seed": 0, "updates": None, "offline": False}
    assert expected.items() <= config.items()
    assert config["hyperparameters"]["hidden"] == [16]
    assert config["fingerprints"] == {"demos": pendulum.fingerprint(), "replay_data": None}


def test_a_folder_that_holds_a_run_is_refused_and_left_as_it_is(whole, pendulum):
    before = content(whole)
    with pytest.raises(InputError, match=r"already holds a run; choose another `out`, remove .*, or resume it"):
        train(pendulum, out=whole)
    assert content(whole) == before


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "`seed` was 0, now 1"),
        ({"replay_capacity": 7}, "`replay_capacity` was 1000000, now 7"),
        ({"eval_episodes": 1}, "`eval_episodes` was 2, now 1"),
        ({"offline": True, "updates": 50, "steps": None}, "`offline` was False, now True"),
        ({"demos": vd.load_demos("pendulum", episodes=1, seed=3)}, "`demos` holds other episodes"),
        ({"demos": "pendulum", "episodes": 2}, "`episodes` was 1, now 2"),
        ({"replay_data": "pendulum"}, "`replay_data` holds other episodes"),
        ({"subsample": 5}, "`subsample` was 1, now 5; `demos` holds other episodes"),
        ({"algorithm": small(discount=0.9)}, "`discount` was 0.99, now 0.9"),
        ({"algorithm": small("dual-dice")}, "`algorithm` was value-dice, now dual-dice"),
        ({"keep": "last"}, "`keep` was closest, now last"),
        ({"init_policy": "other"}, "`init_policy` was None, now .*other"),
        ({"steps": 20}, "has already made 24 steps, more than the 20 asked for; ask for more"),
    ],
)
def test_changes_that_would_change_the_result_are_refused_by_name(pendulum, whole, changes, named):
    before = content(whole)
    settings: dict[str, Any] = {"demos": pendulum, "env": "Pendulum-v1"} | changes
    with pytest.raises(InputError, match=named):
        train(out=whole, resume=True, **settings)
    assert content(whole) == before


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": 99}, "has format 99; .*: use a newer version"),
        ({"format": 4}, "has format 4; .*: start a new run"),
        ({"format": "5"}, "unexpected content; is .* a run folder"),
        ({"keep": ...}, "lacks 'keep'; start a new run, in another folder"),
    ],
)
def test_the_config_of_another_version_is_refused_with_what_to_do(copied, changed, says):
    config = json.loads((copied / "config.json").read_text()) | changed
    text = json.dumps({name: value for name, value in config.items() if value is not ...})
    (copied / "config.json").write_text(text)
    with pytest.raises(InputError, match=says):
        vd.load_run(copied)


def test_a_folder_in_use_is_refused(pendulum, tmp_path):
    with pytest.raises(InputError, match=r"another run is using .*; wait for it, or choose another folder"):
        train(pendulum, None, tmp_path / "run", on_evaluation=lambda _: vd.load_run(tmp_path / "run").resume())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"env": "CartPole-v1"}, "observations have 3 features, those of CartPole-v1 4"),
        ({"env": "Pendulum-v1", "eval_env": "CartPole-v1"}, "CartPole-v1 has other observations or actions than"),
        ({"replay_data": "cartpole"}, "observations have 4 features, those of .* 3"),
        ({"demos": 5}, "demonstrations are 5; give a name, a path, or what load_demos returns"),
        ({"demos": "pendulum", "episodes": 99}, "99.*11"),
        ({"demos": "pendulum", "subsample": 201}, "`subsample` is 201; it must be a whole number from 1 to 200"),
    ],
)
def test_data_that_do_not_fit_are_refused_before_anything_is_written(pendulum, tmp_path, settings, says):
    with pytest.raises(InputError, match=says):
        train(**({"demos": pendulum} | settings), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
