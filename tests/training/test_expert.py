"""Experts: a run of an algorithm that learns from rewards stops at its target, and is resumed like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.wrappers import TimeLimit
from numpy.testing import assert_allclose
from resuming import killed, same
from small import small

import valuedice as vd
from valuedice.envs.episodes import Evaluator, is_robust
from valuedice.errors import InputError
from valuedice.training.evaluation import Evaluation

NEVER, ALWAYS = 1e9, -1e9


def train(out: Path, name: str = "sac", **changes: Any) -> vd.Run:
    settings: dict[str, Any] = {"target_return": NEVER, "max_steps": 24, "eval_every": 4, "eval_episodes": 2}
    algorithm = small(name, updates_per_step=1, update_every=2)
    return vd.train_expert(algorithm, "Pendulum-v1", out=out, quiet=True, **(settings | changes))


@pytest.fixture(scope="module")
def expert(tmp_path_factory) -> vd.Run:
    return train(tmp_path_factory.mktemp("expert") / "run")


@pytest.fixture(scope="module")
def on_policy(tmp_path_factory) -> vd.Run:
    return train(tmp_path_factory.mktemp("expert") / "run", "ppo")


@pytest.mark.parametrize(("name", "saves"), [("sac", 5), ("sac", 18), ("ppo", 3), ("ppo", 4), ("ppo", 9)])
def test_an_expert_killed_at_any_step_ends_as_if_it_had_not_been(name, saves, expert, on_policy, tmp_path):
    with killed(saves):
        train(tmp_path / "run", name)
    train(tmp_path / "run", name, resume=True)
    assert same(tmp_path / "run", {"sac": expert, "ppo": on_policy}[name].out)


def test_an_expert_on_policy_normalises_by_what_it_has_seen():
    seen: list[np.ndarray] = []

    class Watched(PendulumEnv):
        def reset(self, **options: Any) -> Any:
            obs, about = super().reset(**options)
            return self.noted(obs), about

        def step(self, u: Any) -> Any:
            obs, *rest = super().step(u)
            return self.noted(obs), *rest

        def noted(self, obs: np.ndarray) -> np.ndarray:
            # Far from 0, where nothing may be clipped before it is normalised.
            seen.append(5_000 + 10 * obs)
            return seen[-1]

    def make() -> Any:
        return TimeLimit(Watched(), 200)

    # One environment, which is not evaluated before the end: the first sixteen observations are those acted on.
    algorithm = small("ppo", environments=1, rollout=8, minibatch=4)
    run = vd.train_expert(
        algorithm, make, target_return=NEVER, max_steps=16, eval_every=16, eval_episodes=1, quiet=True
    )
    acted = np.array(seen[:16])
    normalizer = run.policy.normalizer
    assert_allclose(normalizer.mean, acted.mean(0), rtol=1e-4, atol=1e-5)
    assert_allclose(normalizer.std, np.maximum(acted.std(0), 0.01), rtol=1e-3)


@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_its_robustness_is_measured_on_the_episodes_of_its_headline(name, expert, on_policy):
    run = {"sac": expert, "ppo": on_policy}[name]
    assert run.final is not None
    seed: Any = [0, 0, 1]
    with Evaluator("Pendulum-v1", 2) as evaluator:
        expected = {
            "return_mean": evaluator.policy(run.policy, seed).mean,
            "sampled_return": evaluator.policy(run.policy, seed, deterministic=False).mean,
            "noisy_return": evaluator.policy(run.policy, seed, noise=0.1).mean,
        }
    assert {name: run.final[name] for name in expected} == expected
    assert len(set(expected.values())) == 3


@pytest.mark.slow
def test_ppo_learns_to_hold_a_pole_on_continuous_and_discrete_actions():
    algorithm = vd.PPO(rollout=1_024, environments=8, minibatch=128)
    for env, target in (("InvertedPendulum-v5", 900), ("CartPole-v1", 450)):
        run = vd.train_expert(
            algorithm, env, target_return=target, max_steps=200_000, eval_every=10_000, eval_episodes=5, quiet=True
        )
        # Random actions hold it for some twenty steps, in both tasks.
        assert run.metrics[-1]["return_mean"] >= target


def test_it_stops_at_its_target_and_a_higher_one_continues_it(expert, tmp_path):
    run = train(tmp_path / "run", target_return=ALWAYS)
    assert [row["step"] for row in run.metrics] == [4]
    assert (tmp_path / "run" / "summary.json").exists()
    # Nothing is left to do for the old target.
    assert len(run.resume().metrics) == 1
    run.resume(target_return=NEVER)
    assert same(tmp_path / "run", expert.out)


def test_a_robust_expert_stops_only_if_noise_costs_at_most_a_tenth(tmp_path, monkeypatch):
    noise = iter([-1e6, -1e6, 0.0])
    monkeypatch.setattr(Evaluation, "noisy_return", lambda *_: next(noise, 0.0))
    run = train(tmp_path / "run", target_return=ALWAYS, robust=True)
    assert [row["step"] for row in run.metrics] == [4, 8, 12]
    assert [row["noisy_return"] for row in run.metrics] == [-1e6, -1e6, 0.0]
    # Without asking, it stops at once; asked now, it goes on.
    other = train(tmp_path / "other", target_return=ALWAYS)
    assert [row["step"] for row in other.metrics] == [4]
    assert [row["step"] for row in other.resume(robust=True).metrics] == [4, 8]


@pytest.mark.parametrize(
    ("mean", "noisy", "robust"),
    [(100, 90, True), (100, 89, False), (100, 120, True), (-100, -110, True), (-100, -111, False)],
)
def test_a_tenth_of_the_return_may_be_lost_whatever_its_sign(mean, noisy, robust):
    assert is_robust(mean, noisy) is robust


def test_ppo_cannot_begin_with_a_policy_whose_normaliser_it_would_change(expert):
    with pytest.raises(InputError, match="ppo cannot begin with a given policy"):
        train(expert.out / "none", "ppo", init_policy=expert.out)


def test_robustness_is_asked_for_with_a_target():
    with pytest.raises(InputError, match="`robust` needs a `target_return` to stop at"):
        vd.train(small("ppo"), None, "Pendulum-v1", steps=12, robust=True)


def test_it_knows_no_demonstrations(expert):
    last = expert.metrics[-1]
    assert [last[name] for name in ("expert_return", "normalized_return", "kl_estimate")] == [None] * 3
    assert last["return_mean"] < 0
    assert last["updates"] == len(range(6, 25, 2))
    # Observations are not normalised.
    obs = np.array([1.0, -1.0, 8.0], np.float32)
    np.testing.assert_array_equal(expert.policy.normalizer(obs), obs)


def test_an_algorithm_that_does_not_learn_from_rewards_is_refused():
    with pytest.raises(InputError, match="bc does not learn from rewards; use an algorithm such as PPO"):
        vd.train_expert(small("bc"), "Pendulum-v1", target_return=0)
