"""Hand-written experts for small tasks, for `demos collect --policy valuedice.scripted:cartpole` and the like."""

from __future__ import annotations

import numpy as np


def inverted_pendulum(obs: np.ndarray) -> np.ndarray:
    """Of `InvertedPendulum-v5`: linear feedback on cart and pole."""
    return np.clip([obs @ np.array([0.4, 6.0, 0.6, 1.2])], -3, 3).astype(np.float32)


def cartpole(obs: np.ndarray) -> int:
    """Of `CartPole-v1`: push to where the pole falls and the cart goes."""
    return int(obs @ np.array([0.3, 0.5, 3.0, 1.0]) > 0)


def pendulum(obs: np.ndarray) -> np.ndarray:
    """Of `Pendulum-v1`: pump energy until the pole is near the top, then hold it there."""
    cosine, sine, speed = obs
    if cosine > 0.9:
        torque = -12.0 * sine - 3.0 * speed
    else:
        # Upright at rest the energy is 5, in the task's units (g = 10, m = l = 1): speed² / 6 + 5 cosine.
        torque = 2.0 * np.sign(speed if speed else 1.0) * np.sign(5.0 - (speed**2 / 6 + 5 * cosine))
    return np.clip([torque], -2, 2).astype(np.float32)


def mountain_car(obs: np.ndarray) -> np.ndarray:
    """Of `MountainCarContinuous-v0`: push the way the car moves. Its episodes end in the task, at the goal."""
    return np.array([1.0 if obs[1] >= 0 else -1.0], np.float32)
