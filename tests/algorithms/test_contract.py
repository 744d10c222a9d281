"""The contract of every algorithm, run over the union of them."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from resuming import KilledError, killed_after
from resuming import same as same_folders
from small import all_finite, names_of, same, small, without_clock

import valuedice as vd
from valuedice.algorithms import ALGORITHMS
from valuedice.bench.worker import PRODUCTS
from valuedice.commands.training import preset, rebuilt
from valuedice.errors import InputError
from valuedice.types import Batch, Rollout, Spec, Transition

COLUMNS = {"step", "updates", "wall_seconds", "return_mean", "return_std", "expert_return", "normalized_return"}
COLUMNS |= {"kl_estimate"}
SPECS = [Spec(3, 2, low=(-1.0,) * 2, high=(1.0,) * 2), Spec(3, 4, discrete=True)]
CONTINUOUS_ONLY = {"dac", "dual-dice"}
ENVS = {"pendulum": "Pendulum-v1", "cartpole": "CartPole-v1"}

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def budget(name: str) -> dict[str, Any]:
    """Twelve of what an algorithm counts."""
    counted = "updates" if ALGORITHMS[name].pace is None else "steps"
    return {counted: 12, "eval_every": 4, "eval_episodes": 2, "quiet": True}


@every_algorithm
@pytest.mark.parametrize("task", ENVS)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(name, task):
    demos = vd.load_demos(task, episodes=2)
    if task == "cartpole" and name in CONTINUOUS_ONLY:
        with pytest.raises(InputError, match="continuous actions"):
            vd.train(small(name), demos, ENVS[task], **budget(name))
        return
    first, again, other = (
        vd.train(small(name), demos, ENVS[task], seed=seed, **budget(name)) for seed in (3, 3, 4)
    )
    assert without_clock(first.metrics) == without_clock(again.metrics)
    assert same(first.policy, again.policy)
    assert not same(first.policy, other.policy)
    assert all_finite(first)
    assert set(first.metrics[-1]) >= COLUMNS


@every_algorithm
@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("spec", SPECS, ids=["continuous", "discrete"])
def test_an_update_keeps_every_shape_and_type(name, replay, spec):
    algorithm = small(name)
    if spec.discrete and name in CONTINUOUS_ONLY:
        pytest.skip("refused, as tested above")
    if not replay and not algorithm.learns_offline:
        pytest.skip("never without replay data")
    state = jax.eval_shape(lambda key: algorithm.init(key, spec), jax.random.key(0))
    size = algorithm.batch_size
    rows = Transition(jnp.zeros((size, 4)), jnp.zeros((size, spec.action_size)), jnp.zeros((size, 4)))
    batch = Batch(rows, rows.obs, rows if replay else None)
    if algorithm.pace is not None and (shape := algorithm.pace.rollout) is not None:
        obs, action = (jnp.zeros((*shape, columns)) for columns in (4, spec.action_size))
        batch = batch._replace(rollout=Rollout(obs, action, obs, jnp.zeros(shape, bool)))
    after, metrics = jax.eval_shape(algorithm.update, state, batch)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for before, leaf in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (before.shape, before.dtype) == (leaf.shape, leaf.dtype)
    assert {value.shape for value in metrics.values()} == {()}


@every_algorithm
@pytest.mark.parametrize("saves", [2, 7])
def test_a_killed_run_ends_as_if_it_had_not_been(name, saves, tmp_path: Path, monkeypatch):
    demos = vd.load_demos("pendulum", episodes=2)
    options: dict[str, Any] = budget(name) | {"eval_every": 2}
    vd.train(small(name), demos, "Pendulum-v1", out=tmp_path / "whole", **options)
    with monkeypatch.context() as patch:
        killed_after(saves, patch)
        # Offline a step is a compiled call, of two updates, and on policy it is one of two environments: there are
        # only six, and the second of the two runs ends before it is killed.
        pace = small(name).pace
        steps = 6 if pace is None else 12 // pace.environments
        with pytest.raises(KilledError) if saves + 2 < steps else nullcontext():
            vd.train(small(name), demos, "Pendulum-v1", out=tmp_path / "run", **options)
    vd.train(small(name), demos, "Pendulum-v1", out=tmp_path / "run", resume=True, **options)
    assert same_folders(tmp_path / "run", tmp_path / "whole")


@every_algorithm
def test_the_arithmetic_of_an_update_is_known_to_the_bench(name):
    spec = Spec(3, 2, low=(-1.0,) * 2, high=(1.0,) * 2)
    once, doubled = small(name), small(name, batch_size=32, discriminator_batch=8)
    count, twice = (sum(product.flops for product in PRODUCTS[name](each, spec)) for each in (once, doubled))
    assert 0 < count < twice <= 2 * count


@every_algorithm
def test_it_is_rebuilt_from_what_a_run_notes_of_it(name):
    algorithm = small(name)
    assert rebuilt(type(algorithm), json.loads(json.dumps(asdict(algorithm)))) == algorithm


@every_algorithm
def test_no_two_settings_share_a_flag(name):
    algorithm = ALGORITHMS[name]()
    counted = len(jax.tree.leaves(asdict(algorithm), is_leaf=lambda value: isinstance(value, tuple)))
    assert len(names_of(algorithm)) == counted


@every_algorithm
def test_presets_are_the_papers_where_they_differ_from_the_defaults(name):
    if hasattr(ALGORITHMS[name], "paper"):
        assert preset(name, "paper") != preset(name, "default")
    else:
        with pytest.raises(InputError, match="leave --preset away"):
            preset(name, "paper")


def test_the_presets_have_the_papers_numbers():
    # Its appendix: discriminators and critics 1e-3, policies 1e-5, orthogonal penalty 1e-4, four updates a step; in
    # the commented-out section ν has 1e-4 and ζ 1e-3. α is 0.1.
    for name in ("dac", "dual-dice"):
        sac = preset(name, "paper").sac
        assert (sac.critic_lr, sac.actor_lr, sac.orthogonal_penalty) == (1e-3, 1e-5, 1e-4)
        assert (sac.updates_per_step, sac.update_every, sac.hidden) == (4, 1, (256, 256))
    dual_dice = preset("dual-dice", "paper")
    assert (dual_dice.nu_lr, dual_dice.zeta_lr, dual_dice.replay_regularization) == (1e-4, 1e-3, 0.1)
    assert preset("dac", "paper").discriminator_lr == 1e-3
    cloning, policy = preset("bc", "paper"), vd.ValueDICE()
    assert (cloning.lr, cloning.orthogonal_penalty) == (policy.actor_lr, policy.orthogonal_penalty) == (1e-5, 1e-4)


@every_algorithm
def test_without_an_environment_it_learns_or_says_in_a_line_why_not(name, tmp_path: Path):
    demos = vd.load_demos("pendulum", episodes=1)
    options: dict[str, Any] = {"updates": 4, "eval_every": 4, "quiet": True, "out": tmp_path / "run"}
    if ALGORITHMS[name].learns_offline:
        assert len(vd.train(small(name), demos, **options).metrics) == 1
    else:
        with pytest.raises(InputError, match=f"{name} needs an environment.*use value-dice or bc offline"):
            vd.train(small(name), demos, **options)
        assert not (tmp_path / "run").exists()
