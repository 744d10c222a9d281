"""Terms that two or more algorithms share."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from valuedice.networks import Params

# Keeps the norm of a zero gradient differentiable.
NORM_EPS = 1e-12


def gradient_penalty(critic: Callable[[Array], Array], rows: Array) -> Array:
    """E (‖∇critic(row)‖ - 1)², one norm a row (Gulrajani et al., 2017)."""
    gradients = jax.vmap(jax.grad(critic))(rows)
    norms = jnp.sqrt(jnp.sum(gradients**2, axis=1) + NORM_EPS)
    return jnp.mean((norms - 1) ** 2)


def orthogonal_penalty(params: Params) -> Array:
    """Σ ‖WᵀW ⊙ (1 - I)‖²_F over all kernels (Brock et al., 2018)."""

    def off_diagonal(kernel: Array) -> Array:
        gram = kernel.T @ kernel
        return jnp.sum((gram * (1 - jnp.eye(gram.shape[0]))) ** 2)

    return jnp.sum(jnp.stack([off_diagonal(layer.kernel) for layer in params]))
