"""Multilayer perceptrons as plain pytrees, and the two kinds of policy on top of them.

Networks, policies and critics take one row. Callers map them over rows, so no reshape can mix two rows up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.types import LOG_STD_MAX, LOG_STD_MIN, Spec

ACTION_EPS = 1e-6
"""Likelihoods clip actions this far inside ±1. Expert actions of ±1 are common, and atanh(1) is infinite."""


class Dense(NamedTuple):
    """One layer. `bias` is None if the layer has no bias."""

    kernel: Array
    bias: Array | None


Params = list[Dense]
Tree = TypeVar("Tree")
"""Any pytree of parameters."""


def mlp_init(key: Array, sizes: Sequence[int], *, output_bias: bool = True) -> Params:
    """Layers with orthogonal kernels and zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    orthogonal = jax.nn.initializers.orthogonal()
    layers = zip(keys, pairwise(sizes), strict=True)
    params = [Dense(orthogonal(each, shape), jnp.zeros(shape[1])) for each, shape in layers]
    return params if output_bias else [*params[:-1], params[-1]._replace(bias=None)]


def mlp(params: Params, x: Array, *, standardize: bool = False) -> Array:
    """Dense layers with ReLU between them. `standardize` adds layer normalisation without learned parameters."""
    for index, layer in enumerate(params):
        x = x @ layer.kernel
        if layer.bias is not None:
            x = x + layer.bias
        if index < len(params) - 1:
            x = jax.nn.relu(standardized(x) if standardize else x)
    return x


def standardized(x: Array) -> Array:
    """Shifts and scales a vector to mean 0 and standard deviation 1."""
    x = x - jnp.mean(x)
    return x * jax.lax.rsqrt(jnp.mean(x**2) + 1e-6)


def adam_init(params: Any) -> optax.OptState:
    """The optimiser state before the first step."""
    return optax.scale_by_adam().init(params)


def adam_step(
    lr: float | Array, params: Tree, gradient: Tree, moments: optax.OptState
) -> tuple[Tree, optax.OptState]:
    """One Adam step down the gradient; with a negative `lr`, up."""
    step, moments = optax.scale_by_adam().update(cast(optax.Updates, gradient), moments)
    return jax.tree.map(lambda value, change: value - lr * change, params, step), moments


def critic_init(key: Array, spec: Spec, hidden: Sequence[int], *, output_bias: bool = True) -> Params:
    """Layers of a scalar function of [s, a]; s includes the absorbing mark."""
    return mlp_init(key, (spec.obs_size + 1 + spec.action_size, *hidden, 1), output_bias=output_bias)


def state_actions(obs: Array, action: Array) -> Array:
    """[s, a] of each row: the input of critics and discriminators."""
    return jnp.concatenate([obs, action], axis=-1)


def critic(params: Params, row: Array, *, standardize: bool = False) -> Array:
    """ν, or the logit of a discriminator, at one row [s, a]."""
    return mlp(params, row, standardize=standardize)[0]


def follow(target: Any, online: Any, rate: float) -> Any:
    """Moves target networks towards the online ones (exponential moving average)."""
    return jax.tree.map(lambda slow, fast: slow + rate * (fast - slow), target, online)


def map_rows(function: Callable[..., Any], *rows: Array | None, chunked: bool = False) -> Any:
    """Applies a function of one row to all rows; `chunked`, some thousands at a time, for whole data sets."""
    if chunked:
        return jax.lax.map(lambda row: function(*row), rows, batch_size=4096)
    return jax.vmap(function)(*rows)


class TanhGaussian(NamedTuple):
    """a = tanh(u), u ~ N(location, e^log_std)."""

    location: Array
    log_std: Array

    def mode(self) -> Array:
        """The mean action, used for evaluation."""
        return jnp.tanh(self.location)

    def sample(self, noise: Array) -> Array:
        """A reparameterised sample: a differentiable function of standard normal `noise`."""
        return jnp.tanh(self.location + jnp.exp(self.log_std) * noise)

    def log_prob(self, action: Array, clip: float = ACTION_EPS) -> Array:
        """log π(a|s), with actions clipped to [-1 + clip, 1 - clip]."""
        u = jnp.arctanh(jnp.clip(action, -1 + clip, 1 - clip))
        gaussian = jax.scipy.stats.norm.logpdf(u, self.location, jnp.exp(self.log_std))
        return jnp.sum(gaussian - log_tanh_slope(u))

    def entropy(self, noise: Array) -> Array:
        """A one-sample estimate from `noise`; the entropy has no closed form."""
        u = self.location + jnp.exp(self.log_std) * noise
        gaussian = 0.5 * jnp.log(2 * jnp.pi * jnp.e) + self.log_std
        return jnp.sum(gaussian + log_tanh_slope(u))


def log_tanh_slope(u: Array) -> Array:
    """log(1 - tanh²u), numerically stable."""
    return 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))


class Categorical(NamedTuple):
    """A distribution over one-hot actions."""

    logits: Array

    def probs(self) -> Array:
        """Probabilities of all actions."""
        return jax.nn.softmax(self.logits)

    def log_prob(self, action: Array) -> Array:
        """log π(a|s) of a one-hot action."""
        return jnp.sum(action * jax.nn.log_softmax(self.logits))

    def entropy(self) -> Array:
        """Exact entropy."""
        return -jnp.sum(self.probs() * jax.nn.log_softmax(self.logits))


def actor_init(key: Array, obs_size: int, action_size: int, hidden: Sequence[int], discrete: bool) -> Params:
    """The policy's layers. The absorbing mark is not an input: the policy never acts in the absorbing state."""
    return mlp_init(key, (obs_size, *hidden, action_size if discrete else 2 * action_size))


def gaussian_policy(params: Params, obs: Array) -> TanhGaussian:
    """π(·|s) for continuous actions in (-1, 1). A tanh bounds the log standard deviation."""
    location, raw = jnp.split(mlp(params, obs[:-1]), 2)
    log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (jnp.tanh(raw) + 1)
    return TanhGaussian(location, log_std)


def spread_of(params: Params, obs: Array) -> TanhGaussian:
    """π(·|s) with a gradient for its spread alone: the mean, and the features below both, stay as they are."""
    frozen = jax.lax.stop_gradient(params)
    return TanhGaussian(
        location=gaussian_policy(frozen, obs).location,
        log_std=gaussian_policy([*frozen[:-1], params[-1]], obs).log_std,
    )


def categorical_policy(params: Params, obs: Array) -> Categorical:
    """π(·|s) for discrete actions."""
    return Categorical(mlp(params, obs[:-1]))


def log_likelihood(params: Params, spec: Spec, obs: Array, action: Array, clip: float = ACTION_EPS) -> Array:
    """log π(a|s) of each row. Continuous actions are clipped to [-1 + clip, 1 - clip]."""
    if spec.discrete:
        return jax.vmap(lambda row, taken: categorical_policy(params, row).log_prob(taken))(obs, action)
    return jax.vmap(lambda row, taken: gaussian_policy(params, row).log_prob(taken, clip))(obs, action)


def squared_error(params: Params, obs: Array, action: Array) -> Array:
    """‖a - tanh(location)‖² of each row: how far the mean action is from the action taken."""
    return jax.vmap(lambda row, taken: jnp.sum((gaussian_policy(params, row).mode() - taken) ** 2))(obs, action)


def expected_value(
    value: Callable[[Array], Array], actor: Params, obs: Array, noise: Array | None, moves: Array | None = None
) -> tuple[Array, Array]:
    """E_{a~π(·|s)} value([s, a]) of one row, and the action for the gradient penalty. With `noise`, both use one
    reparameterised action. Without, the expectation over discrete actions is exact, and the penalty uses π(·|s) as
    the action. In the absorbing state the action is fixed: no gradient reaches π, nor where `moves` is False."""
    absorbing = obs[-1] > 0.5

    def free(action: Array) -> Array:
        return action if moves is None else jnp.where(moves, action, jax.lax.stop_gradient(action))

    if noise is not None:
        action = jnp.where(absorbing, 0.0, free(gaussian_policy(actor, obs).sample(noise)))
        return value(jnp.concatenate([obs, action])), action
    probs = free(categorical_policy(actor, obs).probs())
    # In the absorbing state all candidates are the fixed action, and any weights give its value.
    actions = jnp.where(absorbing, 0.0, jnp.eye(probs.size))
    values = jax.vmap(lambda action: value(jnp.concatenate([obs, action])))(actions)
    expectation = jnp.where(absorbing, 1 / probs.size, probs) @ values
    return expectation, jnp.where(absorbing, 0.0, probs)


def policy_entropy(params: Params, spec: Spec, obs: Array, key: Array) -> Array:
    """Mean entropy of π(·|s) over all rows except absorbing states."""
    if spec.discrete:
        entropy = jax.vmap(lambda row: categorical_policy(params, row).entropy())(obs)
    else:
        noise = jax.random.normal(key, (len(obs), spec.action_size))
        entropy = jax.vmap(lambda row, eps: gaussian_policy(params, row).entropy(eps))(obs, noise)
    alive = obs[:, -1] < 0.5
    return jnp.sum(jnp.where(alive, entropy, 0.0)) / jnp.sum(alive)
