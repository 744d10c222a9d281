"""Terms that two or more algorithms share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from valuedice.networks import Params, critic
from valuedice.types import Metrics, Spec

NORM_EPS = 1e-12
"""Makes the norm of a zero gradient differentiable."""


def weighted_mean(x: Array, weight: Array | None) -> Array:
    """Mean of x; `weight` holds probabilities. Rows of zero weight are dropped, however large x is."""
    return jnp.mean(x) if weight is None else jnp.sum(jnp.where(weight > 0, weight * x, 0.0))


def gradient_penalty(critic: Callable[[Array], Array], rows: Array, *, one_sided: bool = False) -> Array:
    """E (‖∇critic(row)‖ - 1)² (Gulrajani et al., 2017). If one-sided, norms below 1 are not penalised."""
    gradients = jax.vmap(jax.grad(critic))(rows)
    norms = jnp.sqrt(jnp.sum(gradients**2, axis=1) + NORM_EPS)
    excess = jnp.maximum(norms - 1, 0.0) if one_sided else norms - 1
    return jnp.mean(excess**2)


def interpolate(rows: list[Array], key: Array) -> Array:
    """Random points between expert and replay rows; without replay rows, between pairs of expert rows."""
    expert, other = rows[0], rows[1] if len(rows) == 2 else jnp.roll(rows[0], 1, axis=0)
    mix = jax.random.uniform(key, (len(expert), 1))
    return mix * expert + (1 - mix) * other


def blind_to(critic: Callable[[Array], Array], column: int | None) -> Callable[[Array], Array]:
    """The same function without gradient along one column. For penalties this is the absorbing mark: apart from it,
    the absorbing row is all zeros, amid the normalised observations. A bounded slope along the mark would limit how
    much worse than these it can be, and dying would pay."""
    if column is None:
        return critic
    return lambda row: critic(row.at[column].set(jax.lax.stop_gradient(row[column])))


def absorbing_row(spec: Spec) -> Array:
    """[s, a] of the absorbing state: zeros except for the absorbing mark."""
    return jnp.zeros(spec.obs_size + 1 + spec.action_size).at[spec.obs_size].set(1.0)


def discriminator_loss(
    params: Params,
    expert: Array,
    other: Array,
    key: Array,
    penalty: float,
    free: int | None = None,
    *,
    one_sided: bool = False,
) -> tuple[Array, Metrics]:
    """Minus GAIL's objective (Equation 5) for h = sigmoid(logit) on rows [s, a], plus the gradient penalty, which
    ignores the column `free`. The optimal logit is the log density ratio of `expert` and `other`."""
    logit = jax.vmap(partial(critic, params))(jnp.concatenate([expert, other]))
    logit_expert, logit_other = jnp.split(logit, [len(expert)])
    cross_entropy = jnp.mean(jax.nn.softplus(-logit_expert)) + jnp.mean(jax.nn.softplus(logit_other))
    between = interpolate([expert, other], key)
    smooth = gradient_penalty(blind_to(partial(critic, params), free), between, one_sided=one_sided)
    metrics = {
        "discriminator_loss": cross_entropy,
        "discriminator_penalty": smooth,
        "logit_expert": jnp.mean(logit_expert),
        "logit_policy": jnp.mean(logit_other),
    }
    return cross_entropy + penalty * smooth, metrics


def orthogonal_penalty(params: Params) -> Array:
    """Σ ‖WᵀW ⊙ (1 - I)‖²_F over all kernels (Brock et al., 2018)."""

    def off_diagonal(kernel: Array) -> Array:
        gram = kernel.T @ kernel
        return jnp.sum((gram * (1 - jnp.eye(gram.shape[0]))) ** 2)

    return jnp.sum(jnp.stack([off_diagonal(layer.kernel) for layer in params]))
