"""Whether demonstrations and policies fit a task, and which task data alone describes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from valuedice.demos.episodes import Demos, Episode
from valuedice.envs.fit import check_fit, demos_spec, differences
from valuedice.errors import InputError
from valuedice.policy import Policy
from valuedice.types import Normalizer, Spec

SPEC = Spec(obs_size=1, action_size=1, low=(-1.0,), high=(1.0,))


def demos_of(actions: Any, source: str = "some") -> Demos:
    """One episode with these actions."""
    actions = np.asarray(actions)
    path = np.arange(len(actions) + 1.0)[:, None]
    return Demos.from_episodes([Episode(path[:-1], actions, path[1:])], source)


def policy_of(spec: Spec) -> Policy:
    outputs = spec.action_size * (1 if spec.discrete else 2)
    layer = np.zeros((spec.obs_size, outputs), np.float32), np.zeros(outputs, np.float32)
    return Policy((layer,), Normalizer.none(spec.obs_size), spec)


CONTINUOUS, DISCRETE = demos_of([[0.01], [0.02]]), demos_of([0, 2, 1])
WIDE = Spec(1, 3, low=(-1.0,) * 3, high=(1.0,) * 3)


@pytest.mark.parametrize(
    ("thing", "spec", "says"),
    [
        (CONTINUOUS, replace(SPEC, obs_size=17), "observations have 1 features, those of Task-v0 17"),
        (CONTINUOUS, WIDE, "actions have 1 dimensions, those of Task-v0 3"),
        (CONTINUOUS, Spec(1, 3, discrete=True), "actions are continuous, those of Task-v0 discrete"),
        (DISCRETE, SPEC, "actions are discrete, those of Task-v0 continuous"),
        (
            CONTINUOUS,
            replace(SPEC, high=(0.015,)),
            "actions out of bounds: 1 entry, first 0.02 at row 1, column 0 of episode 0, where Task-v0 allows "
            "-1 to 0.015",
        ),
        (
            demos_of([[1.0, 0.5], [-1.0, 0.25], [0.0, 1.0]]),
            Spec(1, 2, low=(-0.5, -1.0), high=(1.0, 0.5)),
            "actions out of bounds: 2 entries, first -1 at row 1, column 0 of episode 0, where Task-v0 allows "
            "-0.5 to 1",
        ),
        (
            DISCRETE,
            Spec(1, 2, discrete=True),
            "first 2 at row 1, column 0 of episode 0, where Task-v0 allows 0",
        ),
        (DISCRETE, Spec(1, 3, discrete=True, first_action=1), "first 0 at row 0, column 0 of episode 0"),
        (policy_of(SPEC), replace(SPEC, obs_size=17), "observations have 1 features, those of Task-v0 17"),
        (policy_of(SPEC), WIDE, "actions have 1 dimensions, those of Task-v0 3"),
        (policy_of(Spec(1, 1, discrete=True)), SPEC, "actions are discrete, those of Task-v0 continuous"),
        (policy_of(Spec(1, 2, discrete=True)), Spec(1, 3, discrete=True), "among 2 actions, Task-v0 has 3"),
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
    assert differences(CONTINUOUS, SPEC, "Task-v0") == differences(policy_of(SPEC), SPEC, "Task-v0") == []


def test_actions_exactly_at_the_bounds_fit():
    check_fit(CONTINUOUS, replace(SPEC, high=(0.02,)), "Task-v0")  # 0.02 in float32 is below 0.02
    check_fit(CONTINUOUS, replace(SPEC, low=(0.01,)), "Task-v0")
    check_fit(DISCRETE, Spec(1, 3, discrete=True), "Task-v0")


def test_a_policy_fits_a_task_with_other_bounds():
    check_fit(policy_of(SPEC), replace(SPEC, high=(0.4,)), "Task-v0")


def test_without_an_environment_actions_span_minus_one_to_one_or_the_range_of_the_data():
    spec = demos_spec([demos_of([[0.5, -3, 0.2, 4], [-0.5, 1, 0.2, 4]])])
    assert spec == Spec(1, 4, low=(-1, -3, -1, 4), high=(1, 1, 1, 5))


def test_without_an_environment_the_largest_action_counts_the_discrete_ones():
    assert demos_spec([DISCRETE]) == Spec(1, 3, discrete=True)


def test_without_an_environment_other_data_may_go_beyond_the_actions_of_the_expert():
    spec = demos_spec([demos_of([[-1.5], [1.5]]), demos_of([[-2.0], [1.0]])])
    assert (spec.low, spec.high) == ((-2,), (1.5,))
    assert demos_spec([demos_of([0, 1]), DISCRETE]).action_size == 3


def test_data_of_another_task_does_not_fit_the_task_of_the_first():
    spec = demos_spec([CONTINUOUS, DISCRETE])
    check_fit(CONTINUOUS, spec, "the data")
    with pytest.raises(InputError, match="actions are discrete, those of the data continuous"):
        check_fit(DISCRETE, spec, "the data")
