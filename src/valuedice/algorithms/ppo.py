"""Proximal policy optimisation: reinforcement learning on fresh rollouts (Schulman et al., arXiv:1707.06347).

    max_π  E min( ρ A, clip(ρ, 1-ε, 1+ε) A ),   ρ = π(a|s) / π_old(a|s)

A is the advantage of an action, by generalised advantage estimation (arXiv:1506.02438) with a learned value
function. There are no rewards here: another algorithm gives one for each row of the rollout (`step`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.settings import check_hidden, check_not_negative, check_positive, check_share
from valuedice.errors import InputError
from valuedice.networks import (
    Dense,
    Params,
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

# Of the policy's last layer at first: all states begin with nearly the same, central action.
FIRST_OUTPUT = 0.01
# Keeps the deviation of equal advantages, and the norm of a zero gradient, from dividing by zero.
EPS = 1e-8
# Of the logarithm of a ratio: a narrow policy that moves makes some actions so unlikely that e^ would overflow.
FARTHEST_RATIO = 20.0
# Of the step size, from one update to the next.
FASTEST_CHANGE = 1.5


def advantages(
    reward: Array, value: Array, next_value: Array, ended: Array, discount: float, trace: float
) -> Array:
    """A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V(s_{t+1}) - V(s_t); time is the first axis.

    The sum stops where an episode ends, and at the end of the rollout: what comes after is `next_value`.
    """
    delta = reward + discount * next_value - value

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        change, end = now
        advantage = change + discount * trace * jnp.where(end, 0.0, later)
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, ended), reverse=True)[1]


def ratios(log_prob: Array, old_log_prob: Array) -> Array:
    """ρ = π(a|s) / π_old(a|s), always finite."""
    return jnp.exp(jnp.clip(log_prob - old_log_prob, -FARTHEST_RATIO, FARTHEST_RATIO))


def clipped_surrogate(log_prob: Array, old_log_prob: Array, advantage: Array, clip: float) -> Array:
    """E min(ρ A, clip(ρ) A) (Equation 7): nothing is gained by leaving the interval around the old policy."""
    ratio = ratios(log_prob, old_log_prob)
    return jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage))


def clip_norm(gradient: Tree, limit: float) -> Tree:
    """The same direction, at most so long."""
    norm = jnp.sqrt(sum(jnp.sum(part**2) for part in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, limit / (norm + EPS))
    return jax.tree.map(lambda part: scale * part, gradient)


def adapted(scale: Array, change: Array, target: float) -> Array:
    """The share of the largest step size with which the next update should change the policy as much as it ought
    to: the divergence grows with the square of the step."""
    return jnp.minimum(1.0, scale * jnp.clip(jnp.sqrt(target / (change + EPS)), 1 / FASTEST_CHANGE, FASTEST_CHANGE))


def values(params: Params, obs: Array) -> Array:
    """(1-γ) V(s) of each row, the mean reward to come: of one scale whatever the discount. The absorbing state
    needs none, its value is known."""
    return jax.vmap(lambda row: mlp(params, row[:-1])[0])(obs)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that a step changes."""

    actor: Params
    value: Params
    actor_opt: optax.OptState
    value_opt: optax.OptState
    scale: Array
    """Of the policy's step size: its share of `actor_lr`."""
    key: Array
    spec: Spec = field(metadata={"static": True})


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation (arXiv:1707.06347): learns from rewards that it is given."""

    discount: float = 0.99
    """γ."""
    trace: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """ε: how far the probability of an action may move in one update, as a share of what it was."""
    actor_lr: float = 3e-4
    """Largest step size of the policy."""
    policy_change: float = 0.03
    """KL(π_old ‖ π) on average over an update, which the step size is lowered to keep to: a policy that has become
    narrow is changed by small steps."""
    value_lr: float = 1e-3
    """Step size of the value function."""
    entropy_bonus: float = 0.0
    """What entropy of the policy is worth, beside advantages of standard deviation 1."""
    gradient_clip: float = 0.5
    """Longest gradient, of policy and value function each."""
    epochs: int = 5
    """Passes over a rollout."""
    minibatch: int = 256
    """Rows of a rollout in one gradient."""
    rollout: int = 2_048
    """Environment steps between updates, of all environments together."""
    environments: int = 16
    """Environments that are stepped side by side."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers of policy and value function."""

    def __post_init__(self) -> None:
        check_share(self, "discount")
        for name in ("trace", "clip"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1")
        check_positive(self, "actor_lr", "policy_change", "value_lr", "gradient_clip")
        check_positive(self, "epochs", "minibatch", "rollout", "environments")
        check_not_negative(self, "entropy_bonus")
        for name in ("environments", "minibatch"):
            if self.rollout % getattr(self, name):
                raise InputError(
                    f"rollout is {self.rollout}, {name} {getattr(self, name)}; rollout must be a multiple of {name}"
                )
        check_hidden(self.hidden)

    def init(self, key: Array, spec: Spec) -> State:
        """Fresh networks and optimisers."""
        key, key_actor, key_value = jax.random.split(key, 3)
        actor = actor_init(key_actor, spec.obs_size, spec.action_size, self.hidden, spec.discrete)
        actor = [*actor[:-1], Dense(FIRST_OUTPUT * actor[-1].kernel, actor[-1].bias)]
        value = mlp_init(key_value, (spec.obs_size, *self.hidden, 1))
        return State(actor, value, adam_init(actor), adam_init(value), jnp.ones(()), key, spec)

    def estimate(
        self, value_params: Params, rollout: Rollout, reward: Array, absorbing_reward: Array
    ) -> tuple[Array, Array]:
        """Values and advantages of the rows of a rollout, both times (1-γ).

        Where the task ended, the absorbing state's reward goes on for ever: r/(1-γ). Where the recording ended,
        by a time limit or because the rollout is full, V of the true last s′ stands for what would have come.
        """
        terminated = rollout.next_obs[..., -1] > 0.5
        value = jax.vmap(partial(values, value_params))(rollout.obs)
        next_value = jax.vmap(partial(values, value_params))(rollout.next_obs)
        next_value = jnp.where(terminated, absorbing_reward, next_value)
        scaled = (1 - self.discount) * reward
        return value, advantages(scaled, value, next_value, rollout.ended, self.discount, self.trace)

    def step(self, state: State, rollout: Rollout, reward: Array, absorbing_reward: Array) -> tuple[State, Metrics]:
        """Epochs of minibatches on one rollout, with a reward for each of its rows (time × environments)."""
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
        """One gradient step of policy and value function."""
        actor, value, actor_opt, value_opt = networks
        order, key = chosen
        obs, action, old, advantage, target = (part[order] for part in rows)

        def policy_loss(actor: Params) -> tuple[Array, Metrics]:
            log_prob = log_likelihood(actor, spec, obs, action)
            gain = clipped_surrogate(log_prob, old, advantage, self.clip)
            if self.entropy_bonus:
                gain = gain + self.entropy_bonus * policy_entropy(actor, spec, obs, key)
            outside = jnp.mean(jnp.abs(ratios(log_prob, old) - 1) > self.clip)
            # KL(π_old ‖ π) to second order, which single rows do not dominate.
            return -gain, {"policy_change": jnp.mean(0.5 * (log_prob - old) ** 2), "clipped": outside}

        def value_loss(value: Params) -> Array:
            return 0.5 * jnp.mean((values(value, obs) - target) ** 2)

        gradient, metrics = jax.grad(policy_loss, has_aux=True)(actor)
        actor, actor_opt = adam_step(actor_lr, actor, clip_norm(gradient, self.gradient_clip), actor_opt)
        loss, gradient = jax.value_and_grad(value_loss)(value)
        value, value_opt = adam_step(self.value_lr, value, clip_norm(gradient, self.gradient_clip), value_opt)
        return (actor, value, actor_opt, value_opt), metrics | {"value_loss": loss}
