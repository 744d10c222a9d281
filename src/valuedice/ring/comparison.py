"""What else could be done on the Ring MDP, and where it leads: DAC's reward, and the f-divergence form of the KL.

A replay that stays as it is, far from every policy that is learned, is where ValueDICE and DAC differ most: it is
in both terms of ValueDICE's objective and cancels, and in one of DAC's. docs/ring.md has what came out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from valuedice.errors import InputError
from valuedice.ring import (
    SPARSE,
    STOCHASTIC,
    Study,
    Weights,
    exact_weights,
    kl_divergence,
    occupancy,
    play,
    policies,
    stochastic_expert,
    terms,
)
from valuedice.ring_comparison_figure import draw
from valuedice.ring_dac import POLICY_STEP, alternate, best_response, discriminator_reward

REPLAY_POLICIES = {
    "either way alike": np.full((8, 2), 0.5),
    "clockwise": np.tile([0.9, 0.1], (8, 1)),
    "counter-clockwise": np.tile([0.1, 0.9], (8, 1)),
    "away from the expert": 1 - stochastic_expert(),
}
REPLAYS = {name: occupancy(policy, STOCHASTIC.initial) for name, policy in REPLAY_POLICIES.items()}
"""dRB that stays as it is, whatever π does."""
ALPHAS = (0.0, 0.1, 0.5, 0.9, 0.99)
REPLAY_UPDATES = 20_000
TEMPERATURES = (0.0, 0.1, 1.0, 10.0)
HINDSIGHT = np.geomspace(1e-2, 1e3, 101)
"""Temperatures among which the one of least KL is picked, which only someone who has the KL can do."""
ROUNDS = 2_000
SEEDS = 10
LEVELS = (-300.0, -100.0, 100.0, 300.0)
"""Constants added to ν at the start; x moves by (1-γ) of them."""

Form = Callable[[tuple[Array, Array]], Array]
"""An objective, of J and its log-term."""


@dataclass(frozen=True)
class Sampled:
    """A study on minibatches."""

    study: Study
    batch_size: int


SAMPLED = {
    "stochastic, batch 4": Sampled(STOCHASTIC, 4),
    "stochastic, batch 64": Sampled(STOCHASTIC, 64),
    "sparse, batch 4": Sampled(SPARSE, 4),
}


def donsker_varadhan(terms: tuple[Array, Array]) -> Array:
    """log E e^x - E x: ValueDICE's own objective. Least value -KL."""
    return terms[0]


def f_divergence(terms: tuple[Array, Array]) -> Array:
    """E e^x - E x: the form that DualDICE takes. Least value 1 - KL, and only at the x with E e^x = 1."""
    objective, log_term = terms
    return objective - log_term + jnp.exp(log_term)


FORMS: dict[str, Form] = {"donsker_varadhan": donsker_varadhan, "f_divergence": f_divergence}


def divergence(policy: np.ndarray, study: Study) -> float:
    """KL of the two mixtures with the replay, for α = 0 that of dπ and dE."""
    visits = occupancy(policy, study.initial, study.discount)
    own, expert = ((1 - study.alpha) * d + study.alpha * study.replay for d in (visits, study.expert))
    return kl_divergence(own, expert)


def true_kl(policy: np.ndarray) -> float:
    """KL(dπ ‖ dE) to the stochastic expert."""
    return divergence(policy, STOCHASTIC)


def imitate(alpha: float) -> list[np.ndarray]:
    """ValueDICE's policy for each of the replays."""
    study = replace(STOCHASTIC, alpha=alpha, updates=REPLAY_UPDATES)

    def logits(replay: Array) -> Array:
        weights = exact_weights(study)._replace(replay=replay)
        return play(lambda nu, logits, _: terms(nu, logits, weights, study)[0], study.updates, records=1)

    tables = jnp.stack([jnp.asarray(replay.ravel()) for replay in REPLAYS.values()])
    return list(policies(jax.jit(jax.vmap(logits))(tables))[:, -1])


def compare_replays() -> dict:
    """Of each replay that stays as it is, what ValueDICE and DAC make of it."""
    learned = {alpha: dict(zip(REPLAYS, imitate(alpha), strict=True)) for alpha in ALPHAS}
    rows = {}
    for name, dataset in REPLAYS.items():
        reward = discriminator_reward(STOCHASTIC.expert, dataset)
        hindsight = {temperature: best_response(reward, temperature) for temperature in HINDSIGHT.tolist()}
        best = min(hindsight, key=lambda temperature: true_kl(hindsight[temperature]))
        rows[name] = {
            "policy": REPLAY_POLICIES[name].tolist(),
            "kl": kl_divergence(dataset, STOCHASTIC.expert),
            "value_dice": {str(alpha): described(learned[alpha][name]) for alpha in ALPHAS},
            "dac": {str(t): described(best_response(reward, t)) for t in TEMPERATURES},
            "dac_in_hindsight": {"temperature": best, **described(hindsight[best])},
            # That the first is larger says that DAC does not want the expert.
            "dac_objective": {
                "its_policy": float(np.sum(occupancy(best_response(reward), STOCHASTIC.initial) * reward)),
                "expert": float(np.sum(STOCHASTIC.expert * reward)),
            },
        }
    return rows


def described(policy: np.ndarray) -> dict:
    """A policy and its distance from the expert."""
    return {"kl": true_kl(policy), "policy": policy.tolist()}


def refresh_replay() -> dict:
    """DAC when π writes the replay: KL of policy and replay to the expert, by rounds."""
    kinds = {
        "fresh": alternate(ROUNDS, growing=False, solved=False),
        "growing": alternate(ROUNDS, growing=True, solved=False),
        "growing, RL solved": alternate(ROUNDS, growing=True, solved=True),
    }
    # Rounds 1, 2, 3, 5, …: evenly on a log axis.
    rounds = np.unique(np.geomspace(1, ROUNDS, 40).round().astype(int))
    curves = {}
    for name, sides in kinds.items():
        kls = [[kl_divergence(side[number - 1], STOCHASTIC.expert) for number in rounds] for side in sides]
        curves[name] = {"round": rounds.tolist(), "policy_kl": kls[0], "replay_kl": kls[1]}
    return curves


def learn_exactly(form: Form, study: Study, records: int, level: float = 0.0) -> list[list[float]]:
    """Numbers of updates and the divergence after them; ν starts at the constant `level`."""
    weights = exact_weights(study)

    def logits() -> Array:
        return play(lambda nu, logits, _: form(terms(nu + level, logits, weights, study)), study.updates, records)

    numbers = study.updates // records * np.arange(records + 1)
    return [[int(n), divergence(p, study)] for n, p in zip(numbers, policies(jax.jit(logits)()), strict=True)]


def draw_minibatch(key: Array, weights: Weights, size: int) -> Weights:
    """Shares of what `size` rows of each kind are, drawn by their probabilities."""

    def shares(key: Array, probabilities: Array) -> Array:
        rows = jax.random.choice(key, probabilities.size, (size,), p=probabilities)
        return jnp.zeros(probabilities.size).at[rows].add(1 / size)

    return Weights(*map(shares, jax.random.split(key, 3), weights))


def learn_from_minibatches(form: Form, sampled: Sampled, records: int) -> list[list[float]]:
    """Of each seed, the divergence at the start and after each of `records` equal parts."""
    study = sampled.study
    weights = exact_weights(study)

    def logits(seed: Array) -> Array:
        def game(nu: Array, logits: Array, number: Array) -> Array:
            key = jax.random.fold_in(jax.random.key(seed), number)
            return form(terms(nu, logits, draw_minibatch(key, weights, sampled.batch_size), study))

        return play(game, study.updates, records)

    paths = policies(jax.jit(jax.vmap(logits))(jnp.arange(SEEDS)))
    return [[divergence(policy, study) for policy in path] for path in paths]


def compare_forms() -> dict:
    """Both forms of the KL, at the same step sizes: exactly, from other levels of ν, and on minibatches."""
    return {
        "exact": {
            name: {form: learn_exactly(FORMS[form], study, records=50) for form in FORMS}
            for name, study in (("stochastic", STOCHASTIC), ("sparse", SPARSE))
        },
        "level": {
            str(level): {form: learn_exactly(FORMS[form], STOCHASTIC, 50, level) for form in FORMS}
            for level in LEVELS
        },
        "sampled": {
            name: {form: learn_from_minibatches(FORMS[form], sampled, records=20) for form in FORMS}
            for name, sampled in SAMPLED.items()
        },
    }


def run_comparison(out: Path) -> dict:
    """Everything above, as `comparison.json` and `comparison.png` in the folder `out`, which exists."""
    result = {
        "replay": compare_replays(),
        "refreshed": refresh_replay(),
        "forms": compare_forms(),
        "settings": {
            "discount": STOCHASTIC.discount,
            "replay_updates": REPLAY_UPDATES,
            "dac_policy_step": POLICY_STEP,
            "hindsight": {"least": HINDSIGHT[0], "most": HINDSIGHT[-1], "temperatures": len(HINDSIGHT)},
            "seeds": list(range(SEEDS)),
        },
    }
    try:
        (out / "comparison.json").write_text(json.dumps(result, indent=1) + "\n")
        draw(result, stochastic_expert(), out / "comparison.png")
    except OSError as error:
        raise InputError(f"cannot write to {out} ({error.strerror}); choose another --out") from error
    return result
