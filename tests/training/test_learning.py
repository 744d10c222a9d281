"""Learning is tested by learning: short real runs that must reach a real return."""

import pytest

import valuedice as vd

# A small network and large steps reach in seconds what the paper's settings reach in minutes.
QUICK = {"hidden": (64, 64), "batch_size": 128, "actor_lr": 3e-4}
# CartPole ends at 500, which the expert reaches, and a random policy at about 22. Imitators that learn end at or
# near 500, others below 100.
EXPERT_LEVEL = 450


@pytest.fixture(scope="module")
def demos():
    return vd.load_demos("cartpole", episodes=3)


@pytest.mark.slow
def test_discrete_value_dice_reaches_the_expert_offline(demos):
    run = vd.train(
        vd.ValueDICE(**QUICK), demos, env=None, updates=4_000, eval_env="CartPole-v1", eval_every=4_000, quiet=True
    )
    assert run.metrics[-1]["return_mean"] >= EXPERT_LEVEL


@pytest.mark.slow
def test_discrete_value_dice_reaches_the_expert_online(demos):
    algorithm = vd.ValueDICE(**QUICK, random_steps=300, training_starts=200, updates_per_step=2)
    run = vd.train(algorithm, demos, "CartPole-v1", steps=1_500, eval_every=1_500, quiet=True)
    assert run.metrics[-1]["return_mean"] >= EXPERT_LEVEL


@pytest.mark.slow
def test_other_data_can_take_the_place_of_an_environment(demos):
    other = vd.collect_demos("random", "CartPole-v1", episodes=50, seed=1)
    run = vd.train(
        vd.ValueDICE(**QUICK),
        demos,
        env=None,
        updates=4_000,
        replay_data=other,
        eval_env="CartPole-v1",
        eval_every=4_000,
        quiet=True,
    )
    assert run.metrics[-1]["return_mean"] >= EXPERT_LEVEL


@pytest.mark.slow
def test_gail_reaches_the_expert(demos):
    ppo = vd.PPO(hidden=(64, 64), rollout=1_024, environments=8, minibatch=128, actor_lr=1e-3)
    algorithm = vd.GAIL(discriminator_hidden=(64, 64), discriminator_batch=256, ppo=ppo)
    run = vd.train(algorithm, demos, "CartPole-v1", steps=49_152, eval_every=49_152, quiet=True)
    assert run.metrics[-1]["return_mean"] >= EXPERT_LEVEL
