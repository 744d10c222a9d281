"""An algorithm at work: its state, the data that it draws, and the only calls that are compiled for training."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from valuedice.algorithms import Learning
from valuedice.demos.rows import ExpertRows
from valuedice.errors import InputError
from valuedice.policy import Policy
from valuedice.replay import Replay
from valuedice.rollouts import Rollouts
from valuedice.types import Batch, Metrics, Normalizer, Spec, Transition

# Replay rows in the estimate of the divergence: one shape whatever the buffer holds, so it compiles once.
DIAGNOSED_ROWS = 4_096


@partial(jax.jit, static_argnums=(0, 2))
def start(algorithm: Learning, key: Array, spec: Spec) -> Any:
    """The algorithm's first state."""
    return algorithm.init(key, spec)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_updates(algorithm: Learning, state: Any, batches: Batch) -> tuple[Any, Metrics]:
    """As many updates as there are stacked batches; metrics are their means."""
    state, metrics = jax.lax.scan(cast(Any, algorithm.update), state, batches)
    return state, jax.tree.map(jnp.mean, metrics)


@partial(jax.jit, static_argnums=0)
def run_diagnosis(algorithm: Learning, state: Any, batch: Batch) -> Metrics:
    """The algorithm's own measures of convergence."""
    return algorithm.diagnose(state, batch)


class Learner:
    """An algorithm with its state and its data."""

    def __init__(
        self,
        algorithm: Learning,
        expert: ExpertRows | None,
        replay: Replay | None,
        normalizer: Normalizer,
        spec: Spec,
        seed: int,
        held_out: ExpertRows | None = None,
        rollouts: Rollouts | None = None,
    ) -> None:
        self.algorithm, self.expert, self.replay, self.held_out = algorithm, expert, replay, held_out
        self.normalizer, self.spec, self.rollouts = normalizer, spec, rollouts
        self.state = start(algorithm, jax.random.key(seed), spec)
        self.rng = np.random.default_rng([seed, 1])
        self.updates = 0
        self.last: Metrics = {}
        """Of the latest updates."""
        self._sums: dict[str, float] = {}
        self._summed = 0
        self._policy: Policy | None = None

    def draw(self, updates: int) -> Batch:
        """K stacked batches."""
        shape = (updates, self.algorithm.batch_size)
        expert, initial = (None, None) if self.expert is None else self.expert.draw(self.rng, shape)
        unseen = None if self.held_out is None else self.held_out.draw(self.rng, shape)[0]
        batch = Batch(expert, initial, self._draw_replay(self.rng, shape), held_out=unseen)
        if self.rollouts is not None:
            assert updates == 1, "a rollout is learned from once"
            batch = batch._replace(rollout=jax.tree.map(lambda part: part[None], self.rollouts.newest()))
        return batch

    def _draw_replay(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Transition | None:
        """Nothing where there are no rows, or no use for them."""
        if not self.replay or not self.algorithm.uses_replay:
            return None
        return self.replay.draw(rng, shape, self.algorithm.rows)

    def learn(self, batches: Batch) -> None:
        """An update on each of the stacked batches."""
        updates = len(jax.tree.leaves(batches)[0])
        self.state, metrics = run_updates(self.algorithm, self.state, batches)
        self.last = {name: float(value) for name, value in metrics.items()}
        for name, value in self.last.items():
            self._sums[name] = self._sums.get(name, 0.0) + updates * value
        self._summed += updates
        self.updates += updates
        self._policy = None

    @property
    def policy(self) -> Policy:
        """The current policy in numpy; a copy, since the next update reuses the memory."""
        if self._policy is None:
            layers = tuple((np.array(layer.kernel), np.array(layer.bias)) for layer in self.state.actor)
            self._policy = Policy(layers, self.normalizer, self.spec)
        return self._policy

    def measure(self) -> Metrics:
        """Means over the updates since the last call, and the algorithm's own measures, on all expert rows."""
        means = {name: total / max(self._summed, 1) for name, total in self._sums.items()}
        self._sums, self._summed = {}, 0
        # A generator of its own: measuring must not change what is learned.
        rng = np.random.default_rng([self.updates, 2])
        replay = self._draw_replay(rng, (DIAGNOSED_ROWS,))
        batch = Batch(None, None, replay)
        if self.expert is not None:
            rows, unseen = self.expert.all(), None if self.held_out is None else self.held_out.all()
            batch = Batch(rows, rows.obs, replay, self.expert.weight, self.expert.initial_weight, unseen)
        if self.rollouts is not None:
            batch = batch._replace(rollout=self.rollouts.newest())
        diagnosis = run_diagnosis(self.algorithm, self.state, batch)
        return {name: float(value) for name, value in diagnosis.items()} | means

    def save(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts, from which `restore` goes on."""
        arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(self.state).items()}
        facts = {"updates": self.updates, "sums": self._sums, "summed": self._summed}
        return arrays, facts | {"rng": self.rng.bit_generator.state}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Goes on where another one was saved."""
        leaves = named_leaves(self.state)
        if {n: (a.shape, a.dtype) for n, a in leaves.items()} != {n: (a.shape, a.dtype) for n, a in arrays.items()}:
            raise InputError("the checkpoint is of another algorithm or version; resume with the one that wrote it")
        _, tree = jax.tree.flatten(self.state)
        old = zip(jax.tree.leaves(self.state), leaves, strict=True)
        self.state = jax.tree.unflatten(tree, [as_leaf(leaf, arrays[name]) for leaf, name in old])
        self.rng.bit_generator.state = facts["rng"]
        self.updates, self._sums, self._summed = facts["updates"], facts["sums"], facts["summed"]
        self._policy = None


def named_leaves(state: Any) -> dict[str, Any]:
    """The arrays of a state by where they are in it; random keys as the numbers that they are made of."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {
        jax.tree_util.keystr(path): jax.random.key_data(leaf) if is_key(leaf) else leaf for path, leaf in leaves
    }


def as_leaf(old: Any, array: np.ndarray) -> Any:
    """An array in the form of the one that it replaces."""
    return jax.random.wrap_key_data(jnp.asarray(array)) if is_key(old) else jnp.asarray(array)


def is_key(leaf: Any) -> bool:
    """Whether it is a random key."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
