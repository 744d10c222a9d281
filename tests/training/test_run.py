"""`train` closes what it opens and refuses what is no algorithm; `load_run` gives a run back and continues it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from numpy.testing import assert_array_equal
from resuming import killed, result, same, train
from small import same as same_policy
from small import small

import valuedice as vd
from valuedice.errors import InputError
from valuedice.training.learner import named_leaves


def test_a_loaded_run_is_the_run_that_was_trained(finished, whole):
    run = vd.load_run(whole)
    assert run.algorithm == finished.algorithm
    assert run.config.resolved(run.algorithm) == run.config
    for name in ("env", "eval_env", "steps", "seed", "eval_every", "eval_episodes", "threads", "out"):
        assert getattr(run.config, name) == getattr(finished.config, name)
    assert run.metrics == finished.metrics
    assert same_policy(run.policy, finished.policy)
    assert jax.tree.structure(run.state) == jax.tree.structure(finished.state)
    for name, leaf in named_leaves(finished.state).items():
        assert_array_equal(named_leaves(run.state)[name], leaf, strict=True)


@pytest.mark.parametrize("steps", [10, 12])
@pytest.mark.parametrize("loaded", [True, False])
def test_more_steps_continue_a_run_as_if_they_had_been_asked_for_at_once(pendulum, whole, steps, loaded, tmp_path):
    run = train(pendulum, "Pendulum-v1", tmp_path / "run", steps=steps)
    run = (vd.load_run(tmp_path / "run") if loaded else run).resume(steps=24, quiet=True)
    assert result(tmp_path / "run").last == result(whole).last
    assert run.metrics[-1]["step"] == 24
    # The end of a run of 10 steps is one row more, and its policy may be the closest.
    assert same(tmp_path / "run", whole) == (steps == 12)


@pytest.mark.parametrize("subsample", [1, 20])
@pytest.mark.parametrize("given", ["name", "shipped", "selected", "subsampled", "file"])
def test_demonstrations_with_a_name_or_a_file_are_found_again(pendulum, given, subsample, tmp_path):
    pendulum.save(tmp_path / "demos.npz")
    demos: Any = {
        "name": "pendulum",
        "shipped": vd.load_demos("pendulum"),
        "selected": vd.load_demos("pendulum", episodes=1, seed=4),
        "subsampled": vd.load_demos("pendulum", episodes=1, seed=4, subsample=20),
        "file": vd.load_demos(tmp_path / "demos.npz"),
    }[given]
    settings: dict[str, Any] = {"episodes": 1, "seed": 2, "updates": 100, "eval_every": 25, "subsample": subsample}
    train(demos, None, tmp_path / "whole", **settings)
    assert vd.load_run(tmp_path / "whole").config.subsample == (20 if given == "subsampled" else subsample)
    with killed(1):
        train(demos, None, tmp_path / "run", **settings)
    vd.load_run(tmp_path / "run").resume(quiet=True)
    assert same(tmp_path / "run", tmp_path / "whole")


def test_objects_without_a_file_must_be_given_again(pendulum, tmp_path):
    out, bare = tmp_path / "run", vd.Demos.from_episodes(pendulum.episodes, "memory")
    train(bare, PendulumEnv, out, replay_data=bare, steps=8)
    with pytest.raises(InputError, match="was given `demos`, `env`, `replay_data` as Python objects; give them"):
        vd.load_run(out).resume(steps=12)
    # A file that holds the same may take the place of the object.
    pendulum.save(tmp_path / "demos.npz")
    again: dict[str, Any] = {"steps": 12, "demos": str(tmp_path / "demos.npz"), "replay_data": bare, "quiet": True}
    with pytest.raises(InputError, match="was given `env` as Python objects"):
        vd.load_run(out).resume(**again)
    run = vd.load_run(out).resume(env=PendulumEnv, **again)
    assert same_policy(run.policy, train(pendulum, PendulumEnv, replay_data=pendulum, steps=12).policy)


def test_what_cannot_be_loaded_or_resumed_says_why(pendulum, tmp_path):
    with pytest.raises(InputError, match=r"is .* a run folder\?"):
        vd.load_run(tmp_path)
    with pytest.raises(InputError, match="no folder, so it cannot be resumed; train with `out`"):
        train(pendulum, updates=2).resume()
    with killed(0):
        train(pendulum, "Pendulum-v1", tmp_path / "run", small(warm_start=0))
    run = vd.load_run(tmp_path / "run")
    with pytest.raises(InputError, match="holds no checkpoint yet; there is no state to load"):
        _ = run.state
    with pytest.raises(InputError, match="no policy at"):
        _ = run.policy


@dataclass
class Changeable:
    """Keeps the contract, but is not frozen."""

    data, pace, remedies = small("bc").data, None, ""
    init, update, diagnose = vd.BC.init, vd.BC.update, vd.BC.diagnose


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (vd.ValueDICE, r"is no algorithm; give an object such as ValueDICE\(\)"),
        ("value-dice", "is no algorithm"),
        (Changeable(), "cannot be compiled .*; freeze the dataclass"),
    ],
)
def test_what_is_no_algorithm_is_refused(pendulum, given, says):
    with pytest.raises(InputError, match=says):
        train(pendulum, algorithm=given)


class Counted(PendulumEnv):
    """Counts how many of it were opened and closed."""

    counts: ClassVar[list[int]] = [0, 0]

    def __init__(self) -> None:
        super().__init__()
        self.counts[0] += 1

    def close(self) -> None:
        self.counts[1] += 1


@pytest.mark.parametrize("eval_env", ["NoSuchTask-v0", "CartPole-v1"])
def test_training_environments_are_closed_if_the_evaluation_environment_fails(pendulum, eval_env):
    Counted.counts[:] = 0, 0
    with pytest.raises(InputError, match=eval_env):
        train(pendulum, Counted, algorithm=small("gail"), eval_env=eval_env)
    assert Counted.counts == [2, 2]


@pytest.mark.parametrize("damaged", ["steps", "seed", "env", "algorithm", "hyperparameters", "fingerprints"])
def test_a_run_whose_config_is_damaged_is_not_loaded(whole, tmp_path, damaged):
    content = json.loads((whole / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {damaged: [[]]}))
    with pytest.raises(InputError, match=r"config\.json has unexpected content"):
        vd.load_run(tmp_path)
