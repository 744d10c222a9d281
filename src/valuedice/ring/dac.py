"""DAC on the Ring MDP, exact: the discriminator's optimum is its reward, and linear solves are its RL.

DAC replaces dπ in the discriminator's objective (Equation 5) by the replay. Its optimum is then log dE/dRB, and a
policy that is trained on this reward maximises E_dπ log dE/dRB where -KL(dπ ‖ dE) = E_dπ log dE/dπ was meant.
"""

from __future__ import annotations

import numpy as np

from valuedice.ring import NEXT, STATES, STOCHASTIC, occupancy

DISCOUNT = STOCHASTIC.discount
POLICY_STEP = 1e-2
"""Along the advantages, where RL is a small step between two discriminators."""


def discriminator_reward(expert: np.ndarray, replay: np.ndarray) -> np.ndarray:
    """log h* - log(1 - h*) = log dE/dRB, by the best discriminator h; both have full support."""
    return np.log(expert / replay)


def action_values(reward: np.ndarray, policy: np.ndarray, temperature: float = 0.0) -> np.ndarray:
    """Qπ(s, a), with an entropy bonus on every action that follows."""
    # A policy may rule actions out: 0 log 0 = 0.
    bonus = -temperature * np.log(policy, out=np.zeros((8, 2)), where=policy > 0)
    moves = np.zeros((8, 8))
    np.add.at(moves, (STATES[:, None], NEXT), policy)
    value = np.linalg.solve(np.eye(8) - DISCOUNT * moves, np.sum(policy * (reward + bonus), axis=1))
    return reward + DISCOUNT * value[NEXT]


def best_response(reward: np.ndarray, temperature: float = 0.0) -> np.ndarray:
    """π that maximises E_dπ[reward + temperature · entropy], SAC's objective, by (soft) policy iteration."""
    policy = np.full((8, 2), 0.5)
    for _ in range(1000):
        values = action_values(reward, policy, temperature)
        better = boltzmann(values / temperature) if temperature else np.eye(2)[values.argmax(axis=1)]
        if np.abs(better - policy).max() < 1e-12:
            return better
        policy = better
    raise ArithmeticError(f"policy iteration does not settle at temperature {temperature}")


def improve(reward: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """A small step of π towards actions of higher value: a natural policy gradient."""
    return boltzmann(np.log(policy) + POLICY_STEP * action_values(reward, policy))


def boltzmann(preferences: np.ndarray) -> np.ndarray:
    """Softmax over actions."""
    weights = np.exp(preferences - preferences.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def alternate(rounds: int, *, growing: bool, solved: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """DAC with a replay that follows π, from 0.5 everywhere: dπ and dRB of each round.

    The replay is dπ alone or, `growing`, everything so far; RL is one small step or, `solved`, run to its end.
    """
    policy, replay = np.full((8, 2), 0.5), np.zeros((8, 2))
    own, replays = [], []
    for number in range(rounds):
        visits = occupancy(policy, STOCHASTIC.initial)
        replay = replay + (visits - replay) / (number + 1) if growing else visits
        own.append(visits)
        replays.append(replay)
        reward = discriminator_reward(STOCHASTIC.expert, replay)
        policy = best_response(reward) if solved else improve(reward, policy)
    return own, replays
