"""The bench: arithmetic counted by hand, and processes that really take turns."""

from valuedice.algorithms import ValueDICE
from valuedice.bench import measure
from valuedice.bench.flops import value_dice_products
from valuedice.types import Spec


def test_the_arithmetic_of_an_update_is_that_of_a_count_on_paper():
    # Rows × the multiply-adds of the layers that they pass.
    nu = (24 * 256, 256 * 256, 256)
    actor = (17 * 256, 256 * 256, 256 * 12)
    objective = 1280 * (2 * sum(nu) + nu[1] + nu[2]) + 768 * 6 * 256
    policy = 768 * (2 * sum(actor) + actor[1] + actor[2])
    penalty = 512 * 4 * (nu[0] + nu[1])
    orthogonal = 2 * (17 * 256**2 + 256**3 + 256 * 12**2)
    counted = sum(product.flops for product in value_dice_products(ValueDICE(), Spec(17, 6)))
    assert counted == 2 * (objective + policy + penalty + orthogonal)


def test_every_contestant_is_measured_in_a_process_of_its_own():
    request = {"name": "value-dice", "obs_size": 3, "action_size": 1}
    result = measure(request | {"overrides": {"hidden": [8], "batch_size": 4}}, cores=[1], rounds=1)["1"]
    assert result["update_ms"] > 0
    assert result["limit_ms"] > 0
    assert (
        abs(result["ratio_to_limit"] - result["update_ms"] / result["limit_ms"]) < 1e-2 * result["ratio_to_limit"]
    )
