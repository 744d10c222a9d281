"""Behavioural cloning: maximum likelihood of the expert's actions (Equation 1 of arXiv:1912.05032).

    max_π  E_{(s,a)~D} log π(a|s)

With few demonstrations the likelihood is soon learned by heart, so what keeps the policy smooth decides: weight
decay, the orthogonal penalty, and, where there is more than one demonstration, stopping when held-out ones become
less likely.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import check_hidden, check_not_negative, check_positive, check_share
from valuedice.errors import InputError
from valuedice.losses import orthogonal_penalty, weighted_mean
from valuedice.networks import (
    Params,
    actor_init,
    adam_init,
    adam_step,
    log_likelihood,
    policy_entropy,
)
from valuedice.types import Batch, Data, Metrics, Sampling, Spec, Transition

WINDOW = 500
"""Updates over which the loss on held-out rows is averaged before it is compared."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    learning: Params
    actor: Params
    """The policy: what is learning, as it was when held-out actions were most likely; without any, as it is."""
    opt: optax.OptState
    window_loss: Array
    """Sum over the open window of the loss on held-out rows."""
    best_loss: Array
    stale: Array
    """Windows since the best one."""
    updates: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class BC:
    """Behavioural cloning: maximum likelihood of the expert's actions. It never looks at an environment."""

    lr: float = 1e-3
    """Step size."""
    weight_decay: float = 0.0
    """Decay of the weights for each unit of step size (as in AdamW)."""
    orthogonal_penalty: float = 0.0
    """Weight of the orthogonal penalty."""
    action_clip: float = 1e-2
    """How far inside its bounds an action at the bound is taken to be: its likelihood there is infinite."""
    held_out: float = 0.1
    """Fraction of episodes held out for early stopping (at least one; none if there is only one episode)."""
    patience: int = 20
    """Windows of 500 updates without a better loss on held-out episodes, after which training stops."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    batch_size: int = 256
    """Rows in one update."""

    pace = None
    remedies = "a smaller step (`lr`), or a larger `action_clip`"

    def __post_init__(self) -> None:
        check_positive(self, "lr", "action_clip", "batch_size", "patience")
        check_not_negative(self, "weight_decay", "orthogonal_penalty")
        check_hidden(self.hidden)
        check_share(self, "held_out")
        if self.action_clip >= 1:
            raise InputError(f"action_clip is {self.action_clip}; actions span [-1, 1], so it must be below 1")

    @classmethod
    def paper(cls) -> BC:
        """As in the paper's offline comparison: the regularisation and the step of ValueDICE's policy."""
        return cls(lr=1e-5, orthogonal_penalty=1e-4, weight_decay=0.0, action_clip=1e-6, held_out=0.0)

    @property
    def data(self) -> Data:
        """Expert rows without the absorbing state, in which the policy never acts."""
        return Data(self.batch_size, Sampling(absorbing="none"), held_out=self.held_out)

    def init(self, key: Array, spec: Spec) -> State:
        """Fresh network and optimiser."""
        actor = actor_init(key, spec.obs_size, spec.action_size, self.hidden, spec.discrete)
        return State(
            learning=actor,
            # A copy: a compiled update reuses the memory of its state, which no two parts may share.
            actor=jax.tree.map(jnp.copy, actor),
            opt=adam_init(actor),
            window_loss=jnp.zeros(()),
            # Finite, as all of a state is.
            best_loss=jnp.full((), jnp.finfo(jnp.float32).max),
            stale=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
            spec=spec,
        )

    def loss(self, actor: Params, spec: Spec, rows: Transition) -> Array:
        """J_BC = -E log π(a|s) (Equation 1)."""
        return -jnp.mean(log_likelihood(actor, spec, rows.obs, rows.action, self.action_clip))

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """A step down the loss and its regularisation; then, a look at held-out rows."""

        def regularised(actor: Params) -> tuple[Array, Metrics]:
            loss, orthogonal = self.loss(actor, state.spec, batch.expert), orthogonal_penalty(actor)
            return loss + self.orthogonal_penalty * orthogonal, {"loss": loss, "actor_penalty": orthogonal}

        gradient, metrics = jax.grad(regularised, has_aux=True)(state.learning)
        learning, opt = adam_step(self.lr, state.learning, gradient, state.opt)
        decay = self.lr * self.weight_decay
        # Biases set where the policy is, not how steep: they do not decay.
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
        """At the end of a window, keeps the policy if held-out actions were never more likely.

        In the first window it is simply the latest. When patience has run out, nothing changes it any more: when
        one evaluates, and so stops, must not decide what is learned.
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
        """The policy's loss on all rows, and on the held-out ones if there are any; whether to stop.

        There is no divergence estimate: a likelihood knows nothing about the states that the policy leads to.
        """
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
