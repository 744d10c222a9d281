"""Multilayer perceptrons as plain pytrees, and the two kinds of policy on top of them.

Every function here is about *one* row; callers `vmap`, so that rows cannot mix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.types import LOG_STD_MAX, LOG_STD_MIN, Spec

# Expert actions of exactly ±1 are common and atanh(1) is infinite: a likelihood is taken this far inside.
ACTION_EPS = 1e-6


class Dense(NamedTuple):
    """One layer; `bias` is None where an offset cannot matter."""

    kernel: Array
    bias: Array | None


Params = list[Dense]
Tree = TypeVar("Tree")
"""Parameters in any arrangement."""


def mlp_init(key: Array, sizes: Sequence[int], *, output_bias: bool = True) -> Params:
    """Orthogonal kernels, zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    orthogonal = jax.nn.initializers.orthogonal()
    params = []
    for index, (key_layer, fan_in, fan_out) in enumerate(zip(keys, sizes[:-1], sizes[1:], strict=True)):
        last = index == len(sizes) - 2
        bias = jnp.zeros(fan_out) if output_bias or not last else None
        params.append(Dense(orthogonal(key_layer, (fan_in, fan_out)), bias))
    return params


def mlp(params: Params, x: Array, *, standardize: bool = False) -> Array:
    """Dense layers with ReLU between them, and before it, if asked for, a standardisation of each row's features
    (layer normalisation without parameters of its own)."""
    for index, layer in enumerate(params):
        x = x @ layer.kernel
        if layer.bias is not None:
            x = x + layer.bias
        if index < len(params) - 1:
            x = jax.nn.relu(standardized(x) if standardize else x)
    return x


def standardized(x: Array) -> Array:
    """With mean 0 and standard deviation 1."""
    x = x - jnp.mean(x)
    return x * jax.lax.rsqrt(jnp.mean(x**2) + 1e-6)


def adam_init(params: Any) -> optax.OptState:
    """Fresh moments."""
    return optax.scale_by_adam().init(params)


def adam_step(
    lr: float | Array, params: Tree, gradient: Tree, moments: optax.OptState
) -> tuple[Tree, optax.OptState]:
    """One step of Adam *down* the gradient; a negative `lr` goes up."""
    step, moments = optax.scale_by_adam().update(cast(optax.Updates, gradient), moments)
    return jax.tree.map(lambda value, change: value - lr * change, params, step), moments


def critic_init(key: Array, obs_size: int, action_size: int, hidden: Sequence[int]) -> Params:
    """A scalar function of [s, a], where s carries the absorbing mark.

    Without an output bias: ValueDICE's objective does not change when a constant is added to ν.
    """
    return mlp_init(key, (obs_size + 1 + action_size, *hidden, 1), output_bias=False)


def state_actions(obs: Array, action: Array) -> Array:
    """[s, a] of each row: what critics and discriminators see."""
    return jnp.concatenate([obs, action], axis=-1)


def critic(params: Params, row: Array) -> Array:
    """A number for one row [s, a]: ν, or the logit of a discriminator."""
    return mlp(params, row)[0]


class TanhGaussian(NamedTuple):
    """a = tanh(u), u ~ N(location, e^log_std)."""

    location: Array
    log_std: Array

    def mode(self) -> Array:
        """The action of the mean, which evaluation takes."""
        return jnp.tanh(self.location)

    def sample(self, noise: Array) -> Array:
        """Reparameterised: a differentiable function of standard normal `noise`."""
        return jnp.tanh(self.location + jnp.exp(self.log_std) * noise)

    def log_prob(self, action: Array, clip: float = ACTION_EPS) -> Array:
        """Finite at ±1: an action is taken to be at least so far inside."""
        u = jnp.arctanh(jnp.clip(action, -1 + clip, 1 - clip))
        gaussian = jax.scipy.stats.norm.logpdf(u, self.location, jnp.exp(self.log_std))
        return jnp.sum(gaussian - log_tanh_slope(u))

    def entropy(self, noise: Array) -> Array:
        """Of the tanh-Gaussian, by the one sample that `noise` gives: there is no closed form."""
        u = self.location + jnp.exp(self.log_std) * noise
        gaussian = 0.5 * jnp.log(2 * jnp.pi * jnp.e) + self.log_std
        return jnp.sum(gaussian + log_tanh_slope(u))


def log_tanh_slope(u: Array) -> Array:
    """log(1 - tanh²u), without the cancellation."""
    return 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))


class Categorical(NamedTuple):
    """A distribution over one-hot actions."""

    logits: Array

    def probs(self) -> Array:
        """π(·|s)."""
        return jax.nn.softmax(self.logits)

    def log_prob(self, action: Array) -> Array:
        """Of a one-hot action."""
        return jnp.sum(action * jax.nn.log_softmax(self.logits))

    def entropy(self) -> Array:
        """Exact."""
        return -jnp.sum(self.probs() * jax.nn.log_softmax(self.logits))


def actor_init(key: Array, obs_size: int, action_size: int, hidden: Sequence[int], discrete: bool) -> Params:
    """The policy never acts in the absorbing state, so it does not see its mark."""
    return mlp_init(key, (obs_size, *hidden, action_size if discrete else 2 * action_size))


def gaussian_policy(params: Params, obs: Array) -> TanhGaussian:
    """π(·|s) for actions in (-1, 1); log-std bounded by a tanh."""
    location, raw = jnp.split(mlp(params, obs[:-1]), 2)
    log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (jnp.tanh(raw) + 1)
    return TanhGaussian(location, log_std)


def categorical_policy(params: Params, obs: Array) -> Categorical:
    """π(·|s) for discrete actions."""
    return Categorical(mlp(params, obs[:-1]))


def log_likelihood(params: Params, spec: Spec, obs: Array, action: Array, clip: float = ACTION_EPS) -> Array:
    """log π(a|s) of rows; continuous actions at the bound are taken to be `clip` inside."""
    if spec.discrete:
        return jax.vmap(lambda row, taken: categorical_policy(params, row).log_prob(taken))(obs, action)
    return jax.vmap(lambda row, taken: gaussian_policy(params, row).log_prob(taken, clip))(obs, action)


def expected_value(
    value: Callable[[Array], Array], actor: Params, obs: Array, noise: Array | None
) -> tuple[Array, Array]:
    """E_{a~π(·|s)} value([s, a]) of one row, and the action part at which a penalty should look.

    With `noise`, by one reparameterised sample of a Gaussian policy, and that action; without, exactly over
    all discrete actions, and π(·|s). In the absorbing state the action is fixed: no gradient reaches π.
    """
    absorbing = obs[-1] > 0.5
    if noise is not None:
        action = gaussian_policy(actor, obs).sample(noise)
        action = jnp.where(absorbing, 0.0, action)
        return value(jnp.concatenate([obs, action])), action
    probs = categorical_policy(actor, obs).probs()
    # In the absorbing state all of them are the fixed action, and any weights give its value.
    actions = jnp.where(absorbing, 0.0, jnp.eye(probs.size))
    values = jax.vmap(lambda action: value(jnp.concatenate([obs, action])))(actions)
    expectation = jnp.where(absorbing, 1 / probs.size, probs) @ values
    return expectation, jnp.where(absorbing, 0.0, probs)


def policy_entropy(params: Params, spec: Spec, obs: Array, key: Array) -> Array:
    """Mean entropy of π(·|s) over rows of observations, the absorbing state left out."""
    if spec.discrete:
        entropy = jax.vmap(lambda row: categorical_policy(params, row).entropy())(obs)
    else:
        noise = jax.random.normal(key, (len(obs), spec.action_size))
        entropy = jax.vmap(lambda row, eps: gaussian_policy(params, row).entropy(eps))(obs, noise)
    alive = obs[:, -1] < 0.5
    return jnp.sum(jnp.where(alive, entropy, 0.0)) / jnp.sum(alive)
