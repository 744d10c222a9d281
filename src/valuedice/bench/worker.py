"""A process of the benchmark: for each line that it reads, it times every contestant once."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from valuedice.algorithms import ALGORITHMS, REWARD_LEARNERS, ValueDICE
from valuedice.bench.flops import (
    Product,
    bc_products,
    dac_products,
    dual_dice_products,
    gail_products,
    ppo_products,
    sac_products,
    value_dice_products,
)
from valuedice.training.learner import run_updates
from valuedice.types import Batch, InitialStates, Rollout, Spec, Transition

KINDS: dict[str, Any] = ALGORITHMS | REWARD_LEARNERS
PRODUCTS: dict[str, Callable[[Any, Spec], list[Product]]] = {
    "value-dice": value_dice_products,
    "bc": bc_products,
    "dac": dac_products,
    "dual-dice": dual_dice_products,
    "gail": gail_products,
    "ppo": ppo_products,
    "sac": sac_products,
}
"""The matrix products of one update, by algorithm."""
UPDATES = 4
CALLS = 5


def random_batch(settings: Any, spec: Spec, shape: tuple[int, ...]) -> Batch:
    """Random rows of the right shape, without absorbing states."""
    rng = np.random.default_rng(0)

    def observations(shape: tuple[int, ...] = shape) -> np.ndarray:
        obs = rng.standard_normal((*shape, spec.obs_size + 1), np.float32)
        obs[..., -1] = 0
        return obs

    def actions(shape: tuple[int, ...] = shape) -> np.ndarray:
        return rng.uniform(-1, 1, (*shape, spec.action_size)).astype(np.float32)

    def rows() -> Transition:
        return Transition(observations(), actions(), observations(), rng.standard_normal(shape, np.float32))

    rollout = None
    if settings.pace is not None and settings.pace.rollout is not None:
        whole = (*shape[:-1], *settings.pace.rollout)
        rewards, ends = rng.standard_normal(whole, np.float32), np.zeros(whole, bool)
        rollout = Rollout(observations(whole), actions(whole), observations(whole), rewards, ends)
    initial = InitialStates(observations())
    return Batch.of(spec, shape[:-1], expert=rows(), initial=initial, replay=rows(), rollout=rollout)


def jax_contestant(settings: Any, spec: Spec) -> Callable[[], None]:
    """The compiled call that training makes."""
    state = settings.init(jax.random.key(0), spec)
    batches = random_batch(settings, spec, (UPDATES, settings.data.batch_size))

    def call() -> None:
        nonlocal state
        state, metrics = run_updates(settings, state, batches, 0, UPDATES)
        jax.block_until_ready((state, metrics))

    return call


def sgemm_contestant(products: list[Product]) -> Callable[[], None]:
    """Only the matrix products of an update, in numpy."""
    rng = np.random.default_rng(0)
    work = [
        (
            rng.standard_normal((p.rows, p.inner), np.float32),
            rng.standard_normal((p.inner, p.columns), np.float32),
            np.empty((p.rows, p.columns), np.float32),
        )
        for p in products
    ]

    def call() -> None:
        for _ in range(UPDATES):
            for left, right, out in work:
                np.matmul(left, right, out=out)

    return call


def torch_contestant(settings: Any, spec: Spec) -> Callable[[], None]:
    """The same update in PyTorch."""
    import torch  # pyright: ignore[reportMissingImports]

    from valuedice.bench.torch_value_dice import TorchValueDICE

    learner = TorchValueDICE(settings, spec.obs_size, spec.action_size)
    batch = jax.tree.map(torch.from_numpy, random_batch(settings, spec, (settings.data.batch_size,)))

    def call() -> None:
        for _ in range(UPDATES):
            learner.update(batch.expert, batch.initial.obs, batch.replay)

    return call


def setting(request: dict[str, Any]) -> tuple[Any, Spec]:
    """The algorithm and the task of a request."""
    overrides: dict[str, Any] = dict(request["overrides"])
    if "hidden" in overrides:
        overrides["hidden"] = tuple(overrides["hidden"])
    # The paper's update, which PyTorch's repeats.
    base = ValueDICE.paper() if request["name"] == "value-dice" else KINDS[request["name"]]()
    return replace(base, **overrides), Spec(request["obs_size"], request["action_size"])


def products(request: dict[str, Any]) -> list[Product]:
    """The arithmetic of one update."""
    return PRODUCTS[request["name"]](*setting(request))


def contestants(request: dict[str, Any]) -> dict[str, Callable[[], None]]:
    """The functions to time for a request, by name."""
    turns = {"update": jax_contestant(*setting(request)), "limit": sgemm_contestant(products(request))}
    if importlib.util.find_spec("torch") is not None and request["name"] == "value-dice":
        turns["torch"] = torch_contestant(*setting(request))
    return turns


def main() -> None:
    """Reads lines of JSON (what to measure); answers each with a line of JSON (milliseconds per update)."""
    known: dict[str, dict[str, Callable[[], None]]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if line not in known:
            known[line] = contestants(request)
            for call in known[line].values():
                call()
        times: dict[str, list[float]] = {name: [] for name in known[line]}
        for _ in range(CALLS):
            for name, call in known[line].items():
                begin = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - begin) / UPDATES * 1e3)
        gflop = sum(product.flops for product in products(request)) / 1e9
        print(json.dumps({"times": times, "gflop": gflop}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
