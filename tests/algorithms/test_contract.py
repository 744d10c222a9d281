"""The contract of an algorithm, checked for every one that is shipped."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from resuming import killed
from resuming import same as same_folders
from sample_rows import only_state, random_batch
from small import all_finite, same, small, without_clock

import valuedice as vd
from valuedice.algorithms import ALGORITHMS, BC, DAC, GAIL, PPO, REWARD_LEARNERS, SAC, DualDICE, ValueDICE
from valuedice.algorithms.protocol import Algorithm, Diagnosis, Normalizes
from valuedice.algorithms.settings import settings_of
from valuedice.errors import InputError
from valuedice.networks import gaussian_policy
from valuedice.training.stored import rebuilt
from valuedice.types import Batch, InitialStates, Rollout, Spec, Transition

RETURNS = {"return_mean", "return_std", "expert_return", "normalized_return"}
COLUMNS = {"step", "updates", "wall_seconds", "kl_estimate", "distance"} | RETURNS
CONTINUOUS_ONLY = {"dac", "dual-dice", "sac"}
ENVS = {"pendulum": "Pendulum-v1", "cartpole": "CartPole-v1"}

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS | REWARD_LEARNERS)


def run(name: str, task: str = "pendulum", **options: Any) -> vd.Run:
    """Twelve steps in an environment, or twelve updates if the algorithm takes no steps."""
    algorithm = small(name)
    demos = vd.load_demos(task, episodes=2) if algorithm.data.demos else None
    counted = "updates" if algorithm.pace is None else "steps"
    settings: dict[str, Any] = {counted: 12, "eval_every": 4, "eval_episodes": 2, "quiet": True, "keep": "last"}
    settings |= options
    return vd.train(algorithm, demos, ENVS[task], **settings)


@every_algorithm
def test_it_keeps_the_protocol_and_its_settings_survive_json(name):
    algorithm: Any = small(name)
    again = rebuilt(type(algorithm), json.loads(json.dumps(asdict(algorithm))))
    assert again == algorithm
    assert hash(again) == hash(algorithm)
    # Contained dataclasses share one list of flags.
    counted = len(jax.tree.leaves(asdict(algorithm), is_leaf=lambda value: isinstance(value, tuple)))
    assert len(settings_of(algorithm)) == counted
    assert isinstance(algorithm, Algorithm)


@every_algorithm
@pytest.mark.parametrize("task", ENVS)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(name, task):
    if task == "cartpole" and name in CONTINUOUS_ONLY:
        with pytest.raises(InputError, match="continuous actions"):
            run(name, task)
        return
    first, again, other = (run(name, task, seed=seed) for seed in (3, 3, 4))
    assert without_clock(first.metrics) == without_clock(again.metrics)
    assert same(first.policy, again.policy)
    assert not same(first.policy, other.policy)
    assert all_finite(first)
    assert set(first.metrics[-1]) >= COLUMNS


@every_algorithm
def test_evaluating_more_often_does_not_change_what_is_learned(name):
    assert same(run(name, eval_every=12).policy, run(name, eval_every=5).policy)


@pytest.mark.parametrize(
    ("name", "discrete", "replay"),
    [
        (name, discrete, replay)
        for name in ALGORITHMS | REWARD_LEARNERS
        for discrete in ((False,) if name in CONTINUOUS_ONLY else (False, True))
        for replay in ((True,) if small(name).data.replay == "required" else (False, True))
    ],
)
def test_an_update_keeps_every_shape_and_type_and_measures_scalars(name, discrete, replay):
    algorithm, spec = small(name), Spec(3, 2, discrete, low=(-1.0,) * 2, high=(1.0,) * 2)
    batch = random_batch(spec, algorithm.data.batch_size, replay=replay)
    if algorithm.pace is not None and (shape := algorithm.pace.rollout) is not None:
        obs = only_state(spec, *shape)
        empty = (np.zeros(shape), np.zeros(shape, bool))
        batch = batch._replace(rollout=Rollout(obs, np.zeros((*shape, 2)), obs, *empty))
    state = jax.eval_shape(lambda key: algorithm.init(key, spec), jax.random.key(0))
    after, metrics = jax.eval_shape(algorithm.update, state, batch)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (state, after)]
    assert shapes[0] == shapes[1]
    diagnosis = jax.eval_shape(algorithm.diagnose, state, batch)
    assert isinstance(diagnosis, Diagnosis)
    assert {value.shape for value in (*metrics.values(), *jax.tree.leaves(diagnosis))} == {()}


@every_algorithm
def test_it_learns_what_to_do_in_the_only_state(name):
    # The expert always takes one action, at which the reward is largest; replay data is uniformly random.
    best, spec = 0.5, Spec(1, 1, low=(-1.0,), high=(1.0,))
    # The optimal ratio is steep at that action.
    algorithm = small(name, gradient_penalty=0.1, one_sided=True)
    shape = None if algorithm.pace is None else algorithm.pace.rollout

    def rows(action: Any) -> Transition:
        obs = jnp.asarray(only_state(spec, *action.shape[:-1]))
        return Transition(obs, action, obs, -((action[..., 0] - best) ** 2))

    def policy(state: Any) -> Any:
        """In the only state, as the algorithm normalises it."""
        obs = jnp.array([1.0, 0.0])
        if isinstance(state, Normalizes):
            obs = obs.at[:1].set((obs[:1] - state.observed.mean) / state.observed.std)
        actor: Any = state.actor  # pyright: ignore[reportAttributeAccessIssue]
        return gaussian_policy(actor, obs)

    def body(state: Any, key: Any) -> Any:
        expert = rows(jnp.full((algorithm.data.batch_size, 1), best))
        other = rows(jax.random.uniform(key, expert.action.shape, minval=-1, maxval=1))
        batch = Batch.of(spec, expert=expert, initial=InitialStates(expert.obs), replay=other)
        if shape is not None:
            noise = jax.random.normal(key, (*shape, 1))
            own = rows(policy(state).sample(noise))
            batch = batch._replace(rollout=Rollout(*own[:4], ended=jnp.ones(shape, bool)))
        return algorithm.update(state, batch)[0], None

    first, keys = algorithm.init(jax.random.key(1), spec), jax.random.split(jax.random.key(1), 2_000)
    last, _ = jax.jit(lambda state: jax.lax.scan(body, state, keys))(first)
    before, after = (policy(state).mode()[0] for state in (first, last))
    assert abs(before - best) > 0.3
    assert abs(after - best) < 0.1


@every_algorithm
def test_a_killed_run_ends_as_if_it_had_not_been_killed(name, tmp_path: Path):
    run(name, eval_every=2, out=tmp_path / "whole")
    pace = small(name).pace
    # Offline, a round of the loop ends at each evaluation, so it makes two updates.
    rounds = 6 if pace is None else 12 // pace.environments
    with killed(rounds // 2):
        run(name, eval_every=2, out=tmp_path / "run")
    run(name, eval_every=2, out=tmp_path / "run", resume=True)
    assert same_folders(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (ValueDICE, {"discount": 1.0, "replay_regularization": 1.0, "nu_lr": 0.0, "hidden": (0,)}),
        (ValueDICE, {"hidden": 256, "sampling": "geometrical", "absorbing": "all", "initial_states": "start"}),
        (BC, {"action_clip": 1.0, "held_out": 1.0, "lr": 0.0}),
        (DAC, {"discriminator_lr": 0.0, "expert_share": 1.0}),
        (DualDICE, {"zeta_lr": float("inf"), "reward": "minus_log_zeta"}),
        (GAIL, {"discriminator_lr": 0.0, "discriminator_steps": 0, "discriminator_batch": 0}),
        (GAIL, {"gradient_penalty": -1.0, "discriminator_hidden": ()}),
        (PPO, {"discount": 1.0, "trace": 1.5, "clip": -0.1, "actor_lr": 0.0, "minibatch": 0, "hidden": ()}),
        # A rollout must be a multiple of both.
        (PPO, {"environments": 3, "minibatch": 3, "entropy_bonus": -1.0}),
        (SAC, {"discount": 1.0, "target_rate": 0.0, "critic_lr": 0.0, "alpha_lr": -1.0, "random_steps": -1}),
        (SAC, {"target_entropy": float("nan"), "hidden": ()}),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(kind, settings):
    for name, value in settings.items():
        with pytest.raises(InputError, match=f"`{name}`"):
            kind(**{name: value})


def test_the_presets_have_the_numbers_of_the_paper():
    # Its appendix: discriminators and critics 1e-3, policies 1e-5, orthogonal penalty 1e-4, four updates a step. In
    # the commented-out section ν has 1e-4 and ζ 1e-3. α is 0.1.
    dac, dual_dice, bc = DAC.paper(), DualDICE.paper(), BC.paper()
    for sac in (dac.sac, dual_dice.sac):
        assert (sac.critic_lr, sac.actor_lr, sac.orthogonal_penalty) == (1e-3, 1e-5, 1e-4)
        assert (sac.updates_per_step, sac.update_every, sac.hidden) == (4, 1, (256, 256))
    assert (dual_dice.nu_lr, dual_dice.zeta_lr, dual_dice.replay_regularization) == (1e-4, 1e-3, 0.1)
    assert dac.discriminator_lr == 1e-3
    policy = ValueDICE.paper()
    assert (policy.linear_term, policy.policy_gradient) == ("initial", "objective")
    assert (policy.target_rate, policy.anchor, policy.warm_start, policy.one_sided) == (0, 0, 0, False)
    assert (policy.nu_lr, policy.gradient_penalty, policy.replay_regularization) == (1e-3, 10, 0.1)
    assert (policy.updates_per_step, policy.hidden, policy.initial_states) == (4, (256, 256), "all")
    # Where it is silent, the authors' code.
    assert (policy.discount, policy.batch_size, policy.sampling, policy.absorbing) == (
        0.99,
        256,
        "uniform",
        "exact",
    )
    assert (policy.random_steps, policy.training_starts, policy.exploration_noise) == (2_000, 1_000, 0.1)
    assert (bc.lr, bc.orthogonal_penalty) == (policy.actor_lr, policy.orthogonal_penalty) == (1e-5, 1e-4)


def test_the_preset_of_gail_has_the_numbers_of_its_authors_code():
    gail = GAIL.paper()
    assert (gail.ppo.discount, gail.ppo.trace, gail.ppo.policy_change, gail.ppo.entropy_bonus) == (
        0.995,
        0.97,
        0.01,
        0,
    )
    assert gail.ppo.hidden == gail.discriminator_hidden == (100, 100)
    assert gail.ppo.rollout == gail.discriminator_batch == 50_000
    assert (gail.discriminator_lr, gail.discriminator_steps, gail.gradient_penalty) == (0.01, 1, 0)
    # Their rollouts for small tasks fit too.
    assert replace(gail.ppo, rollout=5_000).rollout == 5_000
