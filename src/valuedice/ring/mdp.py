"""The Ring MDP of Section 7.1, exact: tables for ν and π, probabilities in place of samples.

Eight states in a ring and two actions: 0 steps clockwise, i → i+1 mod 8, and 1 counter-clockwise. Nothing is
drawn at random. The objective is the neural learner's own, and what it leads to is checked against
occupancies from a linear solve. docs/ring.md says what is determined here and what is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from valuedice.algorithms.value_dice import bellman_residual, dice_objective
from valuedice.errors import InputError
from valuedice.ring_figure import draw

# π moves ten times slower than ν, so that ν stays near its minimum for the π of the moment. Both step sizes
# decay to zero: Adam divides by the size of the gradients, so at constant ones it converges and then swings.
NU_LR, POLICY_LR = 1e-2, 1e-3

STATES = np.arange(8)
SPARSE_ACTIONS = (0, 0, 1, 1, 1, 1, 0, 0)
"""What the paper's figure shows for the sparse expert: the shortest way to states 1 and 2."""
NEXT = np.stack([(STATES + 1) % 8, (STATES - 1) % 8], axis=1)
"""s′ of (s, a)."""
UNIFORM_STATES = np.full(8, 1 / 8)
ONLY_STATE_0 = np.eye(8)[0]
UNIFORM_REPLAY = np.full((8, 2), 1 / 16)


@dataclass(frozen=True, eq=False)
class Study:
    """Exact weights where the neural learner has batches, and how long to train on them."""

    expert: np.ndarray
    """dE(s, a)."""
    initial: np.ndarray
    """p0(s)."""
    alpha: float
    """The share of replay data."""
    updates: int
    discount: float = 0.99
    replay: np.ndarray = field(default_factory=lambda: UNIFORM_REPLAY)
    """dRB(s, a)."""


class Weights(NamedTuple):
    """Of the pairs (s, a) and of the starts: their probabilities, or what a minibatch holds of them."""

    expert: Array
    initial: Array
    replay: Array


Game = Callable[[Array, Array, Array], Array]
"""J of ν and of the logits of π, at the update of that number."""


def occupancy(policy: np.ndarray, initial: np.ndarray, discount: float = 0.99) -> np.ndarray:
    """dπ(s, a), which solves the flow equation d = (1-γ) p0 π + γ Pπᵀ d."""
    flow = np.zeros((8, 2, 8, 2))
    for state in STATES:
        for action, successor in enumerate(NEXT[state]):
            flow[state, action, successor] = policy[successor]
    flow = flow.reshape(16, 16)
    start = (initial[:, None] * policy).ravel()
    return np.linalg.solve(np.eye(16) - discount * flow.T, (1 - discount) * start).reshape(8, 2)


def kl_divergence(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p ‖ q); infinite where p is not covered by q."""
    covered = p > 0
    with np.errstate(divide="ignore"):
        return float(np.sum(p[covered] * np.log(p[covered] / q[covered])))


def sparse_expert(steps: int = 10_000) -> np.ndarray:
    """Relative visits of (s, a) along one trajectory 0, 1, 2, 1, 2, …"""
    visits = np.zeros((8, 2))
    visits[0, 0], visits[1, 0], visits[2, 1] = 1, steps // 2, (steps - 1) // 2
    return visits / steps


def stochastic_expert() -> np.ndarray:
    """πE of the paper's figure: towards the edge between states 1 and 2 with probability 0.75."""
    return np.where(STATES[:, None] < 2, [0.75, 0.25], [0.25, 0.75])


def clone(expert: np.ndarray) -> np.ndarray:
    """Tabular behavioural cloning: maximum likelihood, and what it started from where there are no data."""
    visits = expert.sum(axis=1, keepdims=True)
    return np.divide(expert, visits, out=np.full((8, 2), 0.5), where=visits > 0)


SPARSE = Study(sparse_expert(), UNIFORM_STATES, alpha=0.1, updates=40_000)
# This expert visits everything, so its own occupancy is all the data that Equation 12 needs.
STOCHASTIC = Study(occupancy(stochastic_expert(), ONLY_STATE_0), ONLY_STATE_0, alpha=0.0, updates=5_000)


def exact_weights(study: Study) -> Weights:
    """Probabilities, so that nothing is sampled."""
    return Weights(*(jnp.asarray(table.ravel()) for table in (study.expert, study.initial, study.replay)))


def terms(nu: Array, logits: Array, weights: Weights, study: Study) -> tuple[Array, Array]:
    """J(π, ν) and its log-term alone, with the expectations over actions exact."""
    value = jnp.sum(jax.nn.softmax(logits) * nu, axis=1)
    x = bellman_residual(nu, value[NEXT], study.discount).ravel()
    return dice_objective(
        x,
        value,
        x,
        discount=study.discount,
        alpha=study.alpha,
        expert_weight=weights.expert,
        initial_weight=weights.initial,
        replay_weight=weights.replay,
    )


def objective(nu: Array, logits: Array, study: Study) -> Array:
    """J(π, ν) with every expectation exact."""
    return terms(nu, logits, exact_weights(study), study)[0]


def play(game: Game, updates: int, records: int) -> Array:
    """Logits of π, from zero by simultaneous steps, after each of `records` equal parts of the updates."""
    nu_adam = optax.adam(optax.cosine_decay_schedule(NU_LR, updates))
    policy_adam = optax.adam(optax.cosine_decay_schedule(POLICY_LR, updates))
    zeros = jnp.zeros((8, 2))

    def update(carry, number):
        nu, logits, nu_opt, policy_opt = carry
        descent, ascent = jax.grad(game, argnums=(0, 1))(nu, logits, number)
        nu_step, nu_opt = nu_adam.update(descent, nu_opt)
        policy_step, policy_opt = policy_adam.update(-ascent, policy_opt)
        return (nu + nu_step, logits + policy_step, nu_opt, policy_opt), None

    def record(carry, numbers):
        carry, _ = jax.lax.scan(update, carry, numbers)
        return carry, carry[1]

    start = (zeros, zeros, nu_adam.init(zeros), policy_adam.init(zeros))
    every = updates // records
    return jax.lax.scan(record, start, jnp.arange(every * records).reshape(records, every))[1]


def policies(logits: Array) -> np.ndarray:
    """The start, 0.5 everywhere, and what `play` recorded; also of several games at once."""
    # In double precision, so that rows sum to one well enough for the KL of nearly equal occupancies.
    recorded = np.asarray(logits, np.float64)
    weights = np.exp(np.concatenate([np.zeros_like(recorded[..., :1, :, :]), recorded], axis=-3))
    return weights / weights.sum(axis=-1, keepdims=True)


def train(study: Study, records: int) -> tuple[np.ndarray, np.ndarray]:
    """Trains π from 0.5 everywhere by simultaneous steps; numbers of updates, and π after each of them."""
    logits = jax.jit(lambda: play(lambda nu, logits, _: objective(nu, logits, study), study.updates, records))()
    return study.updates // records * np.arange(records + 1), policies(logits)


def run_ring(out: Path) -> dict:
    """Both halves of the paper's Figure 1, as `ring.json` and `ring.png` in the folder `out`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {out} ({error.strerror}); choose another --out") from error
    _, sparse = train(SPARSE, records=1)
    updates, learned = train(STOCHASTIC, records=50)
    kl = [kl_divergence(occupancy(policy, STOCHASTIC.initial), STOCHASTIC.expert) for policy in learned]
    result = {
        "sparse": {"policy": sparse[-1].tolist(), "bc_policy": clone(SPARSE.expert).tolist()},
        "stochastic": {
            "kl": [list(point) for point in zip(updates.tolist(), kl, strict=True)],
            "policy": learned[-1].tolist(),
            "expert": stochastic_expert().tolist(),
        },
        "settings": {
            "discount": SPARSE.discount,
            "nu_lr": NU_LR,
            "policy_lr": POLICY_LR,
            "alpha": {"sparse": SPARSE.alpha, "stochastic": STOCHASTIC.alpha},
            "updates": {"sparse": SPARSE.updates, "stochastic": STOCHASTIC.updates},
        },
    }
    try:
        (out / "ring.json").write_text(json.dumps(result, indent=2) + "\n")
        draw(result, SPARSE.expert, out / "ring.png")
    except OSError as error:
        raise InputError(f"cannot write to {out} ({error.strerror}); choose another --out") from error
    return result
