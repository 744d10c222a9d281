"""An algorithm from outside the package, that of docs/extending.md, has everything that the shipped ones have."""

from __future__ import annotations

import re
from typing import Any

import pytest
from examples import blocks, run_example
from resuming import killed, same, train
from small import all_finite
from small import same as same_policy

import valuedice as vd
from valuedice.errors import InputError

EXAMPLE = blocks("extending.md")[0]
Cloning: Any = run_example(EXAMPLE, {"__name__": "outside"})["SmoothCloning"]
MINE = Cloning(hidden=(8,))


def test_it_needs_only_public_modules():
    modules = set(re.findall(r"^(?:from|import) (\S+)", EXAMPLE, re.MULTILINE))
    ours = {"valuedice", "valuedice.types", "valuedice.networks", "valuedice.algorithms.protocol"}
    assert modules <= ours | {"dataclasses", "typing", "jax", "jax.numpy"}


@pytest.mark.parametrize("env", ["Pendulum-v1", None])
@pytest.mark.parametrize("saves", [1, 5])
def test_killed_in_the_middle_and_resumed_it_ends_as_if_it_had_not_been(pendulum, env, saves, tmp_path):
    whole = train(pendulum, env, tmp_path / "whole", MINE)
    assert all_finite(whole)
    assert whole.metrics[-1]["error"] < whole.metrics[2]["error"]  # at step 12; online it learns from step 10
    with killed(saves):
        train(pendulum, env, tmp_path / "run", MINE)
    resumed = vd.load_run(tmp_path / "run", algorithm=MINE).resume(quiet=True)
    assert same(tmp_path / "run", tmp_path / "whole")
    assert same_policy(resumed.policy, whole.policy)


def test_a_loaded_run_needs_the_algorithm_for_its_state_and_to_continue(pendulum, tmp_path):
    whole = train(pendulum, None, tmp_path / "run", MINE)
    run = vd.load_run(tmp_path / "run")
    assert run.config.updates == whole.config.updates
    assert run.metrics == whole.metrics
    assert same_policy(run.policy, whole.policy)
    for use in (lambda: run.state, lambda: run.resume(updates=500), lambda: run.algorithm):
        with pytest.raises(InputError, match=r"algorithm of .* is not part of valuedice; give it to load_run"):
            use()
    for other, says in ((Cloning(), r"`hidden` was \[8\]"), (vd.BC(), "`algorithm` was SmoothCloning, now bc")):
        with pytest.raises(InputError, match=says):
            vd.load_run(tmp_path / "run", algorithm=other).resume(updates=500, quiet=True)


def test_a_metric_that_is_not_finite_names_its_remedies(pendulum):
    with pytest.raises(vd.DivergenceError, match=r"is (nan|inf).*What usually helps.*a smaller step \(`lr`\)"):
        train(pendulum, algorithm=Cloning(lr=1e38))
