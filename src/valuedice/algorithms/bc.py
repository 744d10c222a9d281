"""Behavioural cloning: supervised learning of the expert's actions.

    min_π  E_{(s,a)~D} ‖a - μ(s)‖²        (squared error of the mean action μ, the default)
    max_π  E_{(s,a)~D} log π(a|s)          (likelihood: Equation 1 of arXiv:1912.05032)

Expert actions are often at their bounds, where the likelihood of a squashed Gaussian spends itself on differences
of atanh(a) that no environment notices. The squared error does not. Discrete actions are cloned by likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import check, check_choices, policy_form
from valuedice.losses import orthogonal_penalty, weighted_mean
from valuedice.networks import (
    PolicyNet,
    actor_init,
    adam_init,
    adam_step,
    log_likelihood,
    policy_entropy,
    spread_of,
    squared_error,
)
from valuedice.types import Batch, Data, Metrics, Sampling, Spec, Transition

WINDOW = 500
"""Number of updates over which the held-out loss is averaged."""


def spread_loss(actor: PolicyNet, rows: Transition, clip: float) -> Array:
    """-E log π(a|s), with a gradient for the spread of π alone: what the mean learns does not depend on it."""
    log_prob = jax.vmap(lambda row, taken: spread_of(actor, row).log_prob(taken, clip))
    return -jnp.mean(log_prob(rows.obs, rows.action))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update changes."""

    learning: PolicyNet
    """The parameters in training."""
    actor: PolicyNet
    """The policy: the parameters with the lowest held-out loss so far; the latest without held-out data."""
    opt: optax.OptState
    window_loss: Array
    """Sum of the held-out losses in the current window."""
    best_loss: Array
    stale: Array
    """Number of windows since the best one."""
    updates: Array
    key: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class BC:
    """Behavioural cloning: supervised learning of the expert's actions. It never acts in an environment."""

    loss: Literal["squared", "likelihood"] = "squared"
    """Minimise the squared error of the mean action, or maximise the likelihood. Discrete actions: likelihood."""
    lr: float = 1e-3
    """Step size of the policy."""
    decay_updates: int = 0
    """Reduce the step size to 0 along a cosine over this many updates; 0 keeps it constant."""
    observation_noise: float = 0.0
    """Standard deviation of the noise added to normalised observations."""
    weight_decay: float = 0.0
    """Decoupled weight decay, as in AdamW."""
    orthogonal_penalty: float = 0.0
    """Weight of the orthogonal penalty on the policy."""
    action_clip: float = 1e-2
    """Clip expert actions to this distance from ±1 in likelihoods, which are unbounded there."""
    held_out: float = 0.1
    """Fraction of episodes held out for early stopping (at least one; none if there is only one episode)."""
    patience: int = 20
    """Stop after this many windows of 500 updates without a lower held-out loss."""
    hidden: tuple[int, ...] = ()
    """Widths of the hidden layers. By default 100 100 if the expert's actions were clipped, otherwise 256 256."""
    units: Literal["auto", "tanh", "relu"] = "auto"
    """What the policy's hidden units do. By default tanh if the expert's actions were clipped, otherwise relu."""
    bounds: Literal["auto", "clip", "tanh"] = "auto"
    """What bounds the policy's continuous actions. By default clip if the expert's were clipped, otherwise tanh."""
    batch_size: int = 256
    """Rows in one update."""

    pace = None
    remedies = "a smaller `lr`, or a larger `action_clip`"

    def __post_init__(self) -> None:
        check(self, "positive and finite", "lr", "batch_size", "patience")
        check(self, "finite and not negative", "weight_decay", "orthogonal_penalty")
        check(self, "finite and not negative", "decay_updates", "observation_noise")
        check(self, "above 0 and below 1", "action_clip")
        check(self, "at least 0 and below 1", "held_out")
        check(self, "positive widths", "hidden")
        check_choices(self)

    @classmethod
    def paper(cls) -> BC:
        """The paper's offline comparison: likelihood, with step size and regularisation of ValueDICE's policy."""
        return cls(
            loss="likelihood",
            lr=1e-5,
            decay_updates=0,
            observation_noise=0.0,
            weight_decay=0.0,
            orthogonal_penalty=1e-4,
            action_clip=1e-6,
            held_out=0.0,
            hidden=(256, 256),
            units="relu",
            bounds="tanh",
            batch_size=256,
        )

    @property
    def data(self) -> Data:
        """Expert rows without the absorbing state, because the policy never acts there."""
        return Data(self.batch_size, Sampling(absorbing="none"), held_out=self.held_out)

    def suited(self, *, clipped: bool) -> BC:
        """The algorithm with the policy network that suits demonstrations whose actions were clipped, or not."""
        form, hidden = policy_form(self.units, self.bounds, self.hidden, clipped=clipped)
        return replace(self, units=form.units, bounds=form.bounds, hidden=hidden)

    def init(self, key: Array, spec: Spec) -> State:
        """A new network and optimiser."""
        key, key_actor = jax.random.split(key)
        form, hidden = policy_form(self.units, self.bounds, self.hidden)
        actor = actor_init(key_actor, spec, hidden, form)
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
            key=key,
            spec=spec,
        )

    def with_policy(self, state: State, actor: PolicyNet) -> State:
        """The state with this policy in place of its own."""
        return replace(state, learning=actor, actor=jax.tree.map(jnp.copy, actor))

    def losses(self, actor: PolicyNet, spec: Spec, rows: Transition) -> Array:
        """The loss of each row: ‖a - μ(s)‖², or -log π(a|s) (Equation 1)."""
        if self.loss == "squared" and not spec.discrete:
            return squared_error(actor, rows.obs, rows.action)
        return -log_likelihood(actor, spec, rows.obs, rows.action, self.action_clip)

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One gradient step on the regularised loss, then early stopping on held-out rows."""
        key, key_noise = jax.random.split(state.key)
        expert = batch.expert
        if self.observation_noise:
            noise = self.observation_noise * jax.random.normal(key_noise, expert.obs.shape)
            expert = expert._replace(obs=expert.obs + noise.at[:, -1].set(0.0))

        def regularised(actor: PolicyNet) -> tuple[Array, Metrics]:
            loss = jnp.mean(self.losses(actor, state.spec, expert))
            total, metrics = loss, {"loss": loss}
            if self.loss == "squared" and not state.spec.discrete:
                # The squared error says nothing about the spread, which samples and the entropy need.
                metrics["spread_loss"] = spread_loss(actor, expert, self.action_clip)
                total += metrics["spread_loss"]
            # Computed only if used: it costs as much as a batch of rows.
            if self.orthogonal_penalty:
                metrics["actor_penalty"] = orthogonal_penalty(actor.layers)
                total += self.orthogonal_penalty * metrics["actor_penalty"]
            return total, metrics

        gradient, metrics = jax.grad(regularised, has_aux=True)(state.learning)
        lr = self.lr * self.decay(state.updates)
        learning, opt = adam_step(lr, state.learning, gradient, state.opt)
        # Only kernels decay: biases do not make the policy steeper.
        layers = [
            layer._replace(kernel=layer.kernel - lr * self.weight_decay * old.kernel)
            for layer, old in zip(learning.layers, state.learning.layers, strict=True)
        ]
        learning = replace(learning, layers=layers)
        state = replace(state, learning=learning, opt=opt, updates=state.updates + 1, key=key)
        if not batch.held_out.size:
            return replace(state, actor=learning), metrics
        loss = jnp.mean(self.losses(learning, state.spec, batch.held_out))
        return self.compare(state, loss), metrics | {"held_out_minibatch_loss": loss}

    def decay(self, updates: Array) -> Array | float:
        """The fraction of the step size that is left after so many updates."""
        if not self.decay_updates:
            return 1.0
        return 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(updates / self.decay_updates, 1.0)))

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
        loss says nothing about the states that the policy visits."""
        entropy = policy_entropy(state.actor, state.spec, batch.expert.obs, jax.random.key(0))
        expert = self.losses(state.actor, state.spec, batch.expert)
        metrics: Metrics = {"expert_loss": weighted_mean(expert, batch.expert.weight), "entropy": entropy}
        if not batch.held_out.size:
            return Diagnosis(metrics)
        unseen = self.losses(state.actor, state.spec, batch.held_out)
        alive = batch.held_out.obs[:, -1] < 0.5
        metrics["held_out_loss"] = jnp.sum(jnp.where(alive, unseen, 0.0)) / jnp.sum(alive)
        return Diagnosis(metrics, converged=state.stale >= self.patience)
