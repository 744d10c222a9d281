"""Which policy a run ends with, and the headline that is measured on it."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from resuming import killed, killed_and_resumed, same, train
from small import same as same_policy
from small import small, without_clock
from tasks import box, linear_policy

import valuedice as vd
from valuedice.energy import Reference
from valuedice.envs import episodes
from valuedice.envs.episodes import Evaluation
from valuedice.policy import Policy
from valuedice.training.choice import Choice
from valuedice.training.config import Keep, TrainConfig
from valuedice.types import Normalizer

TASK = box(3, 1)


def policy(slope: float) -> Policy:
    return linear_policy(TASK, slope)


def new_choice(keep: Keep = "closest") -> Choice:
    return Choice(keep, TASK)


def consider(choice: Choice, distance: float | None, place: int) -> None:
    """An evaluation of a policy whose slope is its place."""
    choice.consider({"step": 10 * place, "updates": 7 * place, "distance": distance}, policy(place))


def considered(keep: Keep, *distances: float | None) -> Choice:
    choice = new_choice(keep)
    for place, distance in enumerate(distances):
        consider(choice, distance, place)
    return choice


def kept(choice: Choice) -> int:
    """The place of the policy that is kept; what is known about it must be of the same evaluation."""
    assert choice.policy is not None
    place = round(choice.policy.layers[0][0][0, 0].item())
    assert (choice.step, choice.updates) == (10 * place, 7 * place)
    return place


# The choice by itself.


@pytest.mark.parametrize(
    ("distances", "place"),
    [
        ((2.0, 1.0, 3.0), 1),
        ((1.0, 2.0, 3.0), 0),
        ((3.0, 2.0, 1.0), 2),
        ((0.0, -0.1, 0.1), 1),
        pytest.param((2.0, 1.0, 1.0, 4.0), 2, id="equally close"),
        pytest.param((None, None, None), 2, id="nothing is known"),
        pytest.param((inf, nan, inf, nan), 3, id="nothing is finite"),
        pytest.param((2.0, nan, inf, None), 0, id="only the first is known"),
        pytest.param((nan, inf, None, 9.0, nan), 3, id="only one is known"),
    ],
)
def test_closest_keeps_the_smallest_distance_and_of_equal_ones_the_later(distances, place):
    choice = considered("closest", *distances)
    assert kept(choice) == place
    assert kept(considered("last", *distances)) == len(distances) - 1


def test_an_evaluation_without_a_distance_counts_as_unknown():
    choice = considered("closest", 5.0)
    choice.consider({"step": 10, "updates": 7}, policy(1))
    assert kept(choice) == 0


@pytest.mark.parametrize("distances", [(), (None,), (inf, nan), (3.0,), (2.0, 1.0, 3.0)])
@pytest.mark.parametrize("keep", ["closest", "last"])
def test_a_restored_choice_goes_on_as_if_it_had_not_been_saved(keep, distances):
    for following in (0.5, 2.5, None):
        choice, again = considered(keep, *distances), new_choice(keep)
        consider(again, 0.1, 9)
        arrays, facts = choice.save()
        # A checkpoint holds them as strict JSON.
        again.restore(arrays, json.loads(json.dumps(facts, allow_nan=False)))
        assert (again.policy is None) == (choice.policy is None) == (not distances)
        for each in (choice, again):
            consider(each, following, len(distances))
        assert kept(again) == kept(choice)
        assert again.distance == choice.distance


def test_a_restored_choice_keeps_the_normaliser_of_its_policy():
    choice, again = new_choice("last"), new_choice("last")
    normalizer = Normalizer(np.array([1.0, 2.0, 3.0], np.float32), np.array([4.0, 5.0, 6.0], np.float32), 7.0)
    choice.consider({"step": 1, "updates": 1}, replace(policy(1.0), normalizer=normalizer))
    again.restore(*choice.save())
    assert again.policy is not None
    obs = np.array([[100.0, 0.0, 0.0], [-1.0, 2.0, 9.0]])
    np.testing.assert_array_equal(again.policy.normalizer(obs), normalizer(obs))


# A run.


def watched(*args: Any, **settings: Any) -> tuple[vd.Run, list[Policy]]:
    """A run, and the policy of each of its rows."""
    seen: list[Policy] = []
    run = train(*args, **settings, on_evaluation=lambda progress: seen.append(progress.policy))
    return run, seen


def place_of_closest(run: vd.Run) -> int:
    """The row with the smallest distance, which must be one in the middle: first and last rows are special."""
    found = [row["distance"] for row in run.metrics]
    place = int(np.argmin(found))
    assert 0 < place < len(found) - 1
    return place


def check_kept(run: vd.Run, seen: list[Policy], place: int) -> None:
    """The run, its folder and its headline tell of the policy of this row."""
    row, final = run.metrics[place], run.final
    assert final is not None
    assert (final["step"], final["updates"], final["kept"]) == (row["step"], row["updates"], run.config.keep)
    assert same_policy(run.policy, seen[place])
    assert run.out is not None
    assert same_policy(vd.load_policy(run.out), seen[place])
    assert same_policy(vd.load_policy(run.out / "policy-last.safetensors"), seen[-1])


def test_a_run_ends_with_the_policy_closest_to_the_demonstrations(pendulum, tmp_path):
    run, seen = watched(pendulum, "Pendulum-v1", tmp_path / "run")
    assert run.config.keep == "closest"
    check_kept(run, seen, place_of_closest(run))


def test_no_return_chooses(pendulum, tmp_path, monkeypatch):
    def lowest(_: Reference, recording: Any) -> float:
        return float(np.mean([episode.rewards.sum() for episode in recording]))

    monkeypatch.setattr(Reference, "distance", lowest)
    run, seen = watched(pendulum, "Pendulum-v1", tmp_path / "run", seed=1)
    place = place_of_closest(run)
    assert run.metrics[place]["return_mean"] == min(row["return_mean"] for row in run.metrics)
    check_kept(run, seen, place)


def test_to_keep_the_last_changes_nothing_else(pendulum, finished, tmp_path):
    run, seen = watched(pendulum, "Pendulum-v1", tmp_path / "run", keep="last")
    assert place_of_closest(run) < len(seen) - 1
    check_kept(run, seen, -1)
    assert without_clock(run.metrics) == without_clock(finished.metrics)


@pytest.mark.parametrize(
    ("name", "settings", "keep"),
    [
        ("value-dice", {"env": "Pendulum-v1"}, "closest"),
        ("value-dice", {"eval_env": "Pendulum-v1"}, "closest"),
        ("bc", {"env": "Pendulum-v1"}, "closest"),
        ("value-dice", {}, "last"),
        ("value-dice", {"env": "Pendulum-v1", "keep": "last"}, "last"),
        ("value-dice", {"keep": "last"}, "last"),
        ("sac", {"demos": None, "env": "Pendulum-v1"}, "last"),
    ],
)
def test_closest_is_the_default_where_something_can_be_close(name, settings, keep):
    given: dict[str, Any] = {"demos": "pendulum"} | settings
    assert TrainConfig(**given).resolved(small(name)).keep == keep


# The headline.


def test_the_headline_is_measured_on_the_kept_policy_and_on_episodes_that_chose_nothing(pendulum, monkeypatch):
    calls: list[tuple[list[int], Evaluation]] = []
    real = episodes.measure

    def recording(act: Any, envs: Any, seeds: Any) -> Evaluation:
        calls.append(([int(seed) for seed in seeds], real(act, envs, seeds)))
        return calls[-1][1]

    monkeypatch.setattr(episodes, "measure", recording)
    run, seen = watched(pendulum, "Pendulum-v1")
    place = place_of_closest(run)
    # Beside the rows, random actions were measured too.
    assert len(calls) > len(run.metrics) + 1
    *before, (fresh, found) = calls
    assert not set(fresh) & {seed for seeds, _ in before for seed in seeds}
    assert len(set(fresh)) == len(found.episodes) == run.config.eval_episodes
    for episode in found.episodes:
        assert_allclose(seen[place](episode.observations), episode.actions, rtol=1e-4, atol=1e-5)
    assert run.final is not None
    assert (run.final["return_mean"], run.final["return_std"]) == (found.mean, found.std)
    assert run.final["distance"] == Reference(pendulum).distance(found.episodes)
    # Not the numbers of the row.
    for name in ("return_mean", "return_std", "normalized_return", "distance"):
        assert run.final[name] != run.metrics[place][name]


def test_the_same_seed_gives_the_same_headline_and_another_seed_another(pendulum, finished):
    again, other = (train(pendulum, "Pendulum-v1", seed=seed).final for seed in (0, 1))
    assert finished.final == again
    assert again is not None
    assert other is not None
    assert other["return_mean"] != again["return_mean"]


def test_without_an_environment_the_headline_only_says_when(pendulum):
    final = train(pendulum, updates=100).final
    assert final is not None
    measured = ("return_mean", "return_std", "normalized_return", "distance", "distance_floor")
    assert final == dict.fromkeys(measured) | {"kept": "last", "step": 0, "updates": 100}


# Stopped and resumed.


def test_what_was_kept_before_a_kill_is_kept_after_it(pendulum, tmp_path):
    settings: dict[str, Any] = {"demos": pendulum, "env": "Pendulum-v1", "seed": 1}
    whole = train(**settings, out=tmp_path / "whole")
    closest = whole.metrics[place_of_closest(whole)]["step"]
    # Round 0 has a checkpoint too, so the last one is that of the step after the closest row.
    resumed = killed_and_resumed(closest + 2, **settings, out=tmp_path / "run")
    assert same(tmp_path / "run", tmp_path / "whole")
    assert same_policy(resumed.policy, whole.policy)
    assert resumed.final == whole.final


def test_a_policy_of_a_discarded_evaluation_is_not_kept(pendulum, tmp_path):
    out: Path = tmp_path / "run"
    settings: dict[str, Any] = {"demos": pendulum, "env": "Pendulum-v1", "seed": 1, "eval_every": 8}
    with killed(15):
        train(**settings, out=out)
    # The checkpoint is that of step 14; the closest row, at step 16, was written and is lost.
    assert (out / "metrics.csv").read_text().count("\n") == 1 + 3
    assert vd.load_run(out).final is None
    written = vd.load_policy(out)
    run = train(**settings | {"steps": 14}, out=out, resume=True)
    assert [row["step"] for row in run.metrics] == [0, 8]
    assert run.final is not None
    assert run.final["step"] in (0, 8)
    assert same_policy(vd.load_policy(out), run.policy)
    assert not same_policy(written, run.policy)
    assert vd.load_run(out).final == run.final
