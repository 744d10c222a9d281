"""Multilayer perceptrons as plain pytrees, and the two kinds of policy on top of them.

Networks, policies and critics take one row. Callers map them over rows, so no reshape can mix two rows up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array

from valuedice.types import LOG_STD_MAX, LOG_STD_MIN, SQUASHED, Form, Spec

ACTION_EPS = 1e-6
"""In likelihoods, actions closer than this to ±1 count as at the bound. Expert actions of ±1 are common."""


class Dense(NamedTuple):
    """One layer. `bias` is None if the layer has no bias."""

    kernel: Array
    bias: Array | None


Params = list[Dense]
UNITS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh}
"""What a hidden unit does, by name."""
Tree = TypeVar("Tree")
"""Any pytree of parameters."""


def mlp_init(key: Array, sizes: Sequence[int], *, output_bias: bool = True) -> Params:
    """Layers with orthogonal kernels and zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    orthogonal = jax.nn.initializers.orthogonal()
    layers = zip(keys, pairwise(sizes), strict=True)
    params = [Dense(orthogonal(each, shape), jnp.zeros(shape[1])) for each, shape in layers]
    return params if output_bias else [*params[:-1], params[-1]._replace(bias=None)]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PolicyNet:
    """The layers of a policy network, and how it computes."""

    layers: Params
    form: Form = field(metadata={"static": True})

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(layer.kernel.shape[1] for layer in self.layers[:-1])


def mlp(params: Params, x: Array, *, units: str = "relu", standardize: bool = False) -> Array:
    """Dense layers with `units` between them. `standardize` adds layer normalisation without learned parameters."""
    for index, layer in enumerate(params):
        x = x @ layer.kernel
        if layer.bias is not None:
            x = x + layer.bias
        if index < len(params) - 1:
            x = UNITS[units](standardized(x) if standardize else x)
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


class ClippedGaussian(NamedTuple):
    """a = clip(u, -1, 1), u ~ N(location, e^log_std): what an environment makes of a Gaussian policy."""

    location: Array
    log_std: Array

    def mode(self) -> Array:
        """The action of the mean of u, used for evaluation."""
        return jnp.clip(self.location, -1, 1)

    def sample(self, noise: Array) -> Array:
        """A reparameterised sample; without a gradient where it is clipped."""
        return jnp.clip(self.location + jnp.exp(self.log_std) * noise, -1, 1)

    def log_prob(self, action: Array, clip: float = ACTION_EPS) -> Array:
        """log π(a|s): the density of u between the bounds, the probability of its tail at a bound."""
        std = jnp.exp(self.log_std)
        inside = jax.scipy.stats.norm.logpdf(action, self.location, std)
        above, below = (jax.scipy.special.log_ndtr((side * self.location - 1) / std) for side in (1, -1))
        return jnp.sum(jnp.where(action > 1 - clip, above, jnp.where(action < -1 + clip, below, inside)))

    def entropy(self, noise: Array) -> Array:
        """A one-sample estimate from `noise`, of E -log π(a|s)."""
        return -self.log_prob(self.sample(noise))


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


Gaussian = TanhGaussian | ClippedGaussian
"""A policy for continuous actions."""


def actor_init(key: Array, spec: Spec, hidden: Sequence[int], form: Form = SQUASHED) -> PolicyNet:
    """A policy network. The absorbing mark is not an input: the policy never acts in the absorbing state."""
    layers = mlp_init(key, (spec.obs_size, *hidden, spec.action_size * (1 if spec.discrete else 2)))
    # Discrete actions have no bounds.
    return PolicyNet(layers, form._replace(bounds=SQUASHED.bounds) if spec.discrete else form)


def gaussian_policy(actor: PolicyNet, obs: Array) -> Gaussian:
    """π(·|s) for continuous actions in [-1, 1]. A tanh bounds the log standard deviation."""
    location, raw = jnp.split(mlp(actor.layers, obs[:-1], units=actor.form.units), 2)
    log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (jnp.tanh(raw) + 1)
    return (TanhGaussian if actor.form.bounds == "tanh" else ClippedGaussian)(location, log_std)


def spread_of(actor: PolicyNet, obs: Array) -> Gaussian:
    """π(·|s) with a gradient for its spread alone: the mean, and the features below both, stay as they are."""
    frozen = jax.lax.stop_gradient(actor)
    moving = replace(frozen, layers=[*frozen.layers[:-1], actor.layers[-1]])
    return gaussian_policy(frozen, obs)._replace(log_std=gaussian_policy(moving, obs).log_std)


def categorical_policy(actor: PolicyNet, obs: Array) -> Categorical:
    """π(·|s) for discrete actions."""
    return Categorical(mlp(actor.layers, obs[:-1], units=actor.form.units))


def log_likelihood(actor: PolicyNet, spec: Spec, obs: Array, action: Array, clip: float = ACTION_EPS) -> Array:
    """log π(a|s) of each row. Continuous actions closer than `clip` to ±1 count as at the bound."""
    if spec.discrete:
        return jax.vmap(lambda row, taken: categorical_policy(actor, row).log_prob(taken))(obs, action)
    return jax.vmap(lambda row, taken: gaussian_policy(actor, row).log_prob(taken, clip))(obs, action)


def squared_error(actor: PolicyNet, obs: Array, action: Array) -> Array:
    """How far the mean action is from the action taken: ‖a - tanh(location)‖² of each row, or ‖a - location‖² if
    actions are clipped. A clipped location that has passed the bound, as the action has, makes no error."""

    def error(row: Array, taken: Array) -> Array:
        policy = gaussian_policy(actor, row)
        if isinstance(policy, TanhGaussian):
            return jnp.sum((policy.mode() - taken) ** 2)
        beyond = (jnp.abs(taken) > 1 - ACTION_EPS) & (taken * policy.location > 1)
        return jnp.sum(jnp.where(beyond, 0.0, policy.location - taken) ** 2)

    return jax.vmap(error)(obs, action)


def expected_value(
    value: Callable[[Array], Array], actor: PolicyNet, obs: Array, noise: Array | None, moves: Array | None = None
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


def policy_entropy(actor: PolicyNet, spec: Spec, obs: Array, key: Array) -> Array:
    """Mean entropy of π(·|s) over all rows except absorbing states."""
    if spec.discrete:
        entropy = jax.vmap(lambda row: categorical_policy(actor, row).entropy())(obs)
    else:
        noise = jax.random.normal(key, (len(obs), spec.action_size))
        entropy = jax.vmap(lambda row, eps: gaussian_policy(actor, row).entropy(eps))(obs, noise)
    alive = obs[:, -1] < 0.5
    return jnp.sum(jnp.where(alive, entropy, 0.0)) / jnp.sum(alive)
