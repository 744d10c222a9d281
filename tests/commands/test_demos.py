"""`valuedice demos`: what it reports, writes and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commanding import ENDS, ROWS, pendulum, store
from tasks import box, linear_policy

from valuedice import distance, load_demos
from valuedice.demos import shipped_demos
from valuedice.energy import Reference

pytestmark = pytest.mark.usefixtures("own_folder")


def test_inspect_reports_what_training_would_refuse(run):
    actions = pendulum()["actions"]
    actions[4, 0] = np.nan
    store(actions=actions)
    result = run("demos", "inspect", "demos.npz")
    assert result.code == 0
    assert "actions: 1 non-finite entry, first NaN at row 1, column 0 of episode 1" in result.out


def test_inspect_without_a_name_lists_what_is_shipped(run):
    lines = run("demos", "inspect").out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == list(shipped_demos())
    assert ["cartpole", "11", "5500", "500", "±", "0", "4", "2", "discrete"] in [line.split() for line in lines]


def test_inspect_compares_with_an_environment(run):
    store(actions=np.full((ROWS, 1), 2.5))
    report = run("demos", "inspect", "demos.npz", "--env", "CartPole-v1").out
    assert "observations have 3 features, those of CartPole-v1 4" in report
    assert "actions are continuous, those of CartPole-v1 discrete" in report
    assert "actions out of bounds: 6 entries" in run("demos", "inspect", "demos.npz", "--env", "Pendulum-v1").out


def test_converted_demonstrations_hold_the_same_episodes(run):
    np.savez("d4rl.npz", **pendulum(terminations=None, truncations=None, terminals=np.zeros(ROWS), timeouts=ENDS))
    result = run("demos", "convert", "d4rl.npz", "own.npz")
    assert (result.code, result.out) == (0, "own.npz: 2 episodes, 6 steps, mean return 7.5\n")
    back = load_demos("own.npz")
    assert [len(episode) for episode in back.episodes] == [3, 3]
    together = np.concatenate([episode.observations for episode in back.episodes])
    np.testing.assert_allclose(together, pendulum()["observations"], rtol=1e-6)
    assert run("demos", "convert", "d4rl.npz", "one.npz", "--episodes", 1).out.startswith(
        "one.npz: 1 episodes, 3 steps"
    )


COLLECT = ("demos", "collect", "--env", "Pendulum-v1", "--episodes", 1, "--policy")


def test_nothing_is_overwritten_or_written_where_there_is_no_folder(refused):
    store()
    Path("own.npz").write_text("precious")
    assert "own.npz exists" in refused("demos", "convert", "demos.npz", "own.npz")
    assert "own.npz exists" in refused(*COLLECT, "random", "--out", "own.npz")
    assert "cannot write" in refused("demos", "convert", "demos.npz", "no/own.npz")


def test_the_ambiguity_of_dones_is_one_warning_of_one_line(run):
    rows = pendulum()
    names: dict[str, Any] = {
        "states": rows["observations"],
        "next_states": rows["next_observations"],
        "dones": ENDS,
    }
    np.savez("authors.npz", **names, actions=rows["actions"])
    result = run("demos", "inspect", "authors.npz")
    assert result.code == 0
    assert result.err.startswith(
        "valuedice: warning: authors.npz: dones do not distinguish termination from a time limit"
    )
    assert "(set --dones-are to truncated or terminated)" in result.err
    assert result.err.count("\n") == 1
    for dones_are, said in (("terminated", "2 terminated"), ("truncated", "0 terminated")):
        result = run("demos", "inspect", "authors.npz", "--dones-are", dones_are)
        assert result.err == ""
        assert said in result.out


@pytest.mark.parametrize("policy", ["random", "policy.safetensors", "mine:act"])
def test_what_a_policy_a_function_or_chance_does_is_recorded(policy, run):
    linear_policy(box(3, 1, -2, 2)).save(Path("policy.safetensors"))
    Path("mine.py").write_text("def act(obs):\n    return obs[:1]\n")
    assert run(*COLLECT, policy, "--out", "own.npz").out.startswith("own.npz: 1 episodes, 200 steps, mean return -")
    assert [len(episode) for episode in load_demos("own.npz").episodes] == [200]


def test_what_cannot_be_recorded_is_refused(refused):
    command = (*COLLECT, "random", "--out", "own.npz")
    assert "--episodes is 0; it must be at least 1" in refused(*command, "--episodes", 0)
    assert "--seed is -1; it must be at least 0" in refused(*command, "--seed", -1)
    assert "--noise is 1.0; it must be at least 0 and below 1" in refused(*command, "--noise", 1)
    assert "no policy at nobody" in refused(*command, "--policy", "nobody")
    assert "no function 'nowhere:act'" in refused(*command, "--policy", "nowhere:act")


def test_the_distance_of_two_recordings_is_one_line(run):
    store("other.npz", actions=np.ones((ROWS, 1)))
    store("mine.npz")
    result = run("demos", "distance", "other.npz", "mine.npz")
    expected = distance(load_demos("other.npz"), load_demos("mine.npz"))
    line = f"distance of other.npz from mine.npz: {expected:.4g} (noise floor of mine.npz: unknown: too few rows)\n"
    assert (result.code, result.out, result.err) == (0, line, "")
    floor = Reference(load_demos("cartpole")).floor
    line = f"distance of cartpole from cartpole: 0 (noise floor of cartpole: {floor:.4g})\n"
    assert run("demos", "distance", "cartpole", "cartpole").out == line


def test_the_distance_of_recordings_of_authors_depends_on_what_dones_are(run):
    rows = pendulum()
    arrays = {"states": rows["observations"], "next_states": rows["next_observations"], "actions": rows["actions"]}
    for name, ends in (("three", ENDS), ("six", np.array([0, 0, 0, 0, 0, 1], bool))):
        np.savez(f"{name}.npz", **arrays, dones=ends)
    command = ("demos", "distance", "three.npz", "six.npz", "--dones-are")
    assert run(*command, "truncated").out.startswith("distance of three.npz from six.npz: 0 ")
    # Two times three steps of six are in the absorbing state.
    assert not run(*command, "terminated").out.startswith("distance of three.npz from six.npz: 0 ")


def test_recordings_that_cannot_be_compared_are_refused(refused):
    store()
    command = ("demos", "distance", "demos.npz")
    assert "missing: A, B; see valuedice demos distance --help" in refused("demos", "distance")
    assert "no demonstrations at nowhere.npz" in refused(*command, "nowhere.npz")
    assert "demos.npz: observations have 3 features, those of " in refused(*command, "cartpole")
    store("discrete.npz", actions=np.zeros(ROWS, np.int64))
    assert "actions are of 1 dimensions, those of discrete.npz are discrete" in refused(*command, "discrete.npz")
    store("broken.npz", actions=np.full((ROWS, 1), np.nan))
    assert "broken.npz: actions holds NaN at row 0" in refused(*command, "broken.npz")
