"""Rollouts: which rows they hold, and in what order."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from valuedice.replay import Rollouts
from valuedice.types import Spec

SPEC = Spec(obs_size=1, action_size=1, low=(-1.0,), high=(1.0,))
NO = np.array([False, False])


def add(rollouts: Rollouts, *steps: int) -> None:
    """The observations are the step in the first environment, and minus the step in the second."""
    for step in steps:
        obs, after = np.array([[step], [-step]]), np.array([[step + 1], [-step - 1]])
        rollouts.add(obs, obs / 10, after, obs[:, 0] / 100, terminated=NO, truncated=NO)


def test_a_rollout_is_in_the_order_of_time_and_then_overwritten():
    rollouts = Rollouts(SPEC, 4, 2)
    add(rollouts, 0, 1, 2, 3)
    kept = rollouts.newest()
    add(rollouts, 4, 5, 6, 7)
    assert_array_equal(rollouts.newest().obs[:, 0, 0], [4, 5, 6, 7])
    # What was handed out stays as it was.
    assert_array_equal(kept.obs[:, :, 0], [[0, 0], [1, -1], [2, -2], [3, -3]])
    assert_array_equal(kept.action, kept.obs[..., :1] / 10)
    assert_allclose(kept.reward, kept.obs[..., 0] / 100)
    assert_array_equal(kept.next_obs[:, :, 0], [[1, -1], [2, -2], [3, -3], [4, -4]])


def test_rows_are_repeated_while_there_are_too_few():
    rollouts = Rollouts(SPEC, 5, 2)
    add(rollouts, 0, 1)
    assert_array_equal(rollouts.newest().obs[:, 0, 0], [0, 1, 0, 1, 0])


def test_restored_rollouts_continue_in_the_middle():
    first, second = Rollouts(SPEC, 3, 2), Rollouts(SPEC, 3, 2)
    add(first, 0, 1, 2, 3)
    second.restore(*first.save())
    add(first, 4, 5)
    add(second, 4, 5)
    assert_array_equal(second.newest().obs[:, 0, 0], [3, 4, 5])
    for one, other in zip(first.newest(), second.newest(), strict=True):
        assert_array_equal(one, other)
