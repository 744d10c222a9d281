"""What a policy has seen: rollout by rollout, it must be what all observations together give."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.algorithms.observed import CLIP, LEAST_STD, Observed
from valuedice.types import Rollout


def rollouts(*sizes: int) -> list[np.ndarray]:
    """Observations of two environments: a large feature, one that drifts, one that is constant, and the mark."""
    rng, found = np.random.default_rng(0), []
    for number, size in enumerate(sizes):
        drift = rng.normal(number, 0.5, (size, 2))
        parts = [rng.normal(1000.0, 200.0, (size, 2)), drift, np.full((size, 2), 7.0), np.zeros((size, 2))]
        found.append(np.stack(parts, axis=-1).astype(np.float32))
    return found


def seen(parts: list[np.ndarray]) -> Observed:
    observed = Observed.nothing(3)
    for part in parts:
        observed = observed.merged(jnp.asarray(part))
    return observed


def test_rollouts_one_by_one_give_the_mean_and_the_variance_of_all_of_them():
    parts = rollouts(5, 40, 3, 100)
    together = np.concatenate([part[..., :-1].reshape(-1, 3) for part in parts])
    observed = seen(parts)
    assert observed.count == len(together)
    assert_allclose(observed.mean, together.mean(0), rtol=1e-5)
    assert_allclose(observed.variance[:2], together.var(0)[:2], rtol=1e-4)
    assert_allclose(observed.variance[2], 0.0, atol=1e-6)


def test_before_the_first_rollout_observations_stay_as_they_are():
    obs = np.array([0.5, -2.0, 9.0], np.float32)
    assert_array_equal(Observed.nothing(3).normalizer()(obs), obs)


def test_the_policy_normalises_as_the_update_does():
    parts = rollouts(50, 50)
    observed = seen(parts)
    obs = jnp.asarray(parts[0]).at[0, 0, :-1].set(jnp.array([1e6, -1e6, 7.5])).at[1, 1, -1].set(1.0)
    rollout = Rollout(obs, obs[..., :1], obs, obs[..., 0], obs[..., 0] > 0)
    normal = observed.normalized(rollout)
    assert_allclose(normal.obs[..., :-1], observed.normalizer()(np.asarray(obs[..., :-1])), rtol=1e-4, atol=1e-5)
    assert_array_equal(normal.next_obs, normal.obs)
    assert_array_equal(normal.obs[..., -1], obs[..., -1])
    # Far values are clipped, and a feature that never moved is not blown up by more than the limit allows.
    assert_allclose(normal.obs[0, 0, :-1], [CLIP, -CLIP, min(CLIP, 0.5 / LEAST_STD)], rtol=1e-4)
