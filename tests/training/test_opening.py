"""How a run begins: with a policy made by cloning, or with one from a file."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from resuming import KilledError, killed, same, train
from small import all_finite, small
from small import same as same_policy
from tasks import box, linear_policy

import valuedice as vd
from valuedice.demos.rows import ExpertRows
from valuedice.errors import InputError, Interrupted
from valuedice.policy import Policy
from valuedice.training.acting import Explorer
from valuedice.training.config import BLOCK
from valuedice.training.learner import start
from valuedice.training.opening import Opening
from valuedice.training.progress import Display
from valuedice.types import Batch, Normalizer, Spec

PENDULUM = box(3, 1, -2.0, 2.0)
LONG = 10 * BLOCK + 50
"""Updates that take many blocks of batches, the last of them in part."""


def first_policy(*args: Any, **settings: Any) -> Policy:
    """The policy of a run's first evaluation."""
    seen: list[Policy] = []
    train(*args, **settings, on_evaluation=lambda progress: seen.append(progress.policy) or True)
    return seen[0]


def new_policy(algorithm: Any, demos: vd.Demos, spec: Spec) -> Policy:
    """The policy that an algorithm has by itself."""
    actor = start(algorithm, jax.random.key(0), spec).actor
    layers = tuple((np.array(kernel), np.array(bias)) for kernel, bias in actor.layers)
    return Policy(layers, demos.normalizer(), spec, actor.form)


def error(policy: Policy, demos: vd.Demos) -> float:
    """How far the mean actions are from those of the expert; of discrete actions, how many are wrong."""
    rows = [(policy(episode.observations), episode.actions) for episode in demos.episodes]
    return float(
        np.mean([np.mean((ours != theirs) if demos.discrete else (ours - theirs) ** 2) for ours, theirs in rows])
    )


def forbid(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """From now on no run may begin in this way."""
    monkeypatch.setattr(Opening, what, lambda *_: pytest.fail("it has begun already, or with something else"))


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A run whose policy others begin with, on other demonstrations."""
    demos = vd.load_demos("pendulum", episodes=3, seed=7)
    folder = tmp_path_factory.mktemp("source") / "run"
    train(demos, None, folder, small("bc"), updates=50)
    return folder


# Warm start.


def test_a_warm_start_clones_the_expert_by_squared_error_from_the_new_policy_on(pendulum):
    cloning = vd.BC(held_out=0.0, hidden=(16,))
    rows = ExpertRows(pendulum, PENDULUM, pendulum.normalizer(), cloning.data.sampling)
    drawn, _ = rows.draw(np.random.default_rng([0, 2]), (BLOCK, cloning.batch_size))
    state, ours = (start(algorithm, jax.random.key(0), PENDULUM) for algorithm in (cloning, small()))
    state, update = cloning.with_policy(state, ours.actor), jax.jit(cloning.update)
    for index in range(3):
        state, _ = update(state, Batch.of(PENDULUM, expert=jax.tree.map(lambda part, at=index: part[at], drawn)))
    found = first_policy(pendulum, "Pendulum-v1", algorithm=small(warm_start=3))
    for (kernel, bias), expected in zip(found.layers, state.actor.layers, strict=True):
        assert_allclose(kernel, expected.kernel, rtol=1e-4, atol=1e-6)
        assert expected.bias is not None
        assert_allclose(bias, expected.bias, rtol=1e-4, atol=1e-6)
    assert not same_policy(found, new_policy(small(), pendulum, PENDULUM))


def test_the_more_updates_of_cloning_the_better_the_fit(pendulum):
    before = error(new_policy(small(), pendulum, PENDULUM), pendulum)
    few, many = (first_policy(pendulum, "Pendulum-v1", algorithm=small(warm_start=count)) for count in (3, LONG))
    assert before > error(few, pendulum)
    # All blocks leave 0.13 to 0.26 of the error, with any of four seeds; the last one alone leaves over half.
    assert error(many, pendulum) < before / 2


@pytest.mark.parametrize(
    ("name", "env", "offline"),
    [
        ("value-dice", "Pendulum-v1", False),
        ("value-dice", "Pendulum-v1", True),
        ("value-dice", "CartPole-v1", False),
        ("dac", "Pendulum-v1", False),
        ("dual-dice", "Pendulum-v1", False),
        ("gail", "Pendulum-v1", False),
        ("gail", "CartPole-v1", False),
    ],
)
def test_every_algorithm_can_begin_with_a_warm_start_which_is_its_row_0(name, env, offline):
    demos = vd.load_demos({"Pendulum-v1": "pendulum", "CartPole-v1": "cartpole"}[env], episodes=1)
    algorithm = small(name, warm_start=LONG)
    # How it goes on is in the contract of the algorithms.
    run = train(demos, env, algorithm=algorithm, offline=offline, on_evaluation=lambda _: True)
    [row] = run.metrics
    assert all_finite(run)
    assert (row["step"], row["updates"]) == (0, 0)
    assert row["return_mean"] is not None
    # One that learns from what it does has nothing to measure its progress on before it has acted.
    assert (row["kl_estimate"] is None) == (name in ("dac", "gail", "dual-dice"))
    # A quarter of the error remains in Pendulum; of the wrong actions in CartPole, 0.25 to 0.43 with four seeds.
    untrained = new_policy(algorithm, demos, run.policy.spec)
    assert error(run.policy, demos) < 0.6 * error(untrained, demos)


@pytest.mark.parametrize(
    ("name", "env", "first"),
    [("value-dice", "Pendulum-v1", (4, 0)), ("bc", None, (0, 75))],
    ids=["online", "offline"],
)
def test_without_a_warm_start_there_is_no_row_0_and_no_cloning(pendulum, name, env, first, monkeypatch):
    forbid(monkeypatch, "play")
    run = train(pendulum, env, algorithm=small(name, warm_start=0), on_evaluation=lambda _: True)
    assert [(row["step"], row["updates"]) for row in run.metrics] == [first]


def test_a_run_stopped_during_its_warm_start_saves_nothing_and_begins_again(pendulum, tmp_path, monkeypatch):
    settings: dict[str, Any] = {"demos": pendulum, "env": "Pendulum-v1", "algorithm": small(warm_start=LONG)}
    train(**settings, out=tmp_path / "whole")
    real, shown = Display.opening, []

    def stop(self: Display, done: int, total: int) -> None:
        shown.append((done, total))
        real(self, done, total)
        if done == BLOCK:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Display, "opening", stop)
    with pytest.raises(
        Interrupted, match=r"stopped after 0 \w+; .* holds no checkpoint yet; continue with: load_run"
    ):
        train(**settings, out=tmp_path / "run")
    monkeypatch.undo()
    assert shown == [(0, LONG), (BLOCK, LONG)]
    assert not list((tmp_path / "run").glob("checkpoint/*/state"))
    assert not list((tmp_path / "run").glob("policy*"))
    vd.load_run(tmp_path / "run").resume(quiet=True)
    assert same(tmp_path / "run", tmp_path / "whole")


def test_a_warm_start_is_saved_at_once_and_never_repeated(pendulum, whole, tmp_path, monkeypatch):
    def die(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(Explorer, "step", die)
    with pytest.raises(KilledError):
        train(pendulum, "Pendulum-v1", tmp_path / "run")
    monkeypatch.undo()
    assert [row["step"] for row in vd.load_run(tmp_path / "run").metrics] == [0]
    forbid(monkeypatch, "play")
    vd.load_run(tmp_path / "run").resume(quiet=True)
    assert same(tmp_path / "run", whole)


@dataclass(frozen=True)
class Stubborn:
    """ValueDICE without a method that replaces its policy."""

    inner: Any

    def __post_init__(self) -> None:
        for name in ("data", "pace", "remedies", "init", "update", "diagnose"):
            object.__setattr__(self, name, getattr(self.inner, name))


def test_an_algorithm_that_cannot_replace_its_policy_is_refused(pendulum, source, tmp_path):
    says = (
        r"^Stubborn cannot begin with a given policy: it has no method `with_policy\(state, actor\)`; add one, .*$"
    )
    for count, settings in ((3, {}), (0, {"init_policy": source})):
        with pytest.raises(InputError, match=says):
            train(pendulum, None, tmp_path / "run", Stubborn(small(warm_start=count)), **settings)
    assert not (tmp_path / "run").exists()


# A policy from a file.


@pytest.mark.parametrize("given", ["policy.safetensors", "policy-last.safetensors", ""])
def test_a_run_begins_like_the_policy_of_a_file_in_place_of_a_warm_start(pendulum, source, given, monkeypatch):
    forbid(monkeypatch, "_clone")
    theirs = vd.load_policy(source)
    ours = first_policy(pendulum, "Pendulum-v1", init_policy=source / given)
    obs = np.random.default_rng(0).uniform([-1, -1, -4], [1, 1, 4], (50, 3)).astype(np.float32)
    # It sees observations in units of this run's demonstrations, so its layers are others.
    assert not np.allclose(ours.normalizer.mean, theirs.normalizer.mean, rtol=1e-2)
    assert not np.allclose(ours.layers[0][0], theirs.layers[0][0], rtol=1e-2)
    assert_allclose(ours(obs), theirs(obs), rtol=1e-4, atol=1e-5)
    # Its spread, too.
    assert_allclose(ours.forward(obs), theirs.forward(obs), rtol=1e-4, atol=1e-4)
    run = train(pendulum, "Pendulum-v1", init_policy=str(source / given), steps=8)
    assert [(row["step"], row["updates"]) for row in run.metrics] == [(0, 0), (4, 0), (8, 8)]


def test_an_expert_may_begin_with_a_policy_of_its_form(pendulum, source, tmp_path):
    run = vd.train_expert(small("sac"), "Pendulum-v1", target_return=-1e9, init_policy=source, quiet=True)
    assert [row["step"] for row in run.metrics] == [0]
    obs = vd.load_demos("pendulum").episodes[0].observations
    assert_allclose(run.policy(obs), vd.load_policy(source)(obs), rtol=1e-4, atol=1e-4)
    other = train(pendulum, None, tmp_path / "other", small("bc", units="tanh", bounds="clip"), updates=50)
    says = (
        "tanh units and clip bounds, this run relu and tanh; set `units` and `bounds`, or use another `init_policy`"
    )
    with pytest.raises(InputError, match=says):
        vd.train_expert(small("sac"), "Pendulum-v1", target_return=-1e9, init_policy=other.out, quiet=True)


WIDE = ((3, 8), (8, 9), (9, 2))


def wide(folder: Path) -> Path:
    layers = [(np.zeros((rows, columns), np.float32), np.zeros(columns, np.float32)) for rows, columns in WIDE]
    Policy(tuple(layers), Normalizer.none(3), PENDULUM).save(folder / "wide.safetensors")
    return folder / "wide.safetensors"


def cartpole(folder: Path) -> Path:
    linear_policy(Spec(4, 2, discrete=True)).save(folder / "cartpole.safetensors")
    return folder / "cartpole.safetensors"


def damaged(folder: Path) -> Path:
    (folder / "damaged").write_bytes(b"no policy")
    return folder / "damaged"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            wide,
            r"hidden layers of 8, 9 units, this run 16; set the widths of the policy, or use another `init_policy`",
        ),
        (cartpole, "Pendulum-v1"),
        (lambda folder: folder / "nowhere", "no policy at .*nowhere"),
        (damaged, "damaged"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_before_anything_is_written(
    pendulum, make: Callable[[Path], Path], says, tmp_path
):
    path = make(tmp_path)
    with pytest.raises(InputError, match=says):
        train(pendulum, "Pendulum-v1", tmp_path / "run", init_policy=path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("saves", [1, 9])
def test_a_resumed_run_does_not_need_the_file_any_more(pendulum, source, saves, tmp_path):
    given = Path(shutil.copytree(source, tmp_path / "given"))
    train(pendulum, "Pendulum-v1", tmp_path / "whole", init_policy=given)
    with killed(saves):
        train(pendulum, "Pendulum-v1", tmp_path / "run", init_policy=given)
    shutil.rmtree(given)
    vd.load_run(tmp_path / "run").resume(quiet=True)
    assert same(tmp_path / "run", tmp_path / "whole")
