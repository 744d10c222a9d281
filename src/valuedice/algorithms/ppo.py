"""Proximal policy optimisation: on-policy reinforcement learning (Schulman et al., arXiv:1707.06347).

    max_π  E min( ρ A, clip(ρ, 1-ε, 1+ε) A ),   ρ = π(a|s) / π_old(a|s)

A is the advantage of an action, by generalised advantage estimation (arXiv:1506.02438) with a learned value
function. The caller of `step` supplies the rewards, one for each row of the rollout.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.settings import check
from valuedice.errors import InputError
from valuedice.networks import (
    Dense,
    Params,
    PolicyNet,
    Tree,
    actor_init,
    adam_init,
    adam_step,
    log_likelihood,
    mlp,
    mlp_init,
    policy_entropy,
)
from valuedice.types import Metrics, Rollout, Spec

FIRST_OUTPUT = 0.01
"""Initial scale of the policy's last layer: at first, all states get nearly the same, central action."""
EPS = 1e-8
"""Avoids division by zero, for equal advantages or a zero gradient."""
MAX_LOG_RATIO = 20.0
"""Bound on |log ρ|: if a narrow policy moves, e^ could overflow."""
MAX_CHANGE = 1.5
"""Largest factor by which the step size changes from one update to the next."""


def advantages(
    reward: Array, value: Array, next_value: Array, ended: Array, discount: float, trace: float
) -> Array:
    """A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V(s_{t+1}) - V(s_t); time is the first axis. At the end of an episode
    or of the rollout, the sum stops, and `next_value` stands for what follows."""
    delta = reward + discount * next_value - value

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        change, end = now
        advantage = change + discount * trace * jnp.where(end, 0.0, later)
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, ended), reverse=True)[1]


def ratios(log_prob: Array, old_log_prob: Array) -> Array:
    """ρ = π(a|s) / π_old(a|s), clipped so that it is finite."""
    return jnp.exp(jnp.clip(log_prob - old_log_prob, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def clipped_surrogate(log_prob: Array, old_log_prob: Array, advantage: Array, clip: float) -> Array:
    """E min(ρ A, clip(ρ) A) (Equation 7 of the PPO paper): there is no gain from moving ρ out of [1-ε, 1+ε]."""
    ratio = ratios(log_prob, old_log_prob)
    return jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage))


def clip_norm(gradient: Tree, limit: float) -> Tree:
    """Scales a gradient to a norm of at most `limit`."""
    norm = jnp.sqrt(sum(jnp.sum(part**2) for part in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, limit / (norm + EPS))
    return jax.tree.map(lambda part: scale * part, gradient)


def adapted(scale: Array, change: Array, target: float) -> Array:
    """The next scale of the step size, at most 1. The policy's KL change grows with the square of the step, so the
    square root of target over change would bring the change to its target."""
    return jnp.minimum(1.0, scale * jnp.clip(jnp.sqrt(target / (change + EPS)), 1 / MAX_CHANGE, MAX_CHANGE))


def values(params: Params, obs: Array) -> Array:
    """(1-γ) V(s) of each row: a weighted mean of future rewards, so its scale does not depend on γ. The absorbing
    mark is not an input, because the value of the absorbing state is known."""
    return jax.vmap(lambda row: mlp(params, row[:-1])[0])(obs)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that a step changes."""

    actor: PolicyNet
    value: Params
    actor_opt: optax.OptState
    value_opt: optax.OptState
    scale: Array
    """The policy's step size as a fraction of `actor_lr`."""
    key: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation (arXiv:1707.06347), with rewards from the caller."""

    discount: float = 0.99
    """Discount factor γ."""
    trace: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """Clipping range ε of the probability ratio π/π_old."""
    actor_lr: float = 3e-4
    """Largest step size of the policy; it is lowered while the policy changes too fast."""
    policy_change: float = 0.03
    """Target for the mean KL(π_old ‖ π) in one update; the policy's step size adapts to reach it."""
    value_lr: float = 1e-3
    """Step size of the value function."""
    entropy_bonus: float = 0.0
    """Weight of the policy's entropy, relative to advantages of standard deviation 1."""
    gradient_clip: float = 0.5
    """Largest gradient norm, for policy and value function separately."""
    epochs: int = 5
    """Passes over each rollout."""
    minibatch: int = 256
    """Rows in one gradient step."""
    rollout: int = 2_048
    """Environment steps per rollout, summed over all environments."""
    environments: int = 16
    """Number of parallel environments."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers of the policy and the value function."""

    def __post_init__(self) -> None:
        check(self, "at least 0 and below 1", "discount")
        check(self, "at least 0 and at most 1", "trace", "clip")
        check(self, "positive and finite", "actor_lr", "policy_change", "value_lr", "gradient_clip")
        check(self, "positive and finite", "epochs", "minibatch", "rollout", "environments")
        check(self, "finite and not negative", "entropy_bonus")
        check(self, "one or more positive widths", "hidden")
        for name in ("environments", "minibatch"):
            if self.rollout % (value := getattr(self, name)):
                raise InputError(
                    f"`rollout` is {self.rollout}; it must be a multiple of `{name}`, which is {value}"
                )

    def init(self, key: Array, spec: Spec) -> State:
        """New networks and optimisers."""
        key, key_actor, key_value = jax.random.split(key, 3)
        actor = actor_init(key_actor, spec, self.hidden)
        *below, output = actor.layers
        actor = replace(actor, layers=[*below, Dense(FIRST_OUTPUT * output.kernel, output.bias)])
        value = mlp_init(key_value, (spec.obs_size, *self.hidden, 1))
        return State(actor, value, adam_init(actor), adam_init(value), jnp.ones(()), key, spec)

    def estimate(
        self, value_params: Params, rollout: Rollout, reward: Array, absorbing_reward: Array
    ) -> tuple[Array, Array]:
        """Values and advantages of the rows of a rollout, both times (1-γ).

        After termination, the absorbing state's reward r continues forever, with value r/(1-γ). After a time limit
        or the end of the rollout, the bootstrap is V of the true last s′.
        """
        terminated = rollout.next_obs[..., -1] > 0.5
        value = jax.vmap(partial(values, value_params))(rollout.obs)
        next_value = jax.vmap(partial(values, value_params))(rollout.next_obs)
        next_value = jnp.where(terminated, absorbing_reward, next_value)
        scaled = (1 - self.discount) * reward
        return value, advantages(scaled, value, next_value, rollout.ended, self.discount, self.trace)

    def with_policy(self, state: State, actor: PolicyNet) -> State:
        """The state with this policy in place of its own."""
        return replace(state, actor=actor)

    def step(self, state: State, rollout: Rollout, reward: Array, absorbing_reward: Array) -> tuple[State, Metrics]:
        """Some epochs of minibatches on one rollout, with a reward for each row (time × environments)."""
        value, advantage = self.estimate(state.value, rollout, reward, absorbing_reward)
        target = advantage + value
        normal = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + EPS)

        obs, action = (part.reshape(-1, part.shape[-1]) for part in (rollout.obs, rollout.action))
        old = log_likelihood(state.actor, state.spec, obs, action)
        rows = (obs, action, old, normal.ravel(), target.ravel())
        key, key_order, key_entropy = jax.random.split(state.key, 3)
        orders = jax.vmap(lambda each: jax.random.permutation(each, self.rollout))(
            jax.random.split(key_order, self.epochs)
        )
        orders = orders.reshape(-1, self.minibatch)
        keys = jax.random.split(key_entropy, len(orders))

        networks = (state.actor, state.value, state.actor_opt, state.value_opt)
        body = partial(self._minibatch, state.spec, state.scale * self.actor_lr, rows)
        (actor, value_net, actor_opt, value_opt), metrics = jax.lax.scan(body, networks, (orders, keys))
        metrics = jax.tree.map(jnp.mean, metrics)
        scale = adapted(state.scale, metrics["policy_change"], self.policy_change)
        metrics |= {"actor_step": state.scale * self.actor_lr}
        metrics |= {"explained_variance": 1 - jnp.var(advantage) / (jnp.var(target) + EPS)}
        networks = {"actor": actor, "value": value_net, "actor_opt": actor_opt, "value_opt": value_opt}
        return replace(state, **networks, scale=scale, key=key), metrics

    def _minibatch(
        self,
        spec: Spec,
        actor_lr: Array,
        rows: tuple[Array, ...],
        networks: tuple[Any, ...],
        chosen: tuple[Array, Array],
    ) -> tuple[tuple[Any, ...], Metrics]:
        """One gradient step of the policy and of the value function."""
        actor, value, actor_opt, value_opt = networks
        order, key = chosen
        obs, action, old, advantage, target = (part[order] for part in rows)

        def policy_loss(actor: PolicyNet) -> tuple[Array, Metrics]:
            log_prob = log_likelihood(actor, spec, obs, action)
            gain = clipped_surrogate(log_prob, old, advantage, self.clip)
            if self.entropy_bonus:
                gain = gain + self.entropy_bonus * policy_entropy(actor, spec, obs, key)
            outside = jnp.mean(jnp.abs(ratios(log_prob, old) - 1) > self.clip)
            # A second-order estimate of KL(π_old ‖ π), which no single row dominates.
            return -gain, {"policy_change": jnp.mean(0.5 * (log_prob - old) ** 2), "clipped": outside}

        def value_loss(value: Params) -> Array:
            return 0.5 * jnp.mean((values(value, obs) - target) ** 2)

        gradient, metrics = jax.grad(policy_loss, has_aux=True)(actor)
        actor, actor_opt = adam_step(actor_lr, actor, clip_norm(gradient, self.gradient_clip), actor_opt)
        loss, gradient = jax.value_and_grad(value_loss)(value)
        value, value_opt = adam_step(self.value_lr, value, clip_norm(gradient, self.gradient_clip), value_opt)
        return (actor, value, actor_opt, value_opt), metrics | {"value_loss": loss}
