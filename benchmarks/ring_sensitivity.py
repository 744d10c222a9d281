"""What the policy for the sparse expert depends on: `python benchmarks/ring_sensitivity.py results/ring`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from valuedice.ring.mdp import (
    ONLY_STATE_0,
    SPARSE,
    SPARSE_ACTIONS,
    Study,
    Table,
    clone,
    mixture_kl,
    occupancy,
    train,
)
from valuedice.system.files import write_json

FIGURE = np.eye(2)[list(SPARSE_ACTIONS)]
"""The policy in the paper's figure. From state 0 it stays in the expert's states."""
STUDIES = {
    f"alpha {alpha}, discount {discount}": replace(SPARSE, alpha=alpha, discount=discount)
    for alpha, discount in [(0.1, 0.99), (0.02, 0.99), (0.5, 0.99), (0.1, 0.9), (0.5, 0.9)]
} | {
    "start in 0, discounted expert": replace(SPARSE, expert=occupancy(FIGURE, ONLY_STATE_0), initial=ONLY_STATE_0),
    "start in 0, uniform expert": replace(SPARSE, initial=ONLY_STATE_0),
}


def describe(policy: Table, study: Study) -> dict[str, float | list[float]]:
    """Probability of the figure's action in each state, KL of the mixtures, and share of time in states 1 and 2."""
    visits = occupancy(policy, study.initial, study.discount)
    return {
        "probability": np.sum(policy * FIGURE, axis=1).round(4).tolist(),
        "mixture_kl": round(mixture_kl(policy, study), 5),
        "share_in_1_and_2": round(float(visits[1:3].sum()), 4),
    }


if __name__ == "__main__":
    rows = {name: describe(train(study, records=1)[1][-1], study) for name, study in STUDIES.items()}
    rows["behavioural cloning"] = describe(clone(SPARSE.expert), SPARSE)
    write_json(Path(sys.argv[1]) / "sensitivity.json", rows)
