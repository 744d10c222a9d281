"""`train` closes what it opens and refuses what is no algorithm; `load_run` gives a run back and continues it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from resuming import killed, same, train
from small import same as same_policy
from small import small

import valuedice as vd
from valuedice.demos import Demos
from valuedice.errors import InputError


def copy_of(demos: Demos, source: str = "memory") -> Demos:
    """The same episodes without a file."""
    return Demos.from_episodes(demos.episodes, source)


def test_a_loaded_run_is_the_run_that_was_trained(finished, whole):
    run = vd.load_run(whole)
    assert run.algorithm == finished.algorithm
    assert run.config.resolved(run.algorithm) == run.config
    for name in ("env", "eval_env", "steps", "seed", "eval_every", "eval_episodes", "threads", "out"):
        assert getattr(run.config, name) == getattr(finished.config, name)
    assert run.metrics == finished.metrics
    assert same_policy(run.policy, finished.policy)
    assert jax.tree.structure(run.state) == jax.tree.structure(finished.state)
    for mine, other in zip(jax.tree.leaves(run.state), jax.tree.leaves(finished.state), strict=True):
        if jax.dtypes.issubdtype(mine.dtype, jax.dtypes.prng_key):
            mine, other = jax.random.key_data(mine), jax.random.key_data(other)
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("shorter", [{"steps": 10}, {"steps": 12}])
def test_more_steps_continue_a_finished_run_as_if_they_had_been_asked_for_at_once(
    pendulum, finished, shorter, tmp_path
):
    first = train(pendulum, "Pendulum-v1", tmp_path / "run", **shorter)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    run = vd.load_run(tmp_path / "run").resume(steps=24, quiet=True)
    assert same_policy(run.policy, finished.policy)
    assert same_policy(vd.load_run(tmp_path / "run").policy, finished.policy)
    # What `train` returned can be resumed as well.
    shutil.rmtree(tmp_path / "run")
    shutil.move(tmp_path / "copy", tmp_path / "run")
    assert same_policy(first.resume(steps=24).policy, finished.policy)


@pytest.mark.parametrize("given", ["name", "shipped", "selected", "file"])
def test_demonstrations_with_a_name_or_a_file_are_found_again(pendulum, given, tmp_path):
    pendulum.save(tmp_path / "demos.npz")
    demos: Any = {
        "name": "pendulum",
        "shipped": vd.load_demos("pendulum"),
        "selected": vd.load_demos("pendulum", episodes=1, seed=4),
        "file": vd.load_demos(tmp_path / "demos.npz"),
    }[given]
    settings: dict[str, Any] = {"episodes": 1, "seed": 2, "updates": 100, "eval_every": 25}
    for out in (tmp_path / "whole", tmp_path / "run"):
        with killed(1) if out.name == "run" else pytest.MonkeyPatch.context():
            train(demos, None, out, **settings)
    vd.load_run(tmp_path / "run").resume(quiet=True)
    assert same(tmp_path / "run", tmp_path / "whole")


def test_objects_without_a_file_must_be_given_again(pendulum, tmp_path):
    out = tmp_path / "run"
    settings: dict[str, Any] = {"replay_data": copy_of(pendulum), "steps": 8}
    train(copy_of(pendulum), PendulumEnv, out, **settings)
    with pytest.raises(
        InputError, match="was given `demos`, `env`, `replay_data` as Python objects; give them again"
    ):
        vd.load_run(out).resume(steps=12)
    with pytest.raises(InputError, match=r"was given `env` as Python objects"):
        vd.load_run(out).resume(steps=12, demos=pendulum, replay_data=pendulum)
    # A file that holds the same may take the place of the object.
    pendulum.save(tmp_path / "demos.npz")
    again = {"demos": str(tmp_path / "demos.npz"), "replay_data": "pendulum", "env": PendulumEnv}
    with pytest.raises(InputError, match="`replay_data` was .*, now"):
        vd.load_run(out).resume(steps=12, quiet=True, **again)
    run = vd.load_run(out).resume(steps=12, quiet=True, **(again | {"replay_data": copy_of(pendulum, "other")}))
    whole = train(pendulum, PendulumEnv, replay_data=pendulum, steps=12)
    assert same_policy(run.policy, whole.policy)


def test_what_cannot_be_loaded_or_resumed_says_why(pendulum, tmp_path):
    with pytest.raises(InputError, match="is .* a run folder"):
        vd.load_run(tmp_path)
    with pytest.raises(InputError, match="no folder, so it cannot be resumed; train with `out`"):
        train(pendulum, updates=2).resume()
    with killed(0):
        train(pendulum, "Pendulum-v1", tmp_path / "run")
    run = vd.load_run(tmp_path / "run")
    with pytest.raises(InputError, match="holds no checkpoint yet; there is no state to load"):
        _ = run.state
    with pytest.raises(InputError, match="no policy at"):
        _ = run.policy


@dataclass
class Changeable:
    """Keeps the contract, but is not frozen."""

    lr: float = 1e-3
    data, pace, remedies = small("bc").data, None, ""
    init, update, diagnose = vd.BC.init, vd.BC.update, vd.BC.diagnose


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (vd.ValueDICE, r"is no algorithm; give an object such as ValueDICE\(\)"),
        ("value-dice", "is no algorithm"),
        (Changeable(), "cannot be compiled .*; freeze the dataclass"),
        (vd.BC(hidden=[8]), "unhashable type: 'list'.*give tuples"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_is_no_algorithm_is_refused(pendulum, given, says):
    with pytest.raises(InputError, match=says):
        vd.train(given, pendulum, updates=2)


class Counted(PendulumEnv):
    """Counts how many of it are open."""

    opened: ClassVar[int] = 0
    closed: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        Counted.opened += 1

    def close(self) -> None:
        Counted.closed += 1
        super().close()


@pytest.mark.parametrize("eval_env", ["NoSuchTask-v0", "CartPole-v1"])
def test_training_environments_are_closed_if_the_evaluation_environment_fails(pendulum, eval_env):
    Counted.opened = Counted.closed = 0
    with pytest.raises(InputError, match=eval_env):
        vd.train(small("gail"), pendulum, Counted, eval_env=eval_env, quiet=True)
    assert (Counted.opened, Counted.closed) == (2, 2)
