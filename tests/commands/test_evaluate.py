"""`valuedice evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tasks import box, linear_policy

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def policy() -> Path:
    path = Path("policy.safetensors")
    linear_policy(box(3, 1, -2, 2)).save(path)
    return path


def test_every_episode_and_the_mean_are_printed(run, policy):
    result = run("evaluate", policy, "--env", "Pendulum-v1", "--episodes", 2)
    first, second, last = result.out.splitlines()
    assert first.startswith("episode 0: return -")
    assert second.endswith(", 200 steps")
    assert last.startswith("return: -")
    assert last.endswith(" over 2 episodes of Pendulum-v1")
    for change in (("--stochastic",), ("--noise", 0.1)):
        assert run("evaluate", policy, "--env", "Pendulum-v1", "--episodes", 2, *change).out != result.out


def test_what_cannot_be_evaluated_is_refused(refused, policy):
    Path("folder").mkdir()
    Path("text").write_text("no policy")
    for path, says in (
        ("nobody", "no policy at nobody"),
        ("folder", "no policy at folder"),
        ("text", "not a readable"),
    ):
        assert says in refused("evaluate", path, "--env", "Pendulum-v1")
    pendulum = ("evaluate", policy, "--env", "Pendulum-v1")
    assert "--seed is -1; it must be at least 0" in refused(*pendulum, "--seed", -1)
    assert "--episodes is 0; it must be at least 1" in refused(*pendulum, "--episodes", 0)
    assert "--noise is 2.0; it must be at least 0 and below 1" in refused(*pendulum, "--noise", 2)
    assert "observations have 3 features, those of CartPole-v1 4" in refused(*pendulum, "--env", "CartPole-v1")
    assert "no environment given; name one with --env" in refused("evaluate", policy)


def test_a_run_is_evaluated_in_its_own_environment_whatever_its_format(run, refused):
    Path("run").mkdir()
    linear_policy(box(3, 1, -2, 2)).save(Path("run/policy.safetensors"))
    Path("run/config.json").write_text(json.dumps({"format": 3, "eval_env": "Pendulum-v1"}))
    assert run("evaluate", "run", "--episodes", 1).out.endswith("over 1 episodes of Pendulum-v1\n")
    for content in ("{", "[]", "[" * 10**5, json.dumps({"eval_env": 3})):
        Path("run/config.json").write_text(content)
        assert "no environment given; name one with --env" in refused("evaluate", "run")
