"""ValueDICE against DAC, and against the f-divergence form of the KL, on the Ring MDP.

ValueDICE and DAC differ most with a fixed replay that no learned policy resembles. Such a replay appears in both
terms of ValueDICE's objective and cancels, but in only one term of DAC's. docs/ring.md has the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from valuedice.ring.dac import POLICY_STEP, alternate, best_response, discriminator_reward
from valuedice.ring.figures import draw_comparison
from valuedice.ring.mdp import (
    SPARSE,
    STOCHASTIC,
    UNIFORM_POLICY,
    Rows,
    Study,
    Table,
    Weights,
    exact_weights,
    kl_divergence,
    mixture_kl,
    objective_terms,
    occupancy,
    optimise,
    policies,
    stochastic_expert,
)
from valuedice.system.files import write_json, write_whole, writing_to

REPLAY_POLICIES = {
    "either way alike": UNIFORM_POLICY,
    "clockwise": np.tile([0.9, 0.1], (8, 1)),
    "counter-clockwise": np.tile([0.1, 0.9], (8, 1)),
    "away from the expert": 1 - stochastic_expert(),
}
REPLAYS = {name: occupancy(policy, STOCHASTIC.initial) for name, policy in REPLAY_POLICIES.items()}
"""dRB of each fixed replay."""
ALPHAS = (0.0, 0.1, 0.5, 0.9, 0.99)
REPLAY_UPDATES = 20_000
TEMPERATURES = (0.0, 0.1, 1.0, 10.0)
HINDSIGHT = np.geomspace(1e-2, 1e3, 101)
"""Temperatures to choose from by the true KL, which DAC itself does not know."""
ROUNDS = 2_000
SEEDS = 10
LEVELS = (-300.0, -100.0, 100.0, 300.0)
"""Constants added to the initial ν; x changes by (1-γ) times as much."""
SAMPLED = {
    "stochastic, batch 4": (STOCHASTIC, 4),
    "stochastic, batch 64": (STOCHASTIC, 64),
    "sparse, batch 4": (SPARSE, 4),
}
"""Studies on minibatches, with the batch size."""

Form = Callable[[Array, Array], Array]
"""An objective as a function of J and its log-term."""


class Outcome(TypedDict):
    """A policy and its KL(dπ ‖ dE)."""

    kl: float
    policy: Rows


class TunedOutcome(Outcome):
    """The outcome at the best temperature."""

    temperature: float


class ReplayRow(TypedDict):
    """Results for one fixed replay, by α and by temperature."""

    policy: Rows
    kl: float
    value_dice: dict[str, Outcome]
    dac: dict[str, Outcome]
    dac_in_hindsight: TunedOutcome
    dac_objective: dict[str, float]


class Comparison(TypedDict):
    """The content of `comparison.json`."""

    replay: dict[str, ReplayRow]
    refreshed: dict[str, dict[str, list[float]]]
    """By kind of replay: the rounds, and the KL of policy and replay to the expert after each."""
    forms: dict[str, dict[str, dict[str, Rows]]]
    """By kind of training, then by study (or initial ν), then by form: see `compare_forms`."""
    settings: dict[str, float | dict[str, float] | list[int]]


def donsker_varadhan(objective: Array, log_term: Array) -> Array:
    """log E e^x - E x, the objective of ValueDICE. Its minimum is -KL."""
    return objective


def f_divergence(objective: Array, log_term: Array) -> Array:
    """E e^x - E x, the form that DualDICE uses. Its minimum is 1 - KL, and is attained only where E e^x = 1."""
    return objective - log_term + jnp.exp(log_term)


FORMS: dict[str, Form] = {"donsker_varadhan": donsker_varadhan, "f_divergence": f_divergence}


def outcome(policy: Table) -> Outcome:
    """The policy and its KL to the stochastic expert."""
    return {"kl": mixture_kl(policy, STOCHASTIC), "policy": policy.tolist()}


def imitate(alpha: float) -> list[Table]:
    """The policy that ValueDICE learns with each fixed replay."""
    study = replace(STOCHASTIC, alpha=alpha, updates=REPLAY_UPDATES)

    def logits(replay: Array) -> Array:
        weights = exact_weights(study)._replace(replay=replay)
        return optimise(
            lambda nu, logits, _: objective_terms(nu, logits, weights, study)[0], study.updates, records=1
        )

    tables = jnp.stack([jnp.asarray(replay.ravel()) for replay in REPLAYS.values()])
    return list(policies(jax.jit(jax.vmap(logits))(tables))[:, -1])


def compare_replays() -> dict[str, ReplayRow]:
    """Results of ValueDICE and DAC for each fixed replay."""
    learned = {alpha: dict(zip(REPLAYS, imitate(alpha), strict=True)) for alpha in ALPHAS}
    rows: dict[str, ReplayRow] = {}
    for name, visits in REPLAYS.items():
        reward = discriminator_reward(STOCHASTIC.expert, visits)
        hindsight: list[TunedOutcome] = [
            {"temperature": temperature, **outcome(best_response(reward, temperature))}
            for temperature in HINDSIGHT.tolist()
        ]
        rows[name] = {
            "policy": REPLAY_POLICIES[name].tolist(),
            "kl": kl_divergence(visits, STOCHASTIC.expert),
            "value_dice": {str(alpha): outcome(learned[alpha][name]) for alpha in ALPHAS},
            "dac": {str(t): outcome(best_response(reward, t)) for t in TEMPERATURES},
            "dac_in_hindsight": min(hindsight, key=lambda tuned: tuned["kl"]),
            # The first value is larger: DAC prefers its own policy to the expert.
            "dac_objective": {
                "its_policy": float(np.sum(occupancy(best_response(reward), STOCHASTIC.initial) * reward)),
                "expert": float(np.sum(STOCHASTIC.expert * reward)),
            },
        }
    return rows


def refresh_replay() -> dict[str, dict[str, list[float]]]:
    """DAC with a replay written by its own policies: KL of the policy and of the replay to the expert."""
    kinds = {
        "fresh": alternate(ROUNDS, growing=False, solved=False),
        "growing": alternate(ROUNDS, growing=True, solved=False),
        "growing, RL solved": alternate(ROUNDS, growing=True, solved=True),
    }
    # Rounds 1, 2, 3, 5, …: evenly spaced on a log axis.
    rounds = np.unique(np.geomspace(1, ROUNDS, 40).round().astype(int)).tolist()

    def kls(occupancies: list[Table]) -> list[float]:
        return [kl_divergence(occupancies[number - 1], STOCHASTIC.expert) for number in rounds]

    return {
        name: {"round": rounds, "policy_kl": kls(own), "replay_kl": kls(replays)}
        for name, (own, replays) in kinds.items()
    }


def learn_exactly(form: Form, study: Study, records: int, level: float = 0.0) -> Rows:
    """Points [updates, KL of the mixtures] during training on exact tables; ν starts at the constant `level`."""
    weights = exact_weights(study)

    def objective(nu: Array, logits: Array, _: Array) -> Array:
        return form(*objective_terms(nu + level, logits, weights, study))

    learned = policies(jax.jit(lambda: optimise(objective, study.updates, records))())
    return [[study.updates // records * i, mixture_kl(policy, study)] for i, policy in enumerate(learned)]


def draw_minibatch(key: Array, weights: Weights, size: int) -> Weights:
    """Frequencies in a minibatch of `size` rows of each kind."""

    def frequencies(key: Array, probabilities: Array) -> Array:
        rows = jax.random.choice(key, probabilities.size, (size,), p=probabilities)
        return jnp.zeros(probabilities.size).at[rows].add(1 / size)

    return Weights(*map(frequencies, jax.random.split(key, 3), weights))


def learn_from_minibatches(form: Form, study: Study, batch_size: int, records: int) -> Rows:
    """For each seed, the KL of the mixtures at the start and after each of `records` equal parts of training."""
    weights = exact_weights(study)

    def logits(seed: Array) -> Array:
        def objective(nu: Array, logits: Array, number: Array) -> Array:
            key = jax.random.fold_in(jax.random.key(seed), number)
            return form(*objective_terms(nu, logits, draw_minibatch(key, weights, batch_size), study))

        return optimise(objective, study.updates, records)

    paths = policies(jax.jit(jax.vmap(logits))(jnp.arange(SEEDS)))
    return [[mixture_kl(policy, study) for policy in path] for path in paths]


def compare_forms() -> dict[str, dict[str, dict[str, Rows]]]:
    """Both forms of the KL with equal step sizes: on exact tables, from other levels of ν, and on minibatches."""
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
            name: {form: learn_from_minibatches(FORMS[form], study, batch, records=20) for form in FORMS}
            for name, (study, batch) in SAMPLED.items()
        },
    }


def run_comparison(out: Path) -> Comparison:
    """Runs all comparisons and writes `comparison.json` and `comparison.png` to the folder `out`."""
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
    result: Comparison = {
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
    with writing_to(out):
        write_json(out / "comparison.json", result)
        write_whole(out / "comparison.png", draw_comparison(result, stochastic_expert()))
    return result
