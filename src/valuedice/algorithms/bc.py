"""Behavioural cloning: maximum likelihood of the expert's actions (Equation 1 of arXiv:1912.05032).

    max_π  E_{(s,a)~D} log π(a|s)

With few demonstrations the policy soon overfits, so regularisation matters: weight decay, the orthogonal penalty,
and, given more than one demonstration, early stopping on held-out episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import check
from valuedice.losses import orthogonal_penalty, weighted_mean
from valuedice.networks import Params, actor_init, adam_init, adam_step, log_likelihood, policy_entropy
from valuedice.types import Batch, Data, Metrics, Sampling, Spec, Transition

WINDOW = 500
"""Number of updates over which the held-out loss is averaged."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    learning: Params
    """The parameters in training."""
    actor: Params
    """The policy: the parameters with the lowest held-out loss so far; the latest without held-out data."""
    opt: optax.OptState
    window_loss: Array
    """Sum of the held-out losses in the current window."""
    best_loss: Array
    stale: Array
    """Number of windows since the best one."""
    updates: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class BC:
    """Behavioural cloning: maximum likelihood of the expert's actions. It never acts in an environment."""

    lr: float = 1e-3
    """Step size of the policy."""
    weight_decay: float = 0.0
    """Decoupled weight decay, as in AdamW."""
    orthogonal_penalty: float = 0.0
    """Weight of the orthogonal penalty on the policy."""
    action_clip: float = 1e-2
    """Clip expert actions to this distance from ±1, where the likelihood is unbounded."""
    held_out: float = 0.1
    """Fraction of episodes held out for early stopping (at least one; none if there is only one episode)."""
    patience: int = 20
    """Stop after this many windows of 500 updates without a lower held-out loss."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    batch_size: int = 256
    """Rows in one update."""

    pace = None
    remedies = "a smaller `lr`, or a larger `action_clip`"

    def __post_init__(self) -> None:
        check(self, "positive and finite", "lr", "batch_size", "patience")
        check(self, "finite and not negative", "weight_decay", "orthogonal_penalty")
        check(self, "above 0 and below 1", "action_clip")
        check(self, "at least 0 and below 1", "held_out")
        check(self, "one or more positive widths", "hidden")

    @classmethod
    def paper(cls) -> BC:
        """The paper's offline comparison: the step size and regularisation of ValueDICE's policy."""
        return cls(lr=1e-5, orthogonal_penalty=1e-4, weight_decay=0.0, action_clip=1e-6, held_out=0.0)

    @property
    def data(self) -> Data:
        """Expert rows without the absorbing state, because the policy never acts there."""
        return Data(self.batch_size, Sampling(absorbing="none"), held_out=self.held_out)

    def init(self, key: Array, spec: Spec) -> State:
        """A new network and optimiser."""
        actor = actor_init(key, spec.obs_size, spec.action_size, self.hidden, spec.discrete)
        return State(
            learning=actor,
            # A copy, because the arrays of a state must not share memory.
            actor=jax.tree.map(jnp.copy, actor),
            opt=adam_init(actor),
            window_loss=jnp.zeros(()),
            # Not infinity: non-finite numbers in a state count as divergence.
            best_loss=jnp.full((), jnp.finfo(jnp.float32).max),
            stale=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
            spec=spec,
        )

    def loss(self, actor: Params, spec: Spec, rows: Transition) -> Array:
        """J_BC = -E log π(a|s) (Equation 1)."""
        return -jnp.mean(log_likelihood(actor, spec, rows.obs, rows.action, self.action_clip))

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One gradient step on the regularised loss, then early stopping on held-out rows."""

        def regularised(actor: Params) -> tuple[Array, Metrics]:
            loss, orthogonal = self.loss(actor, state.spec, batch.expert), orthogonal_penalty(actor)
            return loss + self.orthogonal_penalty * orthogonal, {"loss": loss, "actor_penalty": orthogonal}

        gradient, metrics = jax.grad(regularised, has_aux=True)(state.learning)
        learning, opt = adam_step(self.lr, state.learning, gradient, state.opt)
        decay = self.lr * self.weight_decay
        # Only kernels decay: biases do not make the policy steeper.
        learning = [
            layer._replace(kernel=layer.kernel - decay * old.kernel)
            for layer, old in zip(learning, state.learning, strict=True)
        ]
        state = replace(state, learning=learning, opt=opt, updates=state.updates + 1)
        if not batch.held_out.size:
            return replace(state, actor=learning), metrics
        loss = self.loss(learning, state.spec, batch.held_out)
        return self.compare(state, loss), metrics | {"held_out_minibatch_loss": loss}

    def compare(self, state: State, loss: Array) -> State:
        """At the end of a window, keeps the parameters if the held-out loss is the lowest so far.

        During the first window the policy is always the latest. Once patience has run out, the policy stays fixed,
        so it does not matter at which later evaluation the run stops.
        """
        total = state.window_loss + loss
        ended = state.updates % WINDOW == 0
        better = ended & (total / WINDOW < state.best_loss) & (state.stale < self.patience)
        latest = better | (state.updates < WINDOW)
        return replace(
            state,
            actor=jax.tree.map(partial(jnp.where, latest), state.learning, state.actor),
            window_loss=jnp.where(ended, 0.0, total),
            best_loss=jnp.where(better, total / WINDOW, state.best_loss),
            stale=jnp.where(better, 0, state.stale + ended),
        )

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """The loss on all expert rows and on held-out rows, and whether to stop. There is no `kl_estimate`: the
        likelihood says nothing about the states that the policy visits."""
        expert, clip = batch.expert, self.action_clip
        likelihood = log_likelihood(state.actor, state.spec, expert.obs, expert.action, clip)
        entropy = policy_entropy(state.actor, state.spec, expert.obs, jax.random.key(0))
        metrics: Metrics = {"expert_loss": -weighted_mean(likelihood, expert.weight), "entropy": entropy}
        if not batch.held_out.size:
            return Diagnosis(metrics)
        held_out = batch.held_out
        alive = held_out.obs[:, -1] < 0.5
        unseen = log_likelihood(state.actor, state.spec, held_out.obs, held_out.action, clip)
        metrics["held_out_loss"] = -jnp.sum(jnp.where(alive, unseen, 0.0)) / jnp.sum(alive)
        return Diagnosis(metrics, converged=state.stale >= self.patience)
