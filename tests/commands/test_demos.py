"""`valuedice demos`: what it reports, writes and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commanding import ENDS, ROWS, pendulum, store, with_entry

from valuedice import load_demos
from valuedice.demos import shipped_demos

pytestmark = pytest.mark.usefixtures("own_folder")


def test_inspect_reports_what_training_would_refuse(run):
    store(actions=with_entry(pendulum()["actions"], np.nan))
    result = run("demos", "inspect", "demos.npz")
    assert result.code == 0
    assert "actions: 1 entry that is no finite number, first NaN at row 1, column 0 of episode 1" in result.out


def test_inspect_without_a_name_lists_what_is_shipped(run):
    lines = run("demos", "inspect").out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == list(shipped_demos())
    assert lines[1].split() == ["cartpole", "11", "5500", "500", "±", "0", "4", "2", "discrete"]


def test_inspect_compares_with_an_environment(run):
    store()
    assert "findings: none" not in run("demos", "inspect", "demos.npz").out  # s′ and the next s differ
    report = run("demos", "inspect", "demos.npz", "--env", "CartPole-v1").out
    assert "observations have 3 features, those of CartPole-v1 4" in report
    assert "actions are continuous, those of CartPole-v1 discrete" in report
    store(actions=np.full((ROWS, 1), 2.5))
    assert "actions out of bounds: 6 entries" in run("demos", "inspect", "demos.npz", "--env", "Pendulum-v1").out


def test_converted_demonstrations_hold_the_same_episodes(run):
    rows = pendulum()
    np.savez("d4rl.npz", **pendulum(terminations=None, truncations=None, terminals=np.zeros(ROWS), timeouts=ENDS))
    result = run("demos", "convert", "d4rl.npz", "own.npz")
    assert result.code == 0
    assert result.out == "own.npz: 2 episodes, 6 steps, mean return 7.5\n"
    back = load_demos("own.npz")
    assert [len(episode) for episode in back.episodes] == [3, 3]
    together = np.concatenate([episode.observations for episode in back.episodes])
    np.testing.assert_allclose(together, rows["observations"], rtol=1e-6)


def test_conversion_refuses_to_overwrite(refused):
    store()
    Path("own.npz").write_text("precious")
    assert "own.npz exists" in refused("demos", "convert", "demos.npz", "own.npz")
    command = ("demos", "collect", "--policy", "random", "--env", "Pendulum-v1", "--episodes", 1)
    assert "own.npz exists" in refused(*command, "--out", "own.npz")


def test_conversion_into_a_missing_folder_is_refused(refused):
    store()
    assert "cannot write" in refused("demos", "convert", "demos.npz", "no/own.npz")


def authors() -> None:
    rows = pendulum()
    names = {"states": rows["observations"], "next_states": rows["next_observations"], "dones": ENDS}
    np.savez("authors.npz", **names, actions=rows["actions"])


def test_the_ambiguity_of_dones_is_one_warning_of_one_line(run):
    authors()
    result = run("demos", "inspect", "authors.npz")
    assert result.code == 0
    assert result.err.startswith("valuedice: warning: authors.npz: `dones` does not tell")
    assert result.err.count("\n") == 1
    for dones_are, said in (("terminated", "2 terminated"), ("truncated", "0 terminated")):
        result = run("demos", "inspect", "authors.npz", "--dones-are", dones_are)
        assert result.err == ""
        assert said in result.out


def test_collecting_refuses_what_it_cannot_do(refused):
    command = ("demos", "collect", "--env", "Pendulum-v1", "--out", "own.npz", "--episodes")
    assert "0 episodes" in refused(*command, 0, "--policy", "random")
    assert "negative" in refused(*command, 1, "--policy", "random", "--seed", -1)
    assert "no policy at nobody" in refused(*command, 1, "--policy", "nobody")
    assert "no function 'nowhere:act'" in refused(*command, 1, "--policy", "nowhere:act")
