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


def discrete(count: int, first: int = 0) -> Spec:
    return Spec(1, count, discrete=True, first_action=first)


SPEC, POLICY = box(1, 1), linear_policy(box(1, 1))
CONTINUOUS, DISCRETE, PAIRS = (
    demos_of([[0.01], [0.02]]),
    demos_of([0, 2, 1]),
    demos_of([[1.0, 0.5], [-1.0, 0.25], [0.0, 1.0]]),
)


@pytest.mark.parametrize(
    ("thing", "spec", "says"),
    [
        (CONTINUOUS, box(17, 1), "observations have 1 features, those of Task-v0 17"),
        (CONTINUOUS, box(1, 3), "actions have 1 dimensions, those of Task-v0 3"),
        (CONTINUOUS, discrete(3), "actions are continuous, those of Task-v0 discrete"),
        (DISCRETE, SPEC, "actions are discrete, those of Task-v0 continuous"),
        (CONTINUOUS, box(1, 1, high=0.015), "1 entry, first 0.02 at row 1, column 0 of episode 0, where Task-v0"),
        (PAIRS, Spec(1, 2, low=(-0.5, -1), high=(1, 0.5)), "2 entries, first -1 at row 1, column 0 of episode 0"),
        (DISCRETE, discrete(2), "first 2 at row 1, column 0 of episode 0, where Task-v0 allows 0 to 1"),
        (DISCRETE, discrete(3, first=1), "first 0 at row 0, column 0 of episode 0, where Task-v0 allows 1 to 3"),
        (POLICY, box(17, 1), "observations have 1 features, those of Task-v0 17"),
        (POLICY, box(1, 3), "actions have 1 dimensions, those of Task-v0 3"),
        (linear_policy(discrete(1)), SPEC, "actions are discrete, those of Task-v0 continuous"),
        (linear_policy(discrete(2)), discrete(3), "among 2 actions, Task-v0 has 3"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_shapes(thing, spec, says):
    with pytest.raises(InputError) as caught:
        check_fit(thing, spec, "Task-v0")
    assert says in str(caught.value)
    assert str(caught.value).startswith("some does not fit: " if isinstance(thing, Demos) else "the policy ")
    assert "\n" not in str(caught.value)


def test_every_difference_is_listed():
    assert differences(DISCRETE, replace(SPEC, obs_size=2), "Task-v0") == [
        "observations have 1 features, those of Task-v0 2",
        "actions are discrete, those of Task-v0 continuous",
    ]


@pytest.mark.parametrize(
    ("thing", "spec"),
    [
        (CONTINUOUS, SPEC),
        (CONTINUOUS, box(1, 1, high=0.02)),  # 0.02 in float32 is below 0.02
        (CONTINUOUS, box(1, 1, low=0.01)),
        (DISCRETE, discrete(3)),
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
        (
            [demos_of([[0.5, -3, 0.2, 4], [-0.5, 1, 0.2, 4]])],
            Spec(1, 4, low=(-1, -3, -1, 4), high=(1, 1, 1, 5)),
        ),
        # Other data may go beyond the actions of the expert.
        ([demos_of([[-1.5], [1.5]]), demos_of([[-2.0], [1.0]])], box(1, 1, -2, 1.5)),
        ([DISCRETE], discrete(3)),
        ([demos_of([0, 1]), DISCRETE], discrete(3)),
    ],
)
def test_without_an_environment_actions_span_minus_one_to_one_or_the_range_of_the_data(data, spec):
    assert demos_spec(data) == spec


def test_data_of_another_task_does_not_fit_the_task_of_the_first():
    spec = demos_spec([CONTINUOUS, DISCRETE])
    check_fit(CONTINUOUS, spec, "the data")
    with pytest.raises(InputError, match="actions are discrete, those of the data continuous"):
        check_fit(DISCRETE, spec, "the data")
