"""The loop, on small networks and few steps: what a run is, what it leaves behind, and what must not matter."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal
from small import all_finite, same, small

import valuedice as vd
from valuedice.demos import Demos, Episode
from valuedice.errors import InputError
from valuedice.evaluate import Evaluator
from valuedice.train import Run, Task
from valuedice.types import Spec

COLUMNS = (
    "step",
    "updates",
    "wall_seconds",
    "return_mean",
    "return_std",
    "expert_return",
    "normalized_return",
    "kl_estimate",
)
QUICK: dict[str, Any] = {"steps": 12, "eval_every": 4, "eval_episodes": 2, "quiet": True}


def quick(**changes: Any) -> dict[str, Any]:
    return QUICK | changes


@pytest.fixture(scope="module")
def pendulum() -> Demos:
    return vd.load_demos("pendulum", episodes=1)


@pytest.fixture(scope="module")
def cartpole() -> Demos:
    return vd.load_demos("cartpole", episodes=1)


@pytest.fixture(scope="module")
def falling() -> Demos:
    """Episodes that end in the task, some after a dozen steps."""
    demos = vd.collect_demos("random", "CartPole-v1", 4)
    assert all(episode.terminated for episode in demos.episodes)
    return demos


@pytest.fixture(scope="module")
def online(pendulum, tmp_path_factory) -> Run:
    return vd.train(small(), pendulum, "Pendulum-v1", out=tmp_path_factory.mktemp("runs") / "online", **QUICK)


def test_train_and_evaluate_are_functions_although_modules_have_their_names():
    # This file has imported from both modules, which binds them in the package.
    assert callable(vd.train)
    assert callable(vd.evaluate)


# What a run is.


def test_evaluating_more_often_does_not_change_what_is_learned_online(online, pendulum):
    other = vd.train(small(), pendulum, "Pendulum-v1", **quick(eval_every=3, eval_episodes=1))
    assert [row["step"] for row in other.metrics] == [3, 6, 9, 12]
    assert same(online.policy, other.policy)


def test_evaluating_more_often_does_not_change_what_is_learned_offline(pendulum):
    # The compiled call makes as many updates as fit between evaluations: 8, 2 and 1.
    runs = [vd.train(small(), pendulum, updates=8, eval_every=every, quiet=True) for every in (8, 2, 1)]
    assert [len(run.metrics) for run in runs] == [1, 4, 8]
    assert same(runs[0].policy, runs[1].policy)
    assert same(runs[0].policy, runs[2].policy)


def test_updates_begin_when_training_starts_and_are_counted(online):
    assert [(row["step"], row["updates"]) for row in online.metrics] == [(4, 0), (8, 8), (12, 16)]


def test_the_last_step_is_evaluated_even_if_it_is_no_multiple(pendulum):
    run = vd.train(small(), pendulum, "Pendulum-v1", **quick(steps=7, eval_every=5))
    assert [row["step"] for row in run.metrics] == [5, 7]


def test_updates_change_the_policy(online):
    untrained = small().init(jax.random.key(0), online.policy.spec)
    for (kernel, _), before in zip(online.policy.layers, untrained.actor, strict=True):
        assert kernel.shape == before.kernel.shape
        assert not np.array_equal(kernel, np.array(before.kernel))


def test_log_ratio_gives_a_finite_number_for_each_row(online, pendulum):
    rows = online.transitions(pendulum)
    ratio = online.algorithm.log_ratio(online.state, rows)
    assert ratio.shape == (pendulum.rows,)
    assert bool(jnp.isfinite(ratio).all())


def test_the_normaliser_and_bounds_of_the_policy_are_those_of_data_and_task(online, pendulum):
    observations = pendulum.episodes[0].observations.astype(np.float64)
    assert_allclose(online.policy.normalizer.mean, observations.mean(0), rtol=1e-5, atol=1e-6)
    assert (online.policy.spec.low, online.policy.spec.high) == ((-2.0,), (2.0,))


# What it leaves behind.


def test_a_run_folder_holds_what_the_design_promises(online):
    names = {path.name for path in folder(online).iterdir() if "tfevents" not in path.name}
    assert names == {"config.json", "metrics.csv", "policy.safetensors", "summary.json", "checkpoint", ".lock"}
    events = list(folder(online).glob("events.out.tfevents*"))
    assert len(events) == 1
    assert events[0].stat().st_size > 0


def folder(run: Run) -> Path:
    assert run.out is not None
    return run.out


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_metrics_have_a_row_for_each_evaluation_also_one_before_the_first_update(online):
    rows = read_csv(folder(online) / "metrics.csv")
    assert len(rows) == len(online.metrics) == 3
    assert list(rows[0])[: len(COLUMNS) - 1] == list(COLUMNS[:-1])
    for written, row in zip(rows, online.metrics, strict=True):
        assert set(written) == set(online.metrics[-1])
        for name, cell in written.items():
            value = row.get(name)
            assert cell == "" if value is None else float(cell) == pytest.approx(value, rel=1e-6, abs=1e-12)
    assert rows[0]["nu_penalty"] == ""  # nothing was learned yet
    assert rows[1]["nu_penalty"] != ""


def test_the_saved_policy_is_that_of_the_last_step(online):
    assert same(vd.load_policy(folder(online)), online.policy)


def test_the_summary_has_the_last_and_the_best_row_and_where_they_come_from(online):
    summary = json.loads((folder(online) / "summary.json").read_text())
    assert summary["last"] == online.metrics[-1]
    assert summary["best"] == max(online.metrics, key=lambda row: row["return_mean"])
    assert {"python", "valuedice", "jax", "gymnasium"} <= set(summary["versions"])
    assert summary["hardware"]["cores"] >= 1


def test_the_config_says_how_to_repeat_the_run(online, pendulum):
    config = json.loads((folder(online) / "config.json").read_text())
    expected = {"algorithm": "value-dice", "env": "Pendulum-v1", "steps": 12, "updates": None, "seed": 0}
    expected |= {"demos": pendulum.source, "episodes": 1, "discount": 0.99, "hidden": [16]}
    assert expected.items() <= config.items()


def test_a_folder_that_holds_a_run_is_refused_and_left_as_it_is(online, pendulum):
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder(online).rglob("*") if path.is_file()}

    before = content()
    with pytest.raises(InputError, match="already holds a run"):
        vd.train(small(), pendulum, updates=2, out=online.out)
    assert content() == before


# Returns.


def test_a_normalised_return_is_one_at_the_expert_and_zero_at_random_actions(online):
    evaluator = Evaluator("Pendulum-v1", 10)
    random, expert = evaluator.random().mean, vd.load_demos("pendulum").expert_return
    evaluator.close()
    assert expert is not None
    for row in online.metrics:
        assert row["expert_return"] == expert
        assert row["normalized_return"] == pytest.approx((row["return_mean"] - random) / (expert - random))


def bare(demos: Demos) -> Demos:
    """Without rewards."""
    return Demos.from_episodes([replace(episode, rewards=None) for episode in demos.episodes], "bare")


def test_without_rewards_the_normalised_return_is_empty(pendulum, tmp_path):
    run = vd.train(small(), bare(pendulum), "Pendulum-v1", out=tmp_path / "run", **quick(steps=8))
    row = read_csv(tmp_path / "run" / "metrics.csv")[-1]
    assert (row["expert_return"], row["normalized_return"]) == ("", "")
    assert float(row["return_mean"]) == pytest.approx(run.metrics[-1]["return_mean"], rel=1e-6)


class Indifferent(gym.Env[Any, Any]):
    """Five steps in the shape of Pendulum-v1, whatever is done, and no reward."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(-10, 10, (3,)), spaces.Box(-2, 2, (1,))
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.np_random.normal(size=3).astype(np.float32), 0.0, False, self.steps == 5, {}


def test_where_random_actions_do_as_well_as_the_expert_the_normalised_return_is_empty(online):
    evaluator = Evaluator(Indifferent, 2)
    task = Task("Indifferent", evaluator.spec, [], evaluator, expert_return=0.0)
    row = task.returns(online.policy, [0, 0])
    assert (row["return_mean"], row["normalized_return"]) == (0.0, None)


def test_an_environment_may_be_a_function_that_makes_one(pendulum, tmp_path):
    run = vd.train(small(), pendulum, Indifferent, out=tmp_path / "run", **quick(steps=8))
    assert run.metrics[-1]["return_mean"] == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["env"] == "Indifferent"


# Ways to train.


def test_offline_training_touches_no_environment(pendulum, monkeypatch, tmp_path):
    def touched(*_: Any, **__: Any) -> Any:
        raise AssertionError("an environment was made")

    monkeypatch.setattr(gym, "make", touched)
    run = vd.train(small(), pendulum, env=None, updates=8, eval_every=4, quiet=True, out=tmp_path / "run")
    assert all_finite(run)
    assert [(row["step"], row["updates"]) for row in run.metrics] == [(0, 4), (0, 8)]
    rows = read_csv(tmp_path / "run" / "metrics.csv")
    assert {row["return_mean"] + row["return_std"] + row["normalized_return"] for row in rows} == {""}
    assert (tmp_path / "run" / "summary.json").is_file()


def test_offline_evaluation_changes_nothing_but_the_returns(pendulum):
    options: dict[str, Any] = {"updates": 8, "eval_every": 8, "eval_episodes": 2, "quiet": True}
    blind, seeing = (vd.train(small(), pendulum, eval_env=env, **options) for env in (None, "Pendulum-v1"))
    assert same(blind.policy, seeing.policy)
    assert blind.metrics[-1]["return_mean"] is None
    assert seeing.metrics[-1]["return_mean"] < 0


def test_other_data_take_part_offline(pendulum):
    options: dict[str, Any] = {"updates": 8, "eval_every": 2, "quiet": True}
    alone = vd.train(small(), pendulum, **options)
    random = vd.collect_demos("random", "Pendulum-v1", 2)
    mixed = vd.train(small(), pendulum, replay_data=random, **options)
    assert all_finite(mixed)
    assert not same(alone.policy, mixed.policy)


def test_other_data_take_part_online(online, pendulum):
    random = vd.collect_demos("random", "Pendulum-v1", 1)
    run = vd.train(small(), pendulum, "Pendulum-v1", replay_data=random, **QUICK)
    assert all_finite(run)
    assert not same(run.policy, online.policy)


def test_without_replay_regularization_training_is_finite_online(pendulum):
    assert all_finite(vd.train(small(replay_regularization=0.0), pendulum, "Pendulum-v1", **QUICK))


def test_geometric_sampling_from_true_starts_is_finite(falling):
    algorithm = small(sampling="geometric", initial_states="starts")
    assert all_finite(vd.train(algorithm, falling, "CartPole-v1", **QUICK))


@pytest.mark.parametrize("absorbing", ["exact", "single"])
def test_episodes_that_terminate_are_learned_from_on_both_sides(falling, absorbing):
    # Random actions end an episode of CartPole after some twenty steps, so that the buffer has absorbing rows too.
    algorithm = small(absorbing=absorbing, random_steps=100, training_starts=90)
    run = vd.train(algorithm, falling, "CartPole-v1", **quick(steps=100, eval_every=50))
    assert all_finite(run)
    rows = run.transitions(falling)
    assert len(rows.obs) == falling.rows + len(falling)
    assert rows.obs[:, -1].sum() == len(falling)


def test_a_small_buffer_forgets(pendulum):
    run = vd.train(small(), pendulum, "Pendulum-v1", replay_capacity=3, **QUICK)
    assert all_finite(run)


def test_a_discrete_policy_acts_in_the_units_of_the_task(cartpole):
    run = vd.train(small(), cartpole, updates=2, eval_every=2, quiet=True)
    assert run.policy.spec == Spec(4, 2, discrete=True)
    actions = run.policy(cartpole.episodes[0].observations)
    assert_array_equal(np.isin(actions, [0, 1]), True)


# What is shown, and what is refused.


def test_progress_away_from_a_terminal_is_a_line_for_each_evaluation(pendulum, capsys):
    vd.train(small(), pendulum, "Pendulum-v1", **quick(quiet=False))
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert [line.partition(", ")[0] for line in lines] == [
        f"value-dice on Pendulum-v1: {n}/12 steps" for n in (4, 8, 12)
    ]
    assert all("return -" in line and "KL" in line and "steps/s" in line and "min left" in line for line in lines)
    assert "\x1b" not in shown.err


def test_quiet_training_shows_nothing(pendulum, capsys):
    vd.train(small(), pendulum, "Pendulum-v1", **QUICK)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_a_name_in_brackets_is_shown_as_it_is(pendulum, capsys):
    named = replace(pendulum, source="[bold]demos[/x].npz")
    vd.train(small(), named, updates=2, eval_every=2)
    assert capsys.readouterr().err.startswith("value-dice on [bold]demos[/x].npz: 2/2 updates")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"env": "Pendulum-v1", "updates": 5}, "updates are counted offline"),
        ({"steps": 5}, "steps need an environment"),
        ({"updates": 0}, "updates is 0"),
        ({"env": "Pendulum-v1", "steps": 0}, "steps is 0"),
        ({"updates": 5, "eval_every": 0}, "eval_every is 0"),
        ({"updates": 5, "seed": -1}, "seed is -1"),
        ({"env": "Pendulum-v1", "steps": 5, "replay_capacity": 0}, "replay_capacity is 0"),
        ({"env": "CartPole-v1", "steps": 5}, "observations of 3 features, CartPole-v1 of 4"),
    ],
)
def test_nonsense_is_refused_before_anything_is_written(pendulum, tmp_path, options, says):
    with pytest.raises(InputError, match=says):
        vd.train(small(), pendulum, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_replay_data_of_another_task_is_refused(pendulum):
    other = Demos.from_episodes([Episode(np.zeros((2, 4)), np.zeros((2, 1)), np.zeros((2, 4)))], "other")
    with pytest.raises(InputError, match="other has observations of 4 features"):
        vd.train(small(), pendulum, updates=2, replay_data=other)


def test_too_few_steps_for_a_single_update_are_refused(pendulum, tmp_path):
    with pytest.raises(InputError, match="4 steps end before the first update, at step 5"):
        vd.train(small(), pendulum, "Pendulum-v1", out=tmp_path / "run", **quick(steps=4))
    assert not (tmp_path / "run").exists()


def test_an_evaluation_environment_of_another_task_is_refused_before_training(pendulum, tmp_path):
    with pytest.raises(InputError, match="CartPole-v1 has other observations or actions than Pendulum-v1"):
        vd.train(small(), pendulum, "Pendulum-v1", eval_env="CartPole-v1", out=tmp_path / "run", **quick(steps=8))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ({"algorithm": vd.ValueDICE}, "is no algorithm"),
        ({"demos": "pendulum"}, "load them first"),
        ({"env": Indifferent()}, "a function that makes one"),
    ],
)
def test_slips_of_a_script_are_said_in_one_line(pendulum, slip, message):
    arguments: dict[str, Any] = {"algorithm": small(), "demos": pendulum, "env": "Pendulum-v1"} | slip
    with pytest.raises(InputError, match=message):
        vd.train(**arguments, **quick(steps=8))
