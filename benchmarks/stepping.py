"""Environment steps a second of PPO, on one core and on two: `python benchmarks/stepping.py OUT.json`.

Each process has as many cores as it has threads. It measures, in turns: environments that are stepped one after the
other with given actions (what Gymnasium and MuJoCo take), the collector (the same with the policy, in threads, and
with the rows stored), and a whole training round (collecting a rollout and learning from it).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
ROUNDS = 6


def measure(task: str, threads: int) -> dict[str, float]:
    """Steps a second of each contestant: the best of some rounds, after one that compiles."""
    import numpy as np

    from valuedice import PPO
    from valuedice.envs.make import make_env, task_spec
    from valuedice.replay import Rollouts
    from valuedice.training.acting import Collector
    from valuedice.training.batches import Batches
    from valuedice.training.learner import Learner
    from valuedice.types import Normalizer

    algorithm = PPO()
    times, count = algorithm.pace.rollout or (0, 0)
    envs = [make_env(task) for _ in range(count)]
    spec = task_spec(envs[0], task)
    rollouts, normalizer = Rollouts(spec, times, count), Normalizer.none(spec.obs_size)
    collector = Collector(envs, rollouts, spec, normalizer, seed=0, threads=threads)
    batches = Batches(algorithm.data, spec, 0, rollouts=rollouts)
    learner = Learner(algorithm, batches, normalizer, spec, 0)

    alone = [make_env(task) for _ in range(count)]
    for number, env in enumerate(alone):
        env.reset(seed=number)
    # Actions of a new policy, so that episodes end about as often.
    actions = np.clip(0.22 * np.random.default_rng(0).standard_normal((times, count, spec.action_size)), -1, 1)
    actions = spec.decode(actions)

    def step_alone() -> None:
        for row in actions:
            for env, action in zip(alone, row, strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

    def collect() -> None:
        for _ in range(times):
            collector.step(first)

    def train() -> None:
        for _ in range(times):
            collector.step(learner.policy)
        learner.learn(1)

    first = learner.policy
    contestants: dict[str, Callable[[], None]] = {
        "environments": step_alone,
        "collector": collect,
        "training": train,
    }
    found = dict.fromkeys(contestants, 0.0)
    for number in range(ROUNDS + 1):
        for name, contestant in contestants.items():
            begin = time.perf_counter()
            contestant()
            rate = times * count / (time.perf_counter() - begin)
            found[name] = max(found[name], rate) if number else 0.0
    return {name: round(rate) for name, rate in found.items()}


def in_process(task: str, threads: int) -> dict[str, float]:
    """The same in a process of its own, with so many cores and threads."""
    environment = os.environ | {"NPROC": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
    command = ["taskset", "-c", cores, sys.executable, __file__, "--worker", task, "--threads", str(threads)]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def main() -> None:
    """Measures all tasks, and writes the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--worker")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker, options.threads)))
        return
    if options.out is None:
        parser.error("name the file to write")
    from valuedice.system.machine import hardware, versions

    rates: dict[str, Any] = {}
    for task in options.tasks:
        rates[task] = {f"{threads} cores": in_process(task, threads) for threads in (1, 2)}
        print(task, rates[task], flush=True)
    report = {"steps per second": rates, "hardware": hardware(), "versions": versions()}
    options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
