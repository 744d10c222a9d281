"""The rows of `metrics.csv`: returns beside those of the expert and of random actions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from resuming import train

import valuedice as vd
from valuedice.envs.episodes import Evaluator


class Indifferent(PendulumEnv):
    """No action has a reward."""

    def step(self, u):
        obs, _, terminated, truncated, info = super().step(u)
        return obs, 0.0, terminated, truncated, info


def test_a_normalised_return_is_one_at_the_expert_and_zero_at_random_actions(finished):
    with Evaluator("Pendulum-v1", 10) as evaluator:
        random, expert = evaluator.random().mean, vd.load_demos("pendulum").expert_return
    assert expert is not None
    assert {row["expert_return"] for row in finished.metrics} == {expert}
    for row in (*finished.metrics, finished.final):
        assert row["normalized_return"] == pytest.approx((row["return_mean"] - random) / (expert - random))


@pytest.mark.parametrize(
    ("rewards", "env", "expected"),
    [
        pytest.param(None, "Pendulum-v1", None, id="the demonstrations have no rewards"),
        pytest.param(np.zeros(200), Indifferent, 0.0, id="random actions do as well as the expert"),
    ],
)
def test_without_a_scale_the_normalised_return_is_empty(pendulum, rewards, env, expected):
    demos = vd.Demos.from_episodes([replace(pendulum.episodes[0], rewards=rewards)], "demos")
    run = train(demos, updates=2, eval_env=env, eval_episodes=1)
    assert [row["expert_return"] for row in run.metrics] == [expected] * 2
    assert run.final is not None
    for row in (*run.metrics, run.final):
        assert row["normalized_return"] is None
        assert (row["return_mean"] == 0) == (env is Indifferent)
