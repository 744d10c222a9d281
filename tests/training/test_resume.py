"""A run that was stopped and resumed is the run that was never stopped, bit for bit."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest
from resuming import killed, killed_and_resumed, result, same, train
from small import small

import valuedice as vd
from valuedice.errors import InputError
from valuedice.training.checkpoint import SLOTS


@pytest.mark.parametrize("saves", [1, 4, 5, 8, 15, 21])
def test_a_run_killed_at_any_step_ends_as_if_it_had_not_been(pendulum, whole, saves, tmp_path):
    killed_and_resumed(saves, pendulum, "Pendulum-v1", tmp_path / "run")
    assert same(tmp_path / "run", whole)


@pytest.mark.parametrize("saves", [1, 3, 5])
def test_offline_runs_resume_inside_a_block(pendulum, saves, tmp_path):
    train(pendulum, None, tmp_path / "whole", replay_data=pendulum)
    killed_and_resumed(saves, pendulum, None, tmp_path / "run", replay_data=pendulum)
    assert same(tmp_path / "run", tmp_path / "whole")


# Random actions end an episode after some twenty steps: the stops are between and inside episodes. On policy, three
# environments step at once, and an update follows each eight of these steps.
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("Hopper-v5", {"steps": 80, "eval_every": 15, "replay_capacity": 33}),
        ("CartPole-v1", {"steps": 150, "eval_every": 20, "algorithm": small("gail", rollout=24, environments=3)}),
    ],
)
def test_open_episodes_and_rollouts_are_restored(env, settings, tmp_path):
    demos = vd.collect_demos("random", env, 2)
    train(demos, env, tmp_path / "whole", **settings)
    for saves in (7, 8, 25, 40):
        killed_and_resumed(saves, demos, env, tmp_path / f"{saves}", **settings)
        assert same(tmp_path / f"{saves}", tmp_path / "whole")
    # More steps continue the open rollout and episodes, too. The end of the shorter run is one row more.
    train(demos, env, tmp_path / "7", **(settings | {"steps": 180, "resume": True}))
    train(demos, env, tmp_path / "longer", **(settings | {"steps": 180}))
    assert result(tmp_path / "7").last == result(tmp_path / "longer").last


# Of episodes that end in the task, every 20th step is used; rows, absorbing states and starts are found again.
@pytest.mark.parametrize("sampling", [{}, {"sampling": "geometric", "initial_states": "starts"}])
def test_a_run_on_subsampled_demonstrations_resumes(sampling, tmp_path):
    settings = {"algorithm": small(**sampling), "episodes": 2, "subsample": 20, "seed": 3}
    data = ("mountaincar", "MountainCarContinuous-v0")
    whole = train(*data, tmp_path / "whole", **settings)
    killed_and_resumed(9, *data, tmp_path / "run", **settings)
    assert same(tmp_path / "run", tmp_path / "whole")
    assert whole.metrics[-1]["expert_return"] == vd.load_demos("mountaincar").expert_return
    train(*data, tmp_path / "all", **(settings | {"subsample": 1}))
    assert result(tmp_path / "all").last != result(tmp_path / "whole").last


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_finished_run_stays_as_it_is_and_one_without_a_checkpoint_begins_again(
    pendulum, whole, copied, checkpoint
):
    if not checkpoint:
        shutil.rmtree(copied / "checkpoint")
    assert len(train(pendulum, "Pendulum-v1", copied, resume=True).metrics) == 7
    assert same(copied, whole)


def test_other_versions_are_named_in_a_warning(pendulum, copied, monkeypatch):
    monkeypatch.setattr("valuedice.training.run_folder.versions", lambda: {"jax": "0.0.1"})
    with pytest.warns(UserWarning, match="jax was .*: the run continues, but not bit for bit"):
        train(pendulum, "Pendulum-v1", copied, resume=True)


# Damage.


@pytest.fixture(scope="module")
def two_checkpoints(pendulum, tmp_path_factory) -> Path:
    """A run that was killed when both slots held a checkpoint."""
    out = tmp_path_factory.mktemp("killed") / "run"
    with killed(16):
        train(pendulum, "Pendulum-v1", out)
    return out


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    half = len(content) // 2
    rest = {"cut": b"", "flipped": bytes([content[half] ^ 1]) + content[half + 1 :]}
    path.unlink() if how == "removed" else path.write_bytes(content[:half] + rest[how])


@pytest.mark.parametrize("how", ["flipped", "cut", "removed"])
@pytest.mark.parametrize("what", ["state", "rows-0"])
@pytest.mark.parametrize("slot", SLOTS)
def test_a_damaged_checkpoint_gives_way_to_the_other(pendulum, whole, two_checkpoints, slot, what, how, tmp_path):
    out = Path(shutil.copytree(two_checkpoints, tmp_path / "run"))
    damage(out / "checkpoint" / slot / what, how)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(pendulum, "Pendulum-v1", out, resume=True)
    # A slot without its state was never completed, as far as anyone can tell.
    said = [str(each.message) for each in caught if "damaged" in str(each.message)]
    assert len(said) == (0 if (what, how) == ("state", "removed") else 1)
    assert same(out, whole)


def test_two_damaged_checkpoints_are_one_line(pendulum, two_checkpoints, tmp_path):
    out = Path(shutil.copytree(two_checkpoints, tmp_path / "run"))
    for slot in SLOTS:
        damage(out / "checkpoint" / slot / "state", "flipped")
    with pytest.raises(InputError, match="no checkpoint can be used"):
        train(pendulum, "Pendulum-v1", out, resume=True)


def test_a_checkpoint_of_a_newer_format_is_refused_with_what_to_do(pendulum, copied, monkeypatch):
    monkeypatch.setattr("valuedice.training.checkpoint.FORMAT", 0)
    with pytest.raises(InputError, match="format 1, this version reads up to 0; resume with the version"):
        train(pendulum, "Pendulum-v1", copied, resume=True)
