"""Whether demonstrations and policies fit a task, and which task data alone describes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tasks import box, linear_policy

from valuedice.demos.episodes import Demos, Episode
from valuedice.envs.fit import check_fit, demos_spec, differences
from valuedice.errors import InputError
from valuedice.types import Spec


def demos_of(actions: Any) -> Demos:
    """One episode with these actions."""
    actions = np.asarray(actions)
    path = np.arange(len(actions) + 1.0)[:, None]
    return Demos.from_episodes([Episode(path[:-1], actions, path[1:])], "some")


SPEC, POLICY = box(1, 1), linear_policy(box(1, 1))
TWO, THREE = Spec(1, 2, discrete=True), Spec(1, 3, discrete=True)
CONTINUOUS, DISCRETE = demos_of([[0.01], [0.02]]), demos_of([0, 2, 1])
PAIRS, WIDE = demos_of([[1.0, 0.5], [-1.0, 0.25], [0.0, 1.0]]), demos_of([[0.5, -3, 4], [-0.5, 1, 4]])


@pytest.mark.parametrize(
    ("thing", "spec", "says"),
    [
        (CONTINUOUS, box(17, 1), "observations have 1 features, those of Task-v0 17"),
        (CONTINUOUS, box(1, 3), "actions have 1 dimensions, those of Task-v0 3"),
        (CONTINUOUS, THREE, "actions are continuous, those of Task-v0 discrete"),
        (DISCRETE, SPEC, "actions are discrete, those of Task-v0 continuous"),
        (CONTINUOUS, box(1, 1, high=0.015), "1 entry, first 0.02 at row 1, column 0 of episode 0, where Task-v0"),
        (PAIRS, Spec(1, 2, low=(-0.5, -1), high=(1, 0.5)), "2 entries, first -1 at row 1, column 0 of episode 0"),
        (DISCRETE, TWO, "first 2 at row 1, column 0 of episode 0, where Task-v0 allows 0 to 1"),
        (DISCRETE, replace(THREE, first_action=1), "first 0 at row 0, column 0 of episode 0, where Task-v0"),
        (POLICY, box(17, 1), "observations have 1 features, those of Task-v0 17"),
        (linear_policy(TWO), THREE, "among 2 actions, Task-v0 has 3"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_shapes(thing, spec, says):
    with pytest.raises(InputError) as caught:
        check_fit(thing, spec, "Task-v0")
    assert says in str(caught.value)
    assert str(caught.value).startswith("some does not fit: " if isinstance(thing, Demos) else "the policy ")


def test_every_difference_is_listed():
    found = differences(DISCRETE, box(2, 1), "Task-v0")
    assert [line.split()[0] for line in found] == ["observations", "actions"]


@pytest.mark.parametrize(
    ("thing", "spec"),
    [
        (CONTINUOUS, box(1, 1, high=0.02)),  # 0.02 in float32 is below 0.02
        (CONTINUOUS, box(1, 1, low=0.01)),
        (DISCRETE, THREE),
        (POLICY, SPEC),
        (POLICY, box(1, 1, high=0.4)),  # a policy may act within other bounds
    ],
)
def test_what_fits_has_no_differences_also_exactly_at_the_bounds(thing, spec):
    assert differences(thing, spec, "Task-v0") == []


@pytest.mark.parametrize(
    ("data", "spec"),
    [
        ([PAIRS], box(1, 2)),
        # A wider range is taken as it is; a constant one gets some width.
        ([WIDE], Spec(1, 3, low=(-1, -3, 4), high=(1, 1, 5))),
        # Other data may go beyond the actions of the expert.
        ([demos_of([[-1.5], [1.5]]), demos_of([[-2.0], [1.0]])], box(1, 1, -2, 1.5)),
        ([DISCRETE], THREE),
        ([demos_of([0, 1]), DISCRETE], THREE),
        # Data of several tasks have the task of the first.
        ([CONTINUOUS, DISCRETE, PAIRS], SPEC),
    ],
)
def test_without_an_environment_actions_span_minus_one_to_one_or_the_range_of_the_data(data, spec):
    assert demos_spec(data) == spec
