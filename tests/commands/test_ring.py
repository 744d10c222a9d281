"""`valuedice ring`: what it prints of numbers that are checked elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from valuedice.ring.mdp import SPARSE_ACTIONS

SOLVED = {
    "sparse": {"policy": [[0.25 + 0.5 * (action == 0), 0.25 + 0.5 * action] for action in SPARSE_ACTIONS]},
    "stochastic": {"kl": [[0, 1.5], [4000, 0.00123]]},
}
KL = [{"kl": value} for value in (0.5, 0.25, 0.125, 0.0004)]
COMPARED: dict[str, Any] = {
    "replay": {
        "uniform": {
            "kl": 2.0,
            "dac": {"0.1": KL[0], "1": KL[1]},
            "dac_in_hindsight": KL[2],
            "value_dice": {"0.1": KL[3]},
        }
    },
    "forms": {
        "exact": {"sparse": {"log": [[0, 3.0], [9, 0.015]], "f": [[0, 3.0], [9, 0.25]]}},
        "level": {"-300.0": {"log": [[9, 0.5]], "f": [[9, 40.0]]}},
        "sampled": {"sparse, batch 4": {"log": [[2.0, 0.3], [2.0, 0.1], [2.0, 0.2]], "f": [[0.5], [0.7], [0.6]]}},
    },
}
PRINTED = """\
sparse expert: least probability of the paper's action over all 8 states: 0.750
stochastic expert: KL 0.0012 after 4000 updates
figure: out/ring.png, numbers: out/ring.json
replay, fixed  of itself  DAC τ=0.1  DAC τ=1  DAC best τ  ValueDICE α=0.1
uniform        2          0.5        0.25     0.12        0.0004

KL at the end              log E e^x - E x  E e^x - E x
sparse, exact              0.015            0.25
stochastic, ν from -300.0  0.5              40
sparse, batch 4            0.2 (0.1-0.3)    0.6 (0.5-0.7)
figure: out/comparison.png, numbers: out/comparison.json
"""


def test_the_results_are_printed_as_sentences_and_tables(run, monkeypatch):
    monkeypatch.setattr("valuedice.ring.mdp.run_ring", lambda _: SOLVED)
    monkeypatch.setattr("valuedice.ring.comparison.run_comparison", lambda _: COMPARED)
    result = run("ring", "--out", "out")
    assert (result.code, result.out, result.err) == (0, PRINTED, "")


@pytest.mark.usefixtures("own_folder")
def test_a_folder_that_cannot_be_made_is_refused(refused, tmp_path):
    (tmp_path / "taken").write_text("")
    assert "cannot write to taken (File exists); choose another --out" in refused("ring", "--out", "taken")
