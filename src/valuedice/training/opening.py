"""How a run begins, before its first step: with a new policy, one from a file, or one made by cloning."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from valuedice.algorithms import BC, AnyAlgorithm, algorithm_name
from valuedice.algorithms.protocol import TakesPolicy
from valuedice.demos import Demos
from valuedice.demos.rows import ExpertRows
from valuedice.envs.fit import check_fit
from valuedice.errors import InputError
from valuedice.networks import Dense, PolicyNet
from valuedice.policy import Policy, load_policy
from valuedice.training.batches import Batches
from valuedice.training.config import BLOCK
from valuedice.training.learner import Learner, run_updates, start
from valuedice.types import Normalizer

CLONING = BC(held_out=0.0)
"""Squared error of the mean action, on all episodes."""


def warm_start_of(algorithm: AnyAlgorithm) -> int:
    """Updates of cloning that an algorithm begins with."""
    return 0 if algorithm.pace is None else algorithm.pace.warm_start


class Opening:
    """The start of a run: `play` gives the learner its first policy. It is repeated exactly if a run is stopped
    during it, so it needs no checkpoint."""

    def __init__(self, algorithm: AnyAlgorithm, learner: Learner, demos: Demos | None, seed: int) -> None:
        self.learner, self.demos, self.seed = learner, demos, seed
        self.updates = 0 if demos is None else warm_start_of(algorithm)
        self.policy: PolicyNet | None = None
        """From a file."""
        if self.updates:
            check_replaceable(algorithm)

    def take(self, path: str | os.PathLike[str], task: str) -> None:
        """Begins with the policy of a file or run folder, in place of a warm start."""
        check_replaceable(self.learner.algorithm)
        policy = load_policy(path)
        spec = self.learner.spec
        check_fit(policy, spec, task)
        if (policy.spec.low, policy.spec.high) != (spec.low, spec.high):
            raise InputError(
                f"the policy in {path} has other bounds of actions than {task}, so its actions would be scaled; "
                "use another `init_policy`"
            )
        theirs, ours = ([kernel.shape for kernel, _ in each.layers] for each in (policy, self.learner.policy))
        if theirs != ours:
            widths = [", ".join(str(shape[1]) for shape in shapes[:-1]) for shapes in (theirs, ours)]
            raise InputError(
                f"the policy in {path} has hidden layers of {widths[0]} units, this run {widths[1]}; set the "
                "widths of the policy, or use another `init_policy`"
            )
        if (form := policy.form) != (own := self.learner.policy.form):
            raise InputError(
                f"the policy in {path} has {form.units} units and {form.bounds} bounds, this run {own.units} and "
                f"{own.bounds}; set `units` and `bounds`, or use another `init_policy`"
            )
        self.policy, self.updates = refitted(policy, self.learner.normalizer), 0

    @property
    def empty(self) -> bool:
        """Whether the run begins with a new policy."""
        return self.policy is None and not self.updates

    def play(self, stopped: Callable[[], bool], show: Callable[[int, int], None]) -> bool:
        """Gives the learner its first policy; returns False if it was stopped before that."""
        if self.policy is not None:
            self.learner.begin_with(self.policy)
            return True
        return self._clone(stopped, show)

    def _clone(self, stopped: Callable[[], bool], show: Callable[[int, int], None]) -> bool:
        """Updates of behavioural cloning, from the learner's new policy on."""
        assert self.demos is not None
        spec, normalizer = self.learner.spec, self.learner.normalizer
        actor: PolicyNet = self.learner.state.actor
        cloning = replace(CLONING, hidden=actor.hidden, units=actor.form.units, bounds=actor.form.bounds)
        rows = ExpertRows(self.demos, spec, normalizer, cloning.data.sampling)
        batches = Batches(cloning.data, spec, [self.seed, 2], expert=rows, ahead=BLOCK)
        state = cloning.with_policy(start(cloning, jax.random.key(self.seed), spec), jax.tree.map(jnp.copy, actor))
        done = 0
        while done < self.updates:
            show(done, self.updates)
            if stopped():
                return False
            count = min(BLOCK, self.updates - done)
            state, _ = run_updates(cloning, state, *batches.take(count))
            done += count
        self.learner.begin_with(state.actor)
        return True


def check_replaceable(algorithm: AnyAlgorithm) -> None:
    """Refuses an algorithm that cannot begin with another policy than its own."""
    if not isinstance(algorithm, TakesPolicy):
        raise InputError(
            f"{algorithm_name(algorithm)} cannot begin with a given policy: it has no method `with_policy(state, "
            "actor)`; add one, or omit the warm start and `init_policy`"
        )


def refitted(policy: Policy, normalizer: Normalizer) -> PolicyNet:
    """The network that does for observations normalised by `normalizer` what the policy's does for its own."""
    kernel, bias = (part.astype(np.float64) for part in policy.layers[0])
    own = policy.normalizer
    shift = (normalizer.mean.astype(np.float64) - own.mean) / own.std
    first = (kernel * (normalizer.std.astype(np.float64) / own.std)[:, None], bias + shift @ kernel)
    layers = [Dense(*(jnp.asarray(part, jnp.float32) for part in layer)) for layer in (first, *policy.layers[1:])]
    return PolicyNet(layers, policy.form)
