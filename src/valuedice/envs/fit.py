"""Whether demonstrations or a policy fit a task: observations, actions and their bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from valuedice.demos.arrays import describe
from valuedice.demos.episodes import Demos
from valuedice.errors import InputError
from valuedice.policy import Policy
from valuedice.types import Spec

KINDS = {True: "discrete", False: "continuous"}
SLACK = 1e-5
"""An action may pass a bound by this share of the range: rounding does that."""


def check_fit(thing: Demos | Policy, spec: Spec, name: str) -> None:
    """Refuses demonstrations or a policy that were made for another task than `name`."""
    found = differences(thing, spec, name)
    if found and isinstance(thing, Demos):
        raise InputError(f"{thing.source} does not fit: {found[0]}; use demonstrations of this task, in its units")
    if found:
        raise InputError(f"the policy does not fit: {found[0]}; use it in the task that it was trained for")


def differences(thing: Demos | Policy, spec: Spec, name: str) -> list[str]:
    """Everything in which demonstrations or a policy differ from the task `name`, one line each."""
    ours = thing.spec if isinstance(thing, Policy) else thing
    found: list[str] = []
    if ours.obs_size != spec.obs_size:
        found.append(f"observations have {ours.obs_size} features, those of {name} {spec.obs_size}")
    if ours.discrete != spec.discrete:
        found.append(f"actions are {KINDS[ours.discrete]}, those of {name} {KINDS[spec.discrete]}")
    elif not spec.discrete and ours.action_size != spec.action_size:
        found.append(f"actions have {ours.action_size} dimensions, those of {name} {spec.action_size}")
    elif isinstance(thing, Demos):
        found += out_of_bounds(thing, spec, name)
    elif ours.action_size != spec.action_size:
        found.append(f"it chooses among {ours.action_size} actions, {name} has {spec.action_size}")
    return found


def out_of_bounds(demos: Demos, spec: Spec, name: str) -> list[str]:
    """The actions that the task does not allow, in one line; none if all are allowed."""
    if spec.discrete:
        low, high = np.array([spec.first_action]), np.array([spec.first_action + spec.action_size - 1])
    else:
        low, high = np.array(spec.low), np.array(spec.high)
    slack = 0 if spec.discrete else SLACK * (high - low)
    # One column if actions are discrete.
    actions = [episode.actions.reshape(len(episode), -1) for episode in demos.episodes]
    outside = [(part < low - slack) | (part > high + slack) for part in actions]
    count = sum(int(part.sum()) for part in outside)
    if count == 0:
        return []
    first = next(number for number, part in enumerate(outside) if part.any())
    row, column = (int(index) for index in np.argwhere(outside[first])[0])
    return [
        f"actions out of bounds: {count} {'entry' if count == 1 else 'entries'}, first "
        f"{describe(actions[first], (row, column))} of episode {first}, where {name} allows "
        f"{low[column]:g} to {high[column]:g}"
    ]


def demos_spec(data: Sequence[Demos]) -> Spec:
    """The shape of a task if only data is known: actions in [-1, 1] if they fit, else in their own range. If the
    data are of several tasks, this is the task of the first; `check_fit` then refuses the others."""
    demos = data[0]
    alike = [part for part in data if part.discrete == demos.discrete]
    if demos.discrete:
        return Spec(demos.obs_size, max(part.action_size for part in alike), discrete=True)
    alike = [part for part in alike if part.action_size == demos.action_size]
    actions = np.concatenate([episode.actions for part in alike for episode in part.episodes])
    low, high = actions.min(0), actions.max(0)
    wide = (low < -1) | (high > 1)
    low, high = np.where(wide, low, -1.0), np.where(wide, high, 1.0)
    high = np.where(high > low, high, low + 1.0)
    return Spec(demos.obs_size, demos.action_size, low=tuple(low.tolist()), high=tuple(high.tolist()))
