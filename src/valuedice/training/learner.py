"""An algorithm at work: its state, and the only functions that are compiled for training."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from valuedice.algorithms import AnyAlgorithm, Diagnosis
from valuedice.algorithms.protocol import Normalizes, TakesPolicy
from valuedice.errors import InputError
from valuedice.networks import PolicyNet
from valuedice.policy import Policy
from valuedice.training.batches import Batches
from valuedice.training.checkpoint import Arrays, Facts
from valuedice.types import Batch, Metrics, Normalizer, Spec


@partial(jax.jit, static_argnums=(0, 2))
def start(algorithm: AnyAlgorithm, key: Array, spec: Spec) -> Any:
    """The algorithm's first state."""
    return algorithm.init(key, spec)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_updates(algorithm: AnyAlgorithm, state: Any, batches: Batch, first: int, stop: int) -> tuple[Any, Metrics]:
    """An update on each of the stacked batches from `first` to before `stop`; metrics are their means.

    The bounds are not part of the compiled code, so any number of updates runs the same program.
    """

    def batch_at(index: Any) -> Batch:
        return jax.tree.map(lambda part: part[index], batches)

    def body(index: Any, carry: tuple[Any, Metrics]) -> tuple[Any, Metrics]:
        state, metrics = algorithm.update(carry[0], batch_at(index))
        return state, jax.tree.map(jnp.add, carry[1], metrics)

    shapes = jax.eval_shape(algorithm.update, state, batch_at(0))[1]
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    state, sums = jax.lax.fori_loop(first, stop, body, (state, zeros))
    return state, jax.tree.map(lambda total: total / (stop - first), sums)


@partial(jax.jit, static_argnums=0)
def run_diagnosis(algorithm: AnyAlgorithm, state: Any, batch: Batch) -> Diagnosis:
    """The algorithm's own measures of progress."""
    return algorithm.diagnose(state, batch)


class Learner:
    """An algorithm with its state and its batches."""

    def __init__(
        self, algorithm: AnyAlgorithm, batches: Batches, normalizer: Normalizer, spec: Spec, seed: int
    ) -> None:
        self.algorithm, self.batches, self.normalizer, self.spec = algorithm, batches, normalizer, spec
        self.state = start(algorithm, jax.random.key(seed), spec)
        self.updates = 0
        self.losses: Metrics = {}
        """Metrics of the latest updates."""
        self._sums: dict[str, float] = {}
        self._summed = 0
        self._policy: Policy | None = None

    def learn(self, updates: int) -> None:
        """`updates` updates in one compiled call, each on a batch of its own."""
        if not updates:
            return
        batches, first, stop = self.batches.take(updates)
        self.state, metrics = run_updates(self.algorithm, self.state, batches, first, stop)
        self.losses = {name: float(value) for name, value in metrics.items()}
        for name, value in self.losses.items():
            self._sums[name] = self._sums.get(name, 0.0) + updates * value
        self._summed += updates
        self.updates += updates
        self._policy = None

    def begin_with(self, actor: PolicyNet) -> None:
        """Replaces the policy before the first update."""
        assert isinstance(self.algorithm, TakesPolicy), "checked when the run was opened"
        self.state = self.algorithm.with_policy(self.state, actor)
        self._policy = None

    @property
    def policy(self) -> Policy:
        """The current policy in numpy; a copy, because the next update reuses the memory."""
        if self._policy is None:
            actor: PolicyNet = self.state.actor
            layers = tuple((np.array(layer.kernel), np.array(layer.bias)) for layer in actor.layers)
            observed = self.state.observed if isinstance(self.state, Normalizes) else None
            normalizer = self.normalizer if observed is None else observed.normalizer()
            self._policy = Policy(layers, normalizer, self.spec, actor.form)
        return self._policy

    def measure(self) -> tuple[Diagnosis, Metrics]:
        """The algorithm's diagnosis as plain numbers, and the means of its metrics since the last call. Before the
        first step there may be no data to measure on; the diagnosis is then empty."""
        means = {name: total / max(self._summed, 1) for name, total in self._sums.items()}
        self._sums, self._summed = {}, 0
        if not self.batches.ready:
            return Diagnosis({}), means
        diagnosis = run_diagnosis(self.algorithm, self.state, self.batches.diagnosis(self.updates))
        return jax.tree.map(float, diagnosis), means

    def save(self) -> tuple[Arrays, Facts]:
        """What `restore` needs."""
        arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(self.state).items()}
        return arrays, {"updates": self.updates, "sums": self._sums, "summed": self._summed}

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Continues from what `save` returned."""
        self.state = restored(self.state, arrays)
        self.updates, self._sums, self._summed = facts["updates"], facts["sums"], facts["summed"]
        self._policy = None


def restored(state: Any, arrays: Arrays) -> Any:
    """A state with the saved arrays in place of its own."""
    leaves = named_leaves(state)
    if {n: (a.shape, a.dtype) for n, a in leaves.items()} != {n: (a.shape, a.dtype) for n, a in arrays.items()}:
        raise InputError("the checkpoint is of another algorithm or version; resume with the one that wrote it")
    old, tree = jax.tree.flatten(state)
    pairs = zip(old, leaves, strict=True)
    return jax.tree.unflatten(tree, [as_leaf(leaf, arrays[name]) for leaf, name in pairs])


def named_leaves(state: Any) -> dict[str, Any]:
    """The arrays of a state by their place in it; random keys as the numbers that they consist of."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {
        jax.tree_util.keystr(path): jax.random.key_data(leaf) if is_key(leaf) else leaf for path, leaf in leaves
    }


def as_leaf(old: Any, array: np.ndarray) -> Any:
    """An array in the form of the one that it replaces."""
    return jax.random.wrap_key_data(jnp.asarray(array)) if is_key(old) else jnp.asarray(array)


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
