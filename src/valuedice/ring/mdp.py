"""The Ring MDP of Section 7.1, solved exactly: ν and π are tables, and probabilities replace samples.

Eight states form a ring. Action 0 moves clockwise (i → i+1 mod 8), action 1 counter-clockwise. The objective is
the one that the neural learner uses, and the results are checked against occupancies from a linear solve.
docs/ring.md explains which results the problem determines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from valuedice.algorithms.dice import bellman_residual, dice_objective, initial_term
from valuedice.ring.figures import draw_ring_study
from valuedice.system.files import write_json, write_whole, writing_to

Table = NDArray[np.floating[Any]]
"""Numbers for each pair (s, a) or each state."""
Rows = list[list[float]]
"""A table, or the points of a curve, as JSON stores them."""

# π moves ten times slower than ν, so ν stays near its minimum for the current π. Both step sizes decay to zero:
# Adam divides by the size of the gradients, so with constant step sizes it never stops oscillating.
NU_LR, POLICY_LR = 1e-2, 1e-3

STATES = np.arange(8)
SPARSE_ACTIONS = (0, 0, 1, 1, 1, 1, 0, 0)
"""The actions in the paper's figure for the sparse expert: the shortest way to states 1 and 2."""
NEXT = np.stack([(STATES + 1) % 8, (STATES - 1) % 8], axis=1)
"""The next state for each (s, a)."""
UNIFORM_STATES = np.full(8, 1 / 8)
ONLY_STATE_0 = np.eye(8)[0]
UNIFORM_POLICY = np.full((8, 2), 0.5)
UNIFORM_REPLAY = np.full((8, 2), 1 / 16)


@dataclass(frozen=True, eq=False)
class Study:
    """One imitation problem on the ring, with exact weights in place of batches."""

    expert: Table
    """dE(s, a)."""
    initial: Table
    """p0(s)."""
    alpha: float
    """Share of replay data."""
    updates: int
    discount: float = 0.99
    replay: Table = field(default_factory=lambda: UNIFORM_REPLAY)
    """dRB(s, a)."""


class Weights(NamedTuple):
    """Weights of the pairs (s, a) and of the initial states: probabilities, or frequencies in a minibatch."""

    expert: Array
    initial: Array
    replay: Array


Objective = Callable[[Array, Array, Array], Array]
"""J as a function of ν, the logits of π, and the number of the update."""
Carry = tuple[Array, Array, optax.OptState, optax.OptState]
"""ν, the logits of π, and the states of their optimisers."""


class RingResult(TypedDict):
    """The content of `ring.json`."""

    sparse: dict[str, Rows]
    stochastic: dict[str, Rows]
    settings: dict[str, float | dict[str, float]]


def occupancy(policy: Table, initial: Table, discount: float = 0.99) -> Table:
    """dπ(s, a), the solution of the flow equation d = (1-γ) p0 π + γ Pπᵀ d."""
    flow = np.zeros((8, 2, 8, 2))
    flow[STATES[:, None], [0, 1], NEXT] = policy[NEXT]
    start = (initial[:, None] * policy).ravel()
    return np.linalg.solve(np.eye(16) - discount * flow.reshape(16, 16).T, (1 - discount) * start).reshape(8, 2)


def kl_divergence(p: Table, q: Table) -> float:
    """KL(p ‖ q); infinite if q is zero somewhere that p is not."""
    support = p > 0
    with np.errstate(divide="ignore"):
        return float(np.sum(p[support] * np.log(p[support] / q[support])))


def mixture_kl(policy: Table, study: Study) -> float:
    """KL((1-α) dπ + α dRB ‖ (1-α) dE + α dRB); with α = 0 this is KL(dπ ‖ dE)."""
    visits = occupancy(policy, study.initial, study.discount)
    own, expert = ((1 - study.alpha) * d + study.alpha * study.replay for d in (visits, study.expert))
    return kl_divergence(own, expert)


def sparse_expert(steps: int = 10_000) -> Table:
    """Frequencies of (s, a) along the single trajectory 0, 1, 2, 1, 2, …"""
    visits = np.zeros((8, 2))
    visits[0, 0], visits[1, 0], visits[2, 1] = 1, steps // 2, (steps - 1) // 2
    return visits / steps


def stochastic_expert() -> Table:
    """πE in the paper's figure: it moves towards states 1 and 2 with probability 0.75."""
    return np.where(STATES[:, None] < 2, [0.75, 0.25], [0.25, 0.75])


def clone(expert: Table) -> Table:
    """Tabular behavioural cloning: maximum likelihood, and the uniform policy in states without data."""
    visits = expert.sum(axis=1, keepdims=True)
    return np.divide(expert, visits, out=UNIFORM_POLICY.copy(), where=visits > 0)


SPARSE = Study(sparse_expert(), UNIFORM_STATES, alpha=0.1, updates=40_000)
# This expert visits every pair, so Equation 12 needs no replay data.
STOCHASTIC = Study(occupancy(stochastic_expert(), ONLY_STATE_0), ONLY_STATE_0, alpha=0.0, updates=5_000)


def exact_weights(study: Study) -> Weights:
    """The probabilities themselves, so that nothing is sampled."""
    return Weights(*(jnp.asarray(table.ravel()) for table in (study.expert, study.initial, study.replay)))


def objective_terms(nu: Array, logits: Array, weights: Weights, study: Study) -> tuple[Array, Array]:
    """J(π, ν) and its log-term, with exact expectations over actions."""
    value = jnp.sum(jax.nn.softmax(logits) * nu, axis=1)
    x = bellman_residual(nu, value[NEXT], study.discount).ravel()
    return dice_objective(
        x,
        initial_term(value, study.discount, weights.initial),
        x,
        alpha=study.alpha,
        expert_weight=weights.expert,
        replay_weight=weights.replay,
    )


def exact_objective(nu: Array, logits: Array, study: Study) -> Array:
    """J(π, ν) with every expectation exact."""
    return objective_terms(nu, logits, exact_weights(study), study)[0]


def optimise(objective: Objective, updates: int, records: int) -> Array:
    """Takes simultaneous steps, ν down and π up, both from zero; the logits of π after each of `records` parts."""
    nu_adam = optax.adam(optax.cosine_decay_schedule(NU_LR, updates))
    policy_adam = optax.adam(optax.cosine_decay_schedule(POLICY_LR, updates))
    zeros = jnp.zeros((8, 2))

    def update(carry: Carry, number: Array) -> tuple[Carry, None]:
        nu, logits, nu_opt, policy_opt = carry
        descent, ascent = jax.grad(objective, argnums=(0, 1))(nu, logits, number)
        nu_step, nu_opt = nu_adam.update(descent, nu_opt)
        policy_step, policy_opt = policy_adam.update(-ascent, policy_opt)
        return (nu + jnp.asarray(nu_step), logits + jnp.asarray(policy_step), nu_opt, policy_opt), None

    def record(carry: Carry, numbers: Array) -> tuple[Carry, Array]:
        carry, _ = jax.lax.scan(update, carry, numbers)
        return carry, carry[1]

    start = (zeros, zeros, nu_adam.init(zeros), policy_adam.init(zeros))
    every = updates // records
    return jax.lax.scan(record, start, jnp.arange(every * records).reshape(records, every))[1]


def policies(logits: Array) -> Table:
    """The uniform policy, then the policies that `optimise` recorded; leading axes are kept."""
    # Double precision: the rows must sum to one closely enough for the KL between nearly equal occupancies.
    recorded = np.asarray(logits, np.float64)
    weights = np.exp(np.concatenate([np.zeros_like(recorded[..., :1, :, :]), recorded], axis=-3))
    return weights / weights.sum(axis=-1, keepdims=True)


def train(study: Study, records: int) -> tuple[NDArray[np.int_], Table]:
    """ValueDICE from the uniform policy: `records` + 1 numbers of updates, and the policy after each."""

    def logits() -> Array:
        return optimise(lambda nu, logits, _: exact_objective(nu, logits, study), study.updates, records)

    return study.updates // records * np.arange(records + 1), policies(jax.jit(logits)())


def run_ring(out: Path) -> RingResult:
    """Repeats both halves of the paper's Figure 1 and writes `ring.json` and `ring.png` to the folder `out`."""
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
    _, sparse = train(SPARSE, records=1)
    updates, learned = train(STOCHASTIC, records=50)
    kl = [mixture_kl(policy, STOCHASTIC) for policy in learned]
    result: RingResult = {
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
    with writing_to(out):
        write_json(out / "ring.json", result)
        write_whole(out / "ring.png", draw_ring_study(result, visited=SPARSE.expert.sum(axis=1) > 0))
    return result
