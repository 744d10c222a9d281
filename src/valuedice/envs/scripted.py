"""Hand-written experts for small tasks: `demos collect --policy valuedice.envs.scripted:cartpole` and the like."""

from __future__ import annotations

import numpy as np


def inverted_pendulum(obs: np.ndarray) -> np.ndarray:
    """Solves `InvertedPendulum-v5`: linear feedback on cart and pole."""
    return np.clip([obs @ np.array([0.4, 6.0, 0.6, 1.2])], -3, 3).astype(np.float32)


def cartpole(obs: np.ndarray) -> int:
    """Solves `CartPole-v1`: pushes towards the side to which the pole falls and the cart moves."""
    return int(obs @ np.array([0.3, 0.5, 3.0, 1.0]) > 0)


def pendulum(obs: np.ndarray) -> np.ndarray:
    """Solves `Pendulum-v1`: pumps energy until the pole is near the top, then holds it there."""
    cosine, sine, speed = obs
    if cosine > 0.9:
        torque = -12.0 * sine - 3.0 * speed
    else:
        # Upright at rest the energy is 5, in the task's units (g = 10, m = l = 1): speed² / 6 + 5 cosine.
        torque = 2.0 * np.sign(speed if speed else 1.0) * np.sign(5.0 - (speed**2 / 6 + 5 * cosine))
    return np.clip([torque], -2, 2).astype(np.float32)


def mountain_car(obs: np.ndarray) -> np.ndarray:
    """Solves `MountainCarContinuous-v0`: pushes the way the car moves. Its episodes terminate at the goal."""
    return np.array([1.0 if obs[1] >= 0 else -1.0], np.float32)
