"""What the sparse Ring MDP's policy depends on: `python benchmarks/ring_sensitivity.py results/ring`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from valuedice.ring import (
    ONLY_STATE_0,
    SPARSE,
    SPARSE_ACTIONS,
    UNIFORM_REPLAY,
    Study,
    clone,
    kl_divergence,
    occupancy,
    train,
)

RIGHT = np.eye(2)[list(SPARSE_ACTIONS)]
"""The paper's policy, which from state 0 stays on the expert's states."""
STUDIES = {
    f"alpha {alpha}, discount {discount}": replace(SPARSE, alpha=alpha, discount=discount)
    for alpha, discount in [(0.1, 0.99), (0.02, 0.99), (0.5, 0.99), (0.1, 0.9), (0.5, 0.9)]
} | {
    "start in 0, discounted expert": replace(SPARSE, expert=occupancy(RIGHT, ONLY_STATE_0), initial=ONLY_STATE_0),
    "start in 0, uniform expert": replace(SPARSE, initial=ONLY_STATE_0),
}


def describe(policy: np.ndarray, study: Study) -> dict:
    """Probability of the paper's action in each state, the KL of the mixtures, and the time in states 1 and 2."""
    visits = occupancy(policy, study.initial, study.discount)
    mixtures = [(1 - study.alpha) * d + study.alpha * UNIFORM_REPLAY for d in (visits, study.expert)]
    return {
        "probability": [round(float(p), 4) for p in (policy * RIGHT).sum(axis=1)],
        "mixture_kl": round(kl_divergence(*mixtures), 5),
        "share_in_1_and_2": round(float(visits[1:3].sum()), 4),
    }


def main(out: Path) -> None:
    """Each study, and behavioural cloning in the first."""
    rows = {name: describe(train(study, records=1)[1][-1], study) for name, study in STUDIES.items()}
    rows["behavioural cloning"] = describe(clone(SPARSE.expert), SPARSE)
    for name, row in rows.items():
        print(name, row)
    (out / "sensitivity.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
