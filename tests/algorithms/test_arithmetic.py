"""The arithmetic of each update, as the bench counts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from small import small

from valuedice.algorithms import ALGORITHMS, GAIL, PPO, REWARD_LEARNERS, SAC
from valuedice.bench.flops import gail_products, ppo_products, sac_products
from valuedice.bench.worker import PRODUCTS
from valuedice.types import Spec

SPEC = Spec(17, 6)


def flops(products: Any) -> int:
    return sum(product.flops for product in products)


def learning(net: Sequence[int]) -> int:
    """Multiply-adds of a row: forward, gradients of the weights, and of the inputs of all layers but the first."""
    return 2 * sum(net) + net[1] + net[2]


@pytest.mark.parametrize("name", ALGORITHMS | REWARD_LEARNERS)
def test_it_grows_with_the_batch(name):
    spec = Spec(3, 2, low=(-1.0,) * 2, high=(1.0,) * 2)
    once, doubled = small(name), small(name, batch_size=32, discriminator_batch=8, rollout=8)
    count, twice = (flops(PRODUCTS[name](each, spec)) for each in (once, doubled))
    assert 0 < count < twice <= 2 * count


def test_sac_is_as_counted_on_paper():
    q, actor = (24 * 256, 256 * 256, 256), (17 * 256, 256 * 256, 256 * 12)
    # Critics: targets forward; learning; the policy's actions forward, and back to the actions alone.
    critics = 2 * (sum(q) + learning(q) + sum(q) + q[1] + q[2] + 6 * 256)
    policy = sum(actor) + learning(actor)
    assert flops(sac_products(SAC(hidden=(256, 256), batch_size=256), SPEC)) == 2 * 256 * (critics + policy)


def test_ppo_and_gail_are_as_counted_on_paper():
    actor, value, logit = (17 * 64, 64 * 64, 64 * 12), (17 * 64, 64 * 64, 64), (24 * 64, 64 * 64, 64)
    # Before the epochs: two values and one probability of each row.
    before = 2 * sum(value) + sum(actor)
    ppo = PPO(hidden=(64, 64), rollout=1024, minibatch=128, epochs=3)
    own = 2 * 1024 * (before + 3 * (learning(actor) + learning(value)))
    assert flops(ppo_products(ppo, SPEC)) == own
    gail = GAIL(discriminator_hidden=(64, 64), discriminator_batch=128, discriminator_steps=5, ppo=ppo)
    penalty = 4 * (logit[0] + logit[1])
    discriminator = 5 * 128 * (2 * learning(logit) + penalty)
    assert flops(gail_products(gail, SPEC)) == own + 2 * (discriminator + 1024 * sum(logit))
