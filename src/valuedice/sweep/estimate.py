"""How long runs take, measured on this machine in a few seconds: arithmetic, environment, evaluations."""

from __future__ import annotations

import time
from typing import Any

from valuedice.bench.worker import PRODUCTS, UPDATES, sgemm_contestant
from valuedice.envs.make import make_env, task_spec
from valuedice.sweep.cell import RING, Cell

OVERHEAD = 1.3
"""An update takes longer than its matrix products (`valuedice bench`), and two busy cores slow each other."""
RING_SECONDS = 90.0
START_SECONDS = 15.0
"""Loading and compiling."""
TRIAL_STEPS = 300


def estimate(cells: list[Cell]) -> dict[str, float]:
    """Seconds of one core for each run."""
    paces: dict[str, tuple[Any, float, int]] = {}
    known: dict[tuple[Any, ...], float] = {}
    for cell in cells:
        if cell.task not in paces and cell.algorithm != RING:
            paces[cell.task] = pace_of(cell.task)
    return {cell.name: seconds(cell, paces, known) for cell in cells}


def pace_of(task: str) -> tuple[Any, float, int]:
    """The task's shape, the seconds of a step in it, and the length of an episode."""
    env = make_env(task)
    try:
        spec = task_spec(env, task)
        limit = env.spec.max_episode_steps if env.spec is not None else None
        env.reset(seed=0)
        begin = time.perf_counter()
        for _ in range(TRIAL_STEPS):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()
        return spec, (time.perf_counter() - begin) / TRIAL_STEPS, limit or 1_000
    finally:
        env.close()


def seconds(cell: Cell, paces: dict[str, tuple[Any, float, int]], known: dict[tuple[Any, ...], float]) -> float:
    """One run: its updates, its steps and its evaluations."""
    if cell.algorithm == RING:
        return RING_SECONDS
    spec, step, length = paces[cell.task]
    algorithm, config = cell.built()
    config = config.resolved(algorithm)
    key = (algorithm, spec)
    if key not in known:
        known[key] = update_seconds(cell.algorithm, algorithm, spec)
    pace = None if config.offline else algorithm.pace
    updates, steps = config.total, 0
    if pace is not None:
        learning = max(0, config.total - pace.training_starts) // pace.update_every + 1
        updates, steps = learning * pace.updates_per_step, config.total
    evaluations = -(-config.total // config.eval_every)
    acting = step * (steps + evaluations * config.eval_episodes * length)
    return START_SECONDS + updates * known[key] * OVERHEAD + acting


def update_seconds(name: str, algorithm: Any, spec: Any) -> float:
    """The matrix products of an update, in numpy."""
    call = sgemm_contestant(PRODUCTS[name](algorithm, spec))
    call()
    times: list[float] = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) / UPDATES)
    return min(times)
