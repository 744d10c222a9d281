"""Rows, rollouts and networks that the tests of several algorithms share."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from valuedice.networks import Dense, Params
from valuedice.types import Batch, InitialStates, Metrics, Rollout, Spec, Transition


# Compiling takes longer than all else in these tests, so the compiler optimises little.
@partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
def update(algorithm: Any, state: Any, batch: Batch, times: int = 1) -> tuple[Any, Metrics]:
    """So many updates on the same batch: the state after them, and the metrics of the last one."""
    shapes = jax.eval_shape(algorithm.update, state, batch)[1]
    zeros = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), shapes)
    return jax.lax.fori_loop(0, times, lambda _, carry: algorithm.update(carry[0], batch), (state, zeros))


def random_obs(rng: np.random.Generator, spec: Spec, size: int, absorbing: Iterable[int] = ()) -> np.ndarray:
    """Random observations; the rows `absorbing` are the absorbing state."""
    obs = np.append(rng.normal(size=(size, spec.obs_size)), np.zeros((size, 1)), axis=1)
    obs[list(absorbing)] = np.eye(spec.obs_size + 1)[-1]
    return obs


def random_rows(
    seed: int | np.random.Generator, spec: Spec, size: int = 16, absorbing: Iterable[int] = (), ends: Any = ()
) -> Transition:
    """Random rows; `absorbing` rows are the absorbing state's self-loop, rows in `ends` lead to it."""
    rng, absorbing = np.random.default_rng(seed), list(absorbing)
    action = rng.uniform(-1, 1, (size, spec.action_size))
    if spec.discrete:
        action = np.eye(spec.action_size)[rng.integers(spec.action_size, size=size)]
    action[absorbing] = 0
    obs, next_obs = (random_obs(rng, spec, size, those) for those in (absorbing, [*absorbing, *ends]))
    return Transition(obs, action, next_obs, rng.normal(size=size))


def random_batch(spec: Spec, size: int = 16, seed: int = 0, replay: bool = True) -> Batch:
    """Expert rows, their observations as initial states, and other rows as replay data."""
    expert, other = (random_rows(number, spec, size) for number in (seed, seed + 1))
    return Batch.of(spec, expert=expert, initial=InitialStates(expert.obs), replay=other if replay else None)


def one_hots(counts: Any) -> np.ndarray:
    """Each discrete action so many times."""
    return np.repeat(np.eye(len(counts)), counts, axis=0)


def only_state(spec: Spec, *shape: int) -> Any:
    """The observation of a task with one state, whose features are all 1."""
    return np.append(np.ones((*shape, spec.obs_size)), np.zeros((*shape, 1)), axis=-1)


def one_state_rows(spec: Spec, action: Any, loops: int = 0) -> Transition:
    """Rows of the only state with these actions, then self-loops of the absorbing state."""
    action = np.append(np.asarray(action), np.zeros((loops, spec.action_size)), axis=0)
    obs = only_state(spec, len(action))
    obs[len(action) - loops :] = np.eye(spec.obs_size + 1)[-1]
    return Transition(obs, action, obs, np.zeros(len(action)))


def one_state_rollout(spec: Spec, action: Any, terminated: Any = (), truncated: Any = ()) -> Rollout:
    """Steps of one environment in the only state; these rows end in the task, or at a time limit."""
    obs = only_state(spec, len(action), 1)
    next_obs, ended = obs.copy(), np.zeros((len(action), 1), bool)
    next_obs[list(terminated)] = np.eye(spec.obs_size + 1)[-1]
    ended[[*terminated, *truncated]] = True
    parts = (obs, np.asarray(action)[:, None], next_obs, np.zeros(ended.shape), ended)
    return Rollout(*map(jnp.asarray, parts))


def constant(params: Params, value: float) -> Params:
    """A network of the same shape whose output is one number."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return [*zeros[:-1], Dense(zeros[-1].kernel, jnp.full(1, value))]
