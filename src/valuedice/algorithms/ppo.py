"""Proximal policy optimisation: on-policy reinforcement learning (Schulman et al., arXiv:1707.06347).

    max_π  E min( ρ A, clip(ρ, 1-ε, 1+ε) A ),   ρ = π(a|s) / π_old(a|s)

A is the advantage of an action, by generalised advantage estimation (arXiv:1506.02438) with a learned value
function. Rewards come from the environment (`update`) or from another algorithm (`step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.algorithms.observed import Observed
from valuedice.algorithms.protocol import Diagnosis
from valuedice.algorithms.settings import MEASURING, check, check_choices
from valuedice.errors import InputError
from valuedice.networks import (
    Dense,
    Params,
    PolicyNet,
    Tree,
    actor_init,
    adam_init,
    adam_step,
    gaussian_policy,
    log_likelihood,
    mlp,
    mlp_init,
    policy_entropy,
)
from valuedice.types import LOG_STD_MAX, LOG_STD_MIN, Batch, Bounds, Data, Form, Metrics, Pace, Rollout, Spec, Units

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


def with_common_spread(actor: PolicyNet, spec: Spec, least_std: float) -> PolicyNet:
    """The policy with a standard deviation that is the same in all states, and at least this. The output layer
    holds the raw log standard deviation behind the location (`gaussian_policy`)."""
    least = (math.log(least_std) - LOG_STD_MIN) / (0.5 * (LOG_STD_MAX - LOG_STD_MIN)) - 1
    *below, output = actor.layers
    spread = slice(spec.action_size, None)
    assert output.bias is not None
    kernel, bias = output.kernel.at[:, spread].set(0.0), output.bias.at[spread].max(math.atanh(least))
    return replace(actor, layers=[*below, Dense(kernel, bias)])


def excess(actor: PolicyNet, obs: Array) -> Array:
    """How far the mean of a clipped Gaussian is outside the bounds: E Σ max(0, |location| - 1)². Far outside, its
    noise is clipped away: the policy learns without noise, and does not recover from any."""
    location = jax.vmap(lambda row: gaussian_policy(actor, row).location)(obs)
    return jnp.mean(jnp.sum(jnp.maximum(0.0, jnp.abs(location) - 1) ** 2, axis=-1))


def values(params: Params, obs: Array, units: Units) -> Array:
    """(1-γ) V(s) of each row: a weighted mean of future rewards, so its scale does not depend on γ. The absorbing
    mark is not an input, because the value of the absorbing state is known."""
    return jax.vmap(lambda row: mlp(params, row[:-1], units=units)[0])(obs)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Networks:
    """Everything that a step changes."""

    actor: PolicyNet
    value: Params
    actor_opt: optax.OptState
    value_opt: optax.OptState
    scale: Array
    """The policy's step size as a fraction of `actor_lr`."""
    steps: Array
    """Environment steps learned from."""
    key: Array
    spec: Spec = field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that an update with the environment's rewards changes."""

    networks: Networks
    observed: Observed

    @property
    def actor(self) -> PolicyNet:
        """The policy, of normalised observations."""
        return self.networks.actor


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation (arXiv:1707.06347): on-policy reinforcement learning.

    With the environment's rewards, observations are normalised by the mean and the standard deviation of all that
    the policy has seen; GAIL normalises them by the demonstrations.
    """

    discount: float = 0.99
    """Discount factor γ."""
    trace: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """Clipping range ε of the probability ratio π/π_old."""
    actor_lr: float = 6e-4
    """Largest step size of the policy; it is lowered while the policy changes too fast."""
    decay_steps: int = 0
    """Environment steps over which both step sizes fall linearly to 0; 0 keeps them."""
    policy_change: float = 0.03
    """Target for the mean KL(π_old ‖ π) in one update; the policy's step size adapts to reach it."""
    value_lr: float = 1e-3
    """Step size of the value function."""
    least_std: float = 0.15
    """Smallest standard deviation of a continuous action, which is then the same in all states. A policy that
    learns under noise recovers from it. 0 lets the deviation depend on the state, without a limit."""
    bound_penalty: float = 1.0
    """Weight of the penalty on means of clipped actions that are outside the bounds."""
    entropy_bonus: float = 0.0
    """Weight of the policy's entropy, relative to advantages of standard deviation 1."""
    gradient_clip: float = 0.5
    """Largest gradient norm, for policy and value function separately."""
    epochs: int = 10
    """Passes over each rollout."""
    minibatch: int = 256
    """Rows in one gradient step."""
    rollout: int = 2_048
    """Environment steps per rollout, summed over all environments."""
    environments: int = 16
    """Number of parallel environments."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the policy and the value function."""
    units: Units = "tanh"
    """What the hidden units do."""
    bounds: Bounds = "clip"
    """What keeps continuous actions inside their bounds: clipping, or a tanh that squashes them."""

    remedies = "a smaller `actor_lr` or `value_lr`"

    def __post_init__(self) -> None:
        check(self, "at least 0 and below 1", "discount")
        check(self, "at least 0 and at most 1", "trace", "clip")
        check(self, "positive and finite", "actor_lr", "policy_change", "value_lr", "gradient_clip")
        check(self, "positive and finite", "epochs", "minibatch", "rollout", "environments")
        check(self, "finite and not negative", "bound_penalty", "entropy_bonus", "decay_steps")
        narrowest = math.exp(LOG_STD_MIN)
        if self.least_std and not narrowest < self.least_std < 1:
            raise InputError(f"`least_std` is {self.least_std}; it must be 0, or above {narrowest:.2g} and below 1")
        check_choices(self)
        check(self, "one or more positive widths", "hidden")
        for name in ("environments", "minibatch"):
            if self.rollout % (value := getattr(self, name)):
                raise InputError(
                    f"`rollout` is {self.rollout}; it must be a multiple of `{name}`, which is {value}"
                )

    @property
    def pace(self) -> Pace:
        """One update per rollout. Actions are sampled from the policy, without further noise."""
        shape = (self.rollout // self.environments, self.environments)
        return Pace(1, self.rollout, 0, self.rollout, noise=None, rollout=shape)

    @property
    def data(self) -> Data:
        """Rollouts with rewards of the environment, and no demonstrations."""
        return Data(self.minibatch, demos=False)

    def init(self, key: Array, spec: Spec) -> State:
        """New networks and optimisers; nothing has been observed."""
        return State(self.begin(key, spec), Observed.nothing(spec.obs_size))

    def begin(self, key: Array, spec: Spec) -> Networks:
        """New networks and optimisers."""
        key, key_actor, key_value = jax.random.split(key, 3)
        actor = actor_init(key_actor, spec, self.hidden, Form(self.units, self.bounds))
        *below, output = actor.layers
        actor = replace(actor, layers=[*below, Dense(FIRST_OUTPUT * output.kernel, output.bias)])
        actor = self.held(actor, spec)
        value = mlp_init(key_value, (spec.obs_size, *self.hidden, 1))
        counts = jnp.ones(()), jnp.zeros((), jnp.int32)
        return Networks(actor, value, adam_init(actor), adam_init(value), *counts, key, spec)

    def update(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One step with the environment's rewards. After termination there are none, so the value is 0. The rollout
        is normalised as it was when the policy acted, and counts from the next one on."""
        rollout = batch.rollout
        normal = state.observed.normalized(rollout)
        networks, metrics = self.step(state.networks, normal, rollout.reward, jnp.zeros(()))
        metrics |= {"reward": jnp.mean(rollout.reward)}
        return State(networks, state.observed.merged(rollout.obs)), metrics

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """Values and the spread of the policy on the newest rollout. Values are (1-γ) V, on the scale of one
        reward."""
        rollout = state.observed.normalized(batch.rollout)
        value = self.evaluate(state.networks.value, rollout.obs)
        obs = rollout.obs.reshape(-1, rollout.obs.shape[-1])
        key_entropy = jax.random.fold_in(state.networks.key, MEASURING)
        entropy = policy_entropy(state.actor, state.networks.spec, obs, key_entropy)
        metrics = {"value_mean": jnp.mean(value), "value_std": jnp.std(value), "entropy": entropy}
        if not state.networks.spec.discrete:
            log_std = jax.vmap(lambda row: gaussian_policy(state.actor, row).log_std)(obs)
            metrics |= {"policy_std": jnp.mean(jnp.exp(log_std))}
        return Diagnosis(metrics)

    def held(self, actor: PolicyNet, spec: Spec) -> PolicyNet:
        """The policy within the limits of its spread."""
        return with_common_spread(actor, spec, self.least_std) if self.least_std and not spec.discrete else actor

    def evaluate(self, value: Params, obs: Array) -> Array:
        """(1-γ) V(s) of each row of a rollout."""
        return jax.vmap(lambda rows: values(value, rows, self.units))(obs)

    def estimate(
        self, value_params: Params, rollout: Rollout, reward: Array, absorbing_reward: Array
    ) -> tuple[Array, Array]:
        """Values and advantages of the rows of a rollout, both times (1-γ).

        After termination, the absorbing state's reward r continues forever, with value r/(1-γ). After a time limit
        or the end of the rollout, the bootstrap is V of the true last s′.
        """
        terminated = rollout.next_obs[..., -1] > 0.5
        value = self.evaluate(value_params, rollout.obs)
        next_value = jnp.where(terminated, absorbing_reward, self.evaluate(value_params, rollout.next_obs))
        scaled = (1 - self.discount) * reward
        return value, advantages(scaled, value, next_value, rollout.ended, self.discount, self.trace)

    def step(
        self, state: Networks, rollout: Rollout, reward: Array, absorbing_reward: Array
    ) -> tuple[Networks, Metrics]:
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
        left = 1.0 if not self.decay_steps else jnp.maximum(0.0, 1 - state.steps / self.decay_steps)
        actor_lr = left * state.scale * self.actor_lr
        body = partial(self._minibatch, state.spec, actor_lr, left * self.value_lr, rows)
        (actor, value_net, actor_opt, value_opt), metrics = jax.lax.scan(body, networks, (orders, keys))
        metrics = jax.tree.map(jnp.mean, metrics)
        scale = adapted(state.scale, metrics["policy_change"], self.policy_change)
        metrics |= {"actor_step": actor_lr}
        metrics |= {"explained_variance": 1 - jnp.var(advantage) / (jnp.var(target) + EPS)}
        networks = {"actor": actor, "value": value_net, "actor_opt": actor_opt, "value_opt": value_opt}
        return replace(state, **networks, scale=scale, steps=state.steps + self.rollout, key=key), metrics

    def _minibatch(
        self,
        spec: Spec,
        actor_lr: Array,
        value_lr: Array | float,
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
            if self.bound_penalty and self.bounds == "clip" and not spec.discrete:
                gain = gain - self.bound_penalty * excess(actor, obs)
            outside = jnp.mean(jnp.abs(ratios(log_prob, old) - 1) > self.clip)
            # A second-order estimate of KL(π_old ‖ π), which no single row dominates.
            return -gain, {"policy_change": jnp.mean(0.5 * (log_prob - old) ** 2), "clipped": outside}

        def value_loss(value: Params) -> Array:
            return 0.5 * jnp.mean((values(value, obs, self.units) - target) ** 2)

        gradient, metrics = jax.grad(policy_loss, has_aux=True)(actor)
        actor, actor_opt = adam_step(actor_lr, actor, clip_norm(gradient, self.gradient_clip), actor_opt)
        actor = self.held(actor, spec)
        loss, gradient = jax.value_and_grad(value_loss)(value)
        value, value_opt = adam_step(value_lr, value, clip_norm(gradient, self.gradient_clip), value_opt)
        return (actor, value, actor_opt, value_opt), metrics | {"value_loss": loss}
