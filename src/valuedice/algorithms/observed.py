"""What the policy has seen so far, for algorithms that normalise observations as they go."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from valuedice.types import Normalizer, Rollout

CLIP = 10.0
"""Normalised observations are clipped to ±CLIP."""
LEAST_STD = 1e-2
"""A feature that hardly moves is not scaled up further: any later movement would become enormous."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observed:
    """Count, mean and variance of all observations so far."""

    count: Array
    mean: Array
    variance: Array

    @classmethod
    def nothing(cls, size: int) -> Observed:
        """Before the first rollout: observations stay as they are, up to the clip."""
        return cls(jnp.zeros(()), jnp.zeros(size), jnp.ones(size))

    @property
    def std(self) -> Array:
        """The scale of each feature."""
        return jnp.maximum(jnp.sqrt(self.variance), LEAST_STD)

    def merged(self, obs: Array) -> Observed:
        """With the observations of one more rollout; their last feature is the absorbing mark."""
        rows = obs[..., :-1].reshape(-1, obs.shape[-1] - 1)
        mean, variance, count = jnp.mean(rows, 0), jnp.var(rows, 0), self.count + len(rows)
        new = len(rows) / count
        # The variance of a mixture: the mean of the variances, and the variance of the means.
        spread = new * (1 - new) * (mean - self.mean) ** 2
        return Observed(
            count, self.mean + new * (mean - self.mean), (1 - new) * self.variance + new * variance + spread
        )

    def normalized(self, rollout: Rollout) -> Rollout:
        """The rollout as the networks see it; the absorbing mark stays as it is."""

        def scaled(obs: Array) -> Array:
            return jnp.append(jnp.clip((obs[:-1] - self.mean) / self.std, -CLIP, CLIP), obs[-1])

        rows = jax.vmap(jax.vmap(scaled))
        return rollout._replace(obs=rows(rollout.obs), next_obs=rows(rollout.next_obs))

    def normalizer(self) -> Normalizer:
        """The same for a policy in numpy; copies, because the next update reuses the memory."""
        return Normalizer(np.array(self.mean), np.array(self.std), CLIP)
