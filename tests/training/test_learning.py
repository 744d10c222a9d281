"""Learning is tested by learning: short real runs that must reach a real return."""

from typing import Any

import pytest

import valuedice as vd

# A small network and large steps reach in seconds what the paper's settings reach in minutes.
QUICK: dict[str, Any] = {"hidden": (64, 64), "policy_hidden": (64, 64), "batch_size": 128, "actor_lr": 3e-4}
ONLINE = vd.ValueDICE(**QUICK, random_steps=300, training_starts=200, updates_per_step=2)
PPO = vd.PPO(hidden=(64, 64), rollout=1_024, environments=8, minibatch=128, actor_lr=1e-3)
GAIL = vd.GAIL(discriminator_hidden=(64, 64), discriminator_batch=256, ppo=PPO)
OFFLINE: dict[str, Any] = {"updates": 4_000, "eval_env": "CartPole-v1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        pytest.param(vd.ValueDICE(**QUICK), OFFLINE, id="offline"),
        pytest.param(vd.ValueDICE(**QUICK), OFFLINE | {"replay_data": "random"}, id="with other data"),
        pytest.param(ONLINE, {"env": "CartPole-v1", "steps": 1_500}, id="online"),
        pytest.param(GAIL, {"env": "CartPole-v1", "steps": 49_152}, id="gail"),
    ],
)
def test_cartpole_is_learned_from_three_episodes(algorithm, settings):
    if "replay_data" in settings:
        settings = settings | {"replay_data": vd.collect_demos("random", "CartPole-v1", episodes=50, seed=1)}
    demos = vd.load_demos("cartpole", episodes=3)
    run = vd.train(algorithm, demos, **settings, eval_every=50_000, quiet=True)
    # The expert reaches 500, where an episode ends. Imitators that learn end near 500, others below 100.
    assert run.metrics[-1]["return_mean"] >= 450


@pytest.mark.slow
def test_the_closest_policy_is_a_good_one_where_training_swings():
    # Without an anchor and with a large step, ValueDICE soon ruins its cloned start, and then swings.
    swinging: dict[str, Any] = QUICK | {"anchor": 0.0, "actor_lr": 3e-2}
    algorithm = vd.ValueDICE(**swinging, warm_start=2_000, training_starts=200)
    demos = vd.load_demos("cartpole", episodes=3)
    run = vd.train(algorithm, demos, env="CartPole-v1", steps=1_000, eval_every=250, quiet=True)
    assert min(row["return_mean"] for row in run.metrics) < 200
    assert run.final is not None
    assert run.final["return_mean"] >= 450
