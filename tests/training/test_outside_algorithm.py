"""An algorithm from outside the package, that of docs/extending.md, has everything that the shipped ones have."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from examples import blocks, run
from resuming import OFFLINE, ONLINE, killed, same
from small import all_finite
from small import same as same_policy

import valuedice as vd
from valuedice.errors import InputError

EXAMPLE = blocks("extending.md")[0]
NAMES: dict[str, Any] = {"__name__": "outside"}
run(EXAMPLE, NAMES)
Mine = NAMES["SmoothCloning"]
WAYS: dict[str, Any] = {"online": {"env": "Pendulum-v1"} | ONLINE, "offline": {"env": None} | OFFLINE}


def train(demos: Any, way: str, **changes: Any) -> vd.Run:
    return vd.train(Mine(hidden=(8,)), demos, **(WAYS[way] | changes))


def test_it_needs_only_public_modules():
    modules = set(re.findall(r"^(?:from|import) (\S+)", EXAMPLE, re.MULTILINE))
    public = {"valuedice", "valuedice.types", "valuedice.networks", "valuedice.algorithms.protocol"}
    assert {name for name in modules if name.startswith("valuedice")} <= public


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("saves", [1, 5])
def test_killed_in_the_middle_and_resumed_it_ends_as_if_it_had_not_been(pendulum, way, saves, tmp_path):
    whole = train(pendulum, way, out=tmp_path / "whole")
    assert all_finite(whole)
    assert whole.metrics[-1]["error"] < whole.metrics[2]["error"]  # the first after which it learned online
    with killed(saves):
        train(pendulum, way, out=tmp_path / "run")
    resumed = vd.load_run(tmp_path / "run", algorithm=Mine(hidden=(8,))).resume(quiet=True)
    assert same(tmp_path / "run", tmp_path / "whole")
    assert same_policy(resumed.policy, whole.policy)


def test_without_the_algorithm_a_loaded_run_has_all_but_its_state(pendulum, tmp_path):
    whole = train(pendulum, "offline", out=tmp_path / "run")
    run = vd.load_run(tmp_path / "run")
    assert run.config.updates == whole.config.updates
    assert run.metrics == whole.metrics
    assert same_policy(run.policy, whole.policy)
    for use in (lambda: run.state, lambda: run.resume(updates=500), lambda: run.algorithm):
        with pytest.raises(InputError, match="the algorithm of .* is not part of valuedice; give it to load_run"):
            use()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["hyperparameters"]["hidden"] == [8]


def test_another_algorithm_or_other_settings_cannot_continue_it(pendulum, tmp_path):
    train(pendulum, "offline", out=tmp_path / "run")
    for other, says in ((Mine(), r"`hidden` was \[8\]"), (vd.BC(), "`algorithm` was SmoothCloning, now bc")):
        with pytest.raises(InputError, match=says):
            vd.load_run(tmp_path / "run", algorithm=other).resume(updates=500, quiet=True)


def test_a_metric_that_is_not_finite_names_its_remedies(pendulum):
    with pytest.raises(vd.DivergenceError, match=r"is (nan|inf).*What usually helps.*a smaller step \(`lr`\)"):
        vd.train(Mine(lr=1e38), pendulum, updates=400, quiet=True)
