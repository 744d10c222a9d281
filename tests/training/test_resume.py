"""A run that was stopped and resumed is the run that was never stopped, bit for bit."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from resuming import KilledError, killed_after, result, same

import valuedice as vd
from valuedice.algorithms import ALGORITHMS
from valuedice.checkpoint import SLOTS
from valuedice.demos import Demos
from valuedice.errors import DivergenceError, InputError, Interrupted
from valuedice.explore import Explorer
from valuedice.interrupts import Signals
from valuedice.keeper import Keeper
from valuedice.replay import Replay
from valuedice.train import Run
from valuedice.types import Normalizer, Spec

SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 8, "updates_per_step": 2, "random_steps": 9}
SMALL |= {"training_starts": 7, "actor_lr": 1e-2}
ONLINE: dict[str, Any] = {"steps": 60, "eval_every": 15, "eval_episodes": 1, "quiet": True}
OFFLINE: dict[str, Any] = {"updates": 450, "eval_every": 75, "eval_episodes": 1, "quiet": True}


def train(demos: Demos, env: Any, out: Path, **changes: Any) -> Run:
    settings = ONLINE if env is not None else OFFLINE
    return vd.train(vd.ValueDICE(**SMALL), demos, env, out=out, **(settings | changes))


@pytest.fixture(scope="module")
def pendulum() -> Demos:
    return vd.load_demos("pendulum", episodes=1)


@pytest.fixture(scope="module")
def whole(pendulum, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    train(pendulum, "Pendulum-v1", out)
    return out


@pytest.mark.parametrize("saves", [1, 6, 7, 15, 29, 30, 44, 57])
def test_a_run_killed_at_any_step_ends_as_if_it_had_not_been(pendulum, whole, saves, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        killed_after(saves, patch)
        with pytest.raises(KilledError):
            train(pendulum, "Pendulum-v1", tmp_path / "run")
    train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)
    assert same(tmp_path / "run", whole)


@pytest.mark.parametrize("env", ["CartPole-v1", "Hopper-v5"])
def test_short_episodes_that_end_in_the_task_are_restored(env, tmp_path, monkeypatch):
    # Random actions fall after some twenty steps: the stops are between and inside episodes.
    demos = vd.collect_demos("random", env, 2)
    train(demos, env, tmp_path / "whole", steps=80)
    for saves in range(20, 50, 5):
        out = tmp_path / f"run{saves}"
        with monkeypatch.context() as patch:
            killed_after(saves, patch)
            with pytest.raises(KilledError):
                train(demos, env, out, steps=80)
        train(demos, env, out, steps=80, resume=True)
        assert same(out, tmp_path / "whole")


@pytest.mark.parametrize("saves", [1, 3, 8, 12])
def test_offline_runs_resume_inside_a_block(pendulum, saves, tmp_path, monkeypatch):
    train(pendulum, None, tmp_path / "whole", replay_data=pendulum)
    with monkeypatch.context() as patch:
        killed_after(saves, patch)
        with pytest.raises(KilledError):
            train(pendulum, None, tmp_path / "run", replay_data=pendulum)
    train(pendulum, None, tmp_path / "run", replay_data=pendulum, resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")


ON_POLICY = vd.GAIL(
    discriminator_hidden=(8,),
    discriminator_steps=2,
    discriminator_batch=4,
    ppo=vd.PPO(hidden=(8,), rollout=24, environments=3, minibatch=8, epochs=2),
)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_rollouts_resume_in_the_middle_of_them_and_of_their_episodes(env, tmp_path, monkeypatch):
    # Three steps at once, an update each eight times; episodes of CartPole end in the task after some twenty steps.
    demos = vd.collect_demos("random", env, 2)
    settings: dict[str, Any] = ONLINE | {"steps": 150, "eval_every": 20}
    vd.train(ON_POLICY, demos, env, out=tmp_path / "whole", **settings)
    for saves in (1, 7, 8, 9, 20, 27, 40):
        out = tmp_path / f"run{saves}"
        with monkeypatch.context() as patch:
            killed_after(saves, patch)
            with pytest.raises(KilledError):
                vd.train(ON_POLICY, demos, env, out=out, **settings)
        vd.train(ON_POLICY, demos, env, out=out, resume=True, **settings)
        assert same(out, tmp_path / "whole")


def test_an_on_policy_run_goes_on_to_more_steps_and_a_finished_one_stays(pendulum, tmp_path):
    for steps, name in ((100, "run"), (150, "run"), (150, "run"), (150, "whole")):
        out = tmp_path / name
        settings: dict[str, Any] = ONLINE | {"steps": steps, "eval_every": 50}
        vd.train(ON_POLICY, pendulum, "Pendulum-v1", out=out, resume=out.exists(), **settings)
    assert result(tmp_path / "run")[0] == result(tmp_path / "whole")[0]


def test_a_buffer_that_overflows_is_restored(pendulum, tmp_path, monkeypatch):
    train(pendulum, "Pendulum-v1", tmp_path / "whole", replay_capacity=23)
    with monkeypatch.context() as patch:
        killed_after(41, patch)
        with pytest.raises(KilledError):
            train(pendulum, "Pendulum-v1", tmp_path / "run", replay_capacity=23)
    train(pendulum, "Pendulum-v1", tmp_path / "run", replay_capacity=23, resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")


def test_a_finished_run_goes_on_to_more_steps_as_if_they_had_been_asked_for_at_once(pendulum, whole, tmp_path):
    train(pendulum, "Pendulum-v1", tmp_path / "run", steps=30)
    train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)
    assert same(tmp_path / "run", whole)


def test_resuming_a_finished_run_changes_nothing(pendulum, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    run = train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)
    assert same(tmp_path / "run", whole)
    assert len(run.metrics) == 4


def test_a_run_without_a_checkpoint_begins_again(pendulum, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)
    assert same(tmp_path / "run", whole)


def test_events_after_the_checkpoint_are_dropped(pendulum, whole, tmp_path, monkeypatch):
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

    def steps(path: Path) -> list[int]:
        (events,) = path.glob("events.out.tfevents.*")
        data, found = events.read_bytes(), []
        while data:
            size = int.from_bytes(data[:8], "little")
            found.append(Event.FromString(data[12 : 12 + size]).step)
            data = data[16 + size :]
        return found

    with monkeypatch.context() as patch:
        killed_after(44, patch)
        with pytest.raises(KilledError):
            train(pendulum, "Pendulum-v1", tmp_path / "run")
    assert steps(tmp_path / "run") == [0, 15, 30, 45]
    train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)
    assert steps(tmp_path / "run") == steps(whole) == [0, 15, 30, 45, 60]


# Damage.


def damaged(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 1
    elif how == "cut":
        content = content[: len(content) // 2]
    path.write_bytes(bytes(content)) if how != "removed" else path.unlink()


@pytest.mark.parametrize("how", ["flipped", "cut", "removed"])
@pytest.mark.parametrize("what", ["state", "rows-0"])
@pytest.mark.parametrize("slot", SLOTS)
def test_a_damaged_checkpoint_gives_way_to_the_other(pendulum, whole, slot, what, how, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        killed_after(40, patch)
        with pytest.raises(KilledError):
            train(pendulum, "Pendulum-v1", tmp_path / "run")
    damaged(tmp_path / "run" / "checkpoint" / slot / what, how)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)
    # A slot without its state was never completed, as far as anyone can tell.
    said = [str(each.message) for each in caught if "damaged" in str(each.message)]
    assert len(said) == (0 if (what, how) == ("state", "removed") else 1)
    assert same(tmp_path / "run", whole)


def test_two_damaged_checkpoints_are_one_line(pendulum, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    for slot in SLOTS:
        path = tmp_path / "run" / "checkpoint" / slot / "state"
        if path.exists():
            damaged(path, "flipped")
    with pytest.raises(InputError, match="no checkpoint can be used"):
        train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)


def test_a_checkpoint_of_a_newer_format_is_refused_with_what_to_do(pendulum, whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "run")
    monkeypatch.setattr("valuedice.checkpoint.FORMAT", 0)
    with pytest.raises(InputError, match="format 1, this version reads up to 0; resume with the version"):
        train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)


# Drift.


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed was 0, now 1"),
        ({"replay_capacity": 7}, "replay_capacity was 1000000, now 7"),
        ({"eval_episodes": 2}, "eval_episodes was 1, now 2"),
    ],
)
def test_changed_settings_are_refused_by_name(pendulum, whole, changes, named, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    before = result(tmp_path / "run")
    with pytest.raises(InputError, match=named):
        train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True, **changes)
    assert result(tmp_path / "run") == before


def test_other_demonstrations_are_refused_wherever_they_come_from(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(InputError, match="demos_fingerprint was"):
        train(vd.load_demos("pendulum", episodes=1, seed=3), "Pendulum-v1", tmp_path / "run", resume=True)


def test_fewer_steps_than_were_made_are_refused(pendulum, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(InputError, match="has already made 60 steps, and 30 are asked for"):
        train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True, steps=30)


def test_evaluating_more_often_changes_no_parameter(pendulum, whole, tmp_path):
    train(pendulum, "Pendulum-v1", tmp_path / "run", steps=30)
    train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True, eval_every=10)
    assert result(tmp_path / "run")[0] == result(whole)[0]


def test_other_versions_are_said(pendulum, whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "run")
    monkeypatch.setattr("valuedice.training.versions", lambda: {"jax": "0.0.1"})
    with pytest.warns(UserWarning, match="the run goes on, but not bit for bit"):
        train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)


def test_a_newer_run_folder_is_refused(pendulum, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps(config | {"format": 99}))
    with pytest.raises(InputError, match="format 99, this version resumes 3; it needs a newer version"):
        train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)


# Environments.


class Forgetful(gym.Env):
    """Its observations come from nowhere."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(-10, 10, (3,)), spaces.Box(-2, 2, (1,))
        self.hidden = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.hidden.normal(size=3).astype(np.float32), {}

    def step(self, action):
        return self.hidden.normal(size=3).astype(np.float32), 0.0, False, False, {}


def test_an_environment_that_does_not_repeat_itself_is_said_and_begins_a_new_episode(tmp_path):
    spec = Spec(3, 1, low=(-2.0,), high=(2.0,))
    normalizer = Normalizer(np.zeros(3, np.float32), np.ones(3, np.float32))

    def explorer() -> Explorer:
        settings = {"random_steps": 99, "noise": 0.0, "seed": 0}
        return Explorer(Forgetful(), Replay(spec, 50), spec, normalizer, **settings)

    first = explorer()
    for _ in range(5):
        first.step(lambda: pytest.fail("asked the policy"))
    second = explorer()
    second.replay.restore(0, first.replay.export(0, 5))
    with pytest.warns(UserWarning, match="does not repeat an episode"):
        second.restore(*first.save())
    second.step(lambda: pytest.fail("asked the policy"))
    assert second.replay.last[:6].tolist() == [4, 4, 4, 4, 4, -1]
    assert second.steps == 6


# Signals and divergence.


def test_a_signal_saves_and_the_run_goes_on(pendulum, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["valuedice.train"], "deferred", lambda: pretend(Signals(caught=15)))
        with pytest.raises(Interrupted, match=r"stopped after 1 steps; .* --resume") as stop:
            train(pendulum, "Pendulum-v1", tmp_path / "run")
    assert stop.value.signum == 15
    train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True)
    assert same(tmp_path / "run", whole)


class pretend:  # noqa: N801
    """A context that hands out what it was given."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __enter__(self) -> Any:
        return self.value

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("name", ALGORITHMS)
def test_divergence_stops_at_once_and_keeps_what_was_good(name, pendulum, tmp_path, monkeypatch):
    out = tmp_path / "run"
    train(pendulum, "Pendulum-v1", out, steps=30)
    good, _ = result(out)
    # From here on every loss is NaN, as after a step that was too large.
    monkeypatch.setattr("valuedice.learner.run_updates", broken(monkeypatch))
    with pytest.raises(DivergenceError, match=r"objective is nan at 31 steps.*checkpoint of 30 steps"):
        train(pendulum, "Pendulum-v1", out, resume=True)
    assert result(out)[0] == good
    last = (out / "metrics.csv").read_text().splitlines()[-1]
    assert last.startswith("31,")
    assert "nan" in last


def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    import valuedice.learner as module

    real = module.run_updates

    def run_updates(algorithm: Any, state: Any, batches: Any) -> Any:
        state, metrics = real(algorithm, state, batches)
        return state, metrics | {"objective": np.float32("nan")}

    return run_updates


def test_a_sample_that_stays_too_small_is_divergence(pendulum, tmp_path, monkeypatch):
    out = tmp_path / "run"
    train(pendulum, "Pendulum-v1", out, steps=30)
    good, _ = result(out)
    monkeypatch.setattr("valuedice.guard.LEAST_SAMPLE_SIZE", 2.0)
    with pytest.raises(
        DivergenceError, match=r"effective_sample_size is .* since 35 steps.*checkpoint of 30 steps"
    ):
        train(pendulum, "Pendulum-v1", out, resume=True, eval_every=5)
    assert result(out)[0] == good
    assert (out / "metrics.csv").read_text().splitlines()[-1].startswith("45,")


def test_parameters_that_are_not_finite_never_reach_a_checkpoint(pendulum, tmp_path, monkeypatch):
    out = tmp_path / "run"
    real = Keeper.save

    def poisoned(self: Keeper, now: bool = False) -> None:
        if self.training.done == 20:
            leaves = self.training.learner.state.nu[0]
            object.__setattr__(self.training.learner.state, "nu", (leaves._replace(kernel=leaves.kernel * np.nan),))
            real(self, now=True)
        elif self.training.done == 10:
            real(self, now=True)

    monkeypatch.setattr(Keeper, "save", poisoned)
    with pytest.raises(DivergenceError, match=r"nu.*is not finite after 20 steps.*checkpoint of 10 steps"):
        train(pendulum, "Pendulum-v1", out)
