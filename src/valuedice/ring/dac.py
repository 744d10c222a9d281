"""DAC on the Ring MDP, solved exactly: its reward comes from the optimal discriminator, its RL from linear solves.

DAC replaces dπ by the replay in the discriminator's objective (Equation 5). The optimal reward is then log dE/dRB,
so DAC maximises E_dπ log dE/dRB instead of -KL(dπ ‖ dE) = E_dπ log dE/dπ.
"""

from __future__ import annotations

import numpy as np

from valuedice.ring.mdp import NEXT, STATES, STOCHASTIC, UNIFORM_POLICY, Table, occupancy

DISCOUNT = STOCHASTIC.discount
POLICY_STEP = 1e-2
"""Step size of the policy along the advantages, when RL takes one small step for each discriminator."""


def discriminator_reward(expert: Table, replay: Table) -> Table:
    """log h* - log(1 - h*) = log dE/dRB for the optimal discriminator h*; both tables need full support."""
    return np.log(expert / replay)


def action_values(reward: Table, policy: Table, temperature: float = 0.0) -> Table:
    """Qπ(s, a), with an entropy bonus for every later action."""
    # Some probabilities may be zero: 0 log 0 = 0.
    bonus = -temperature * np.log(policy, out=np.zeros((8, 2)), where=policy > 0)
    moves = np.zeros((8, 8))
    moves[STATES[:, None], NEXT] = policy
    value = np.linalg.solve(np.eye(8) - DISCOUNT * moves, np.sum(policy * (reward + bonus), axis=1))
    return reward + DISCOUNT * value[NEXT]


def best_response(reward: Table, temperature: float = 0.0) -> Table:
    """The π that maximises SAC's objective E_dπ[reward + temperature · entropy], by (soft) policy iteration."""
    policy = UNIFORM_POLICY
    for _ in range(1000):
        values = action_values(reward, policy, temperature)
        better = softmax(values / temperature) if temperature else np.eye(2)[values.argmax(axis=1)]
        if np.abs(better - policy).max() < 1e-12:
            return better
        policy = better
    raise ArithmeticError(f"policy iteration does not converge at temperature {temperature}")


def improve(reward: Table, policy: Table) -> Table:
    """One small natural policy gradient step."""
    return softmax(np.log(policy) + POLICY_STEP * action_values(reward, policy))


def softmax(preferences: Table) -> Table:
    """Softmax over the actions."""
    weights = np.exp(preferences - preferences.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def alternate(rounds: int, *, growing: bool, solved: bool) -> tuple[list[Table], list[Table]]:
    """DAC from the uniform policy, with a replay written by its own policies: dπ and dRB of each round.

    The replay holds the current round only, or all rounds if `growing`. RL takes one small step in each round, or
    finds the best policy if `solved`.
    """
    policy, replay = UNIFORM_POLICY, np.zeros((8, 2))
    own: list[Table] = []
    replays: list[Table] = []
    for number in range(rounds):
        visits = occupancy(policy, STOCHASTIC.initial)
        replay = replay + (visits - replay) / (number + 1) if growing else visits
        own.append(visits)
        replays.append(replay)
        reward = discriminator_reward(STOCHASTIC.expert, replay)
        policy = best_response(reward) if solved else improve(reward, policy)
    return own, replays
