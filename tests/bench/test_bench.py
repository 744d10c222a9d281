"""The benchmark: arithmetic counted by hand, and processes that really take turns."""

import jax
import pytest

from valuedice.algorithms import ValueDICE
from valuedice.bench.flops import value_dice_products
from valuedice.bench.rounds import measure
from valuedice.bench.worker import PRODUCTS, products, random_batch, setting
from valuedice.types import Spec

SMALL = {"obs_size": 3, "action_size": 1}


def test_the_arithmetic_of_an_update_is_that_of_a_count_on_paper():
    # Rows × the multiply-adds of the layers that they pass.
    nu = (24 * 256, 256 * 256, 256)
    actor = (17 * 256, 256 * 256, 256 * 12)
    objective = 1280 * (2 * sum(nu) + nu[1] + nu[2]) + 768 * 6 * 256
    policy = 768 * (2 * sum(actor) + actor[1] + actor[2])
    penalty = 512 * 4 * (nu[0] + nu[1])
    orthogonal = 2 * (17 * 256**2 + 256**3 + 256 * 12**2)
    counted = sum(product.flops for product in value_dice_products(ValueDICE.paper(), Spec(17, 6)))
    assert counted == 2 * (objective + policy + penalty + orthogonal)


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_algorithm_takes_the_batches_of_the_benchmark_and_has_its_arithmetic_counted(name):
    request = SMALL | {"name": name, "overrides": {}}
    settings, spec = setting(request)
    state = jax.eval_shape(lambda key: settings.init(key, spec), jax.random.key(0))
    after, _ = jax.eval_shape(settings.update, state, random_batch(settings, spec, (settings.data.batch_size,)))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert all(product.flops > 0 for product in products(request))


def test_the_update_and_its_limit_are_measured_in_a_process_of_their_own():
    request = SMALL | {"name": "value-dice", "overrides": {"hidden": [8], "batch_size": 4}}
    result = measure(request, cores=[1], rounds=1)["1"]
    assert result["ratio_to_limit"] == pytest.approx(result["update_ms"] / result["limit_ms"], rel=1e-2)
