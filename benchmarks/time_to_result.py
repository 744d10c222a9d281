"""Processor seconds until one demonstration is imitated: `python benchmarks/time_to_result.py DEMOS OUT`.

Trains each contestant on one episode of DEMOS/TASK.npz, whole or every 20th transition, until its chosen policy
reaches 0.95 of the expert (0 is random, 1 the expert) or its budget is spent. Every 1,000 steps or updates, an
evaluation plays 10 episodes with the mean action.

- Contestants of valuedice choose the policy whose rollouts are closest to the demonstration (`distance`).
- Peers are the behavioural cloning of `imitation` and `d3rlpy`, with their defaults and with their normaliser of
  observations switched on. They choose nothing, so their latest policy counts. They train in the Pythons that
  `--peers` names (see `peers.py`); without one, they are left out. Their weights are evaluated here.

Each run is a process of its own with one thread. Its clock is processor time from the start: imports and compiling
count, and no compiled code is kept between runs. One clock is training alone, the other includes the evaluations.
Random actions only set the scale and count in neither. Contestants alternate, so that noise of the machine affects
all alike. Runs that OUT already holds are skipped. OUT/table.csv and OUT/table.md show all runs in OUT.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from math import inf, isfinite
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

LEVELS = (0.9, 0.95)
EVERY, EPISODES = 1_000, 10
"""Steps or updates between evaluations, and the episodes of each."""
TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5")
STEPS = {"value-dice": 10_000, "dac": 20_000}
"""Contestants that act in the environment, and their budgets; the others have a budget of updates."""
PEERS = {
    "imitation-bc": "imitation",
    "imitation-bc-normalised": "imitation",
    "d3rlpy-bc": "d3rlpy",
    "d3rlpy-bc-normalised": "d3rlpy",
}
"""Contestants of other libraries, and the package of each."""
CONTESTANTS = ("bc", *STEPS, *PEERS)
CLOCKS = {"seconds_train": "training alone", "seconds_total": "training and evaluations"}

Run = dict[str, Any]
"""What is run, and its `rows`: one for each evaluation."""


def clocked(owner: type, name: str, spent: dict[str, float], wait: Callable[[Any], object] | None = None) -> None:
    """From now on, `spent` counts the processor seconds inside this method, after `wait` of its object."""
    method, key = getattr(owner, name), f"{owner.__name__}.{name}"
    spent[key] = 0.0

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if wait is not None:
            wait(self)
        begin = time.process_time()
        try:
            return method(self, *args, **kwargs)
        finally:
            spent[key] += time.process_time() - begin

    setattr(owner, name, timed)


def train_ours(demos: Path, run: Run) -> Run:
    """A run of this library."""
    import jax

    import valuedice as vd
    from valuedice.envs.episodes import Evaluator
    from valuedice.system.machine import versions
    from valuedice.training.evaluation import Evaluation

    spent: dict[str, float] = {}
    clocked(Evaluator, "__init__", spent)
    clocked(Evaluator, "random", spent)
    # JAX computes in the background: updates that are still under way are training.
    clocked(Evaluation, "fill", spent, lambda evaluation: jax.block_until_ready(evaluation.learner.state))
    rows: list[dict[str, Any]] = []
    closest, chosen = inf, 0.0

    def note(progress: Any) -> bool:
        nonlocal closest, chosen
        seconds = time.process_time()
        apart = spent["Evaluator.__init__"] + spent["Evaluation.fill"]
        found, reached = progress.metrics["distance"], progress.metrics["normalized_return"]
        closeness = found if found is not None and isfinite(found) else inf
        if closeness <= closest:
            closest, chosen = closeness, reached
        row = {"step": progress.step, "updates": progress.updates, "return": reached, "distance": found}
        clocks = {"seconds_train": seconds - apart, "seconds_total": seconds - spent["Evaluator.random"]}
        rows.append(row | {"chosen": chosen} | clocks)
        return chosen >= LEVELS[-1]

    options: dict[str, Any] = {"seed": run["seed"], "eval_every": EVERY, "eval_episodes": EPISODES, "quiet": True}
    episodes = vd.load_demos(demos, episodes=1, seed=run["seed"], subsample=run["subsample"])
    # A run that diverges keeps the policy that it has chosen until then.
    with suppress(vd.DivergenceError):
        if run["contestant"] == "bc":
            algorithm, limit = vd.BC(), {"updates": run["budget"], "eval_env": run["task"]}
        else:
            algorithm = vd.ValueDICE() if run["contestant"] == "value-dice" else vd.DAC()
            limit = {"steps": run["budget"], "env": run["task"]}
        vd.train(algorithm, episodes, **limit, **options, on_evaluation=note)
    return run | {"versions": versions(), "rows": rows}


class PeerPolicy:
    """The policy in a peer's file, as a function of a batch of observations."""

    def __init__(self, path: Path, answer: dict[str, Any], low: np.ndarray, high: np.ndarray) -> None:
        with np.load(path) as file:
            self.arrays = dict(file)
        self.depth = sum(name.startswith("kernel") for name in self.arrays)
        self.tanh, self.squashed, self.bounds = answer["activation"] == "tanh", answer["squashed"], (low, high)

    def __call__(self, observations: Any, *_: Any) -> np.ndarray:
        """The deterministic action for each observation, clipped to its bounds."""
        part = self.arrays
        x = ((np.asarray(observations) - part["mean"]) / part["std"]).astype(np.float32)
        for index in range(self.depth):
            if index:
                x = np.tanh(x) if self.tanh else np.maximum(x, 0)
            x = x @ part[f"kernel{index}"] + part[f"bias{index}"]
        return np.clip(np.tanh(x) if self.squashed else x, *self.bounds)


def train_peer(demos: Path, run: Run, python: str) -> Run:
    """A run of another library: it trains in a process of its own, and is evaluated here."""
    import valuedice as vd
    from valuedice.envs.episodes import Evaluator, measure

    episodes = vd.load_demos(demos, episodes=1, seed=run["seed"], subsample=run["subsample"])
    (episode,) = episodes.episodes
    rows: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    begin = time.process_time()
    with Evaluator(run["task"], EPISODES) as evaluator, tempfile.TemporaryDirectory() as folder:
        evaluations = time.process_time() - begin
        worst, best = evaluator.random().mean, episodes.expert_return
        assert best is not None, "the demonstrations must have rewards"
        low, high = (np.asarray(bound, np.float32) for bound in (evaluator.spec.low, evaluator.spec.high))
        data, policy = Path(folder, "demos.npz"), Path(folder, "policy.npz")
        rewards = np.zeros(len(episode), np.float32) if episode.rewards is None else episode.rewards
        arrays: dict[str, Any] = {"observations": episode.observations, "actions": episode.actions}
        arrays |= {"next_observations": episode.next_observations, "rewards": rewards, "low": low, "high": high}
        np.savez(data, **arrays)
        setting = "normalised" if run["contestant"].endswith("normalised") else "default"
        command = [python, str(Path(__file__).with_name("peers.py")), PEERS[run["contestant"]]]
        command += [setting, str(run["seed"]), str(data), str(policy)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            for updates in range(EVERY, run["budget"] + 1, EVERY):
                print(file=worker.stdin, flush=True)
                answer = json.loads(worker.stdout.readline())
                act = PeerPolicy(policy, answer, low, high)
                own = np.clip(act.arrays["own_actions"], low, high)
                np.testing.assert_allclose(act(episode.observations), own, atol=1e-3)
                begin = time.process_time()
                # The same first states as in an evaluation of this library's cloning.
                seeds = np.random.SeedSequence([run["seed"], updates]).generate_state(EPISODES)
                reached = (measure(act, evaluator.envs, seeds).mean - worst) / (best - worst)
                evaluations += time.process_time() - begin
                clocks = {"seconds_train": answer["seconds"], "seconds_total": answer["seconds"] + evaluations}
                row = {"step": 0, "updates": updates, "return": reached, "distance": None, "chosen": reached}
                rows.append(row | clocks)
                versions = answer["versions"]
                if reached >= LEVELS[-1]:
                    break
    return run | {"versions": versions, "rows": rows}


def seconds_to(run: Run, level: float, clock: str) -> float:
    """Processor seconds until the chosen policy reaches a level; infinite if it never does."""
    return next((row[clock] for row in run["rows"] if row["chosen"] >= level), inf)


def shown(seconds: float) -> str:
    """Seconds for a table."""
    return "never" if seconds == inf else f"{seconds:.1f}"


def cell(runs: list[Run], clock: str) -> str:
    """The median over seeds for each level; if most runs never reach it, how many do."""
    parts: list[str] = []
    for level in LEVELS:
        times = [seconds_to(run, level, clock) for run in runs]
        middle, done = median(times), sum(spent < inf for spent in times)
        parts.append(f"{done} of {len(times)}" if middle == inf and done else shown(middle))
    return " / ".join(parts)


def write_csv(path: Path, runs: list[Run]) -> None:
    """A line for each run."""
    names = ["contestant", "task", "subsample", "seed"]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        clocks = [f"{clock}_{level}" for level in LEVELS for clock in CLOCKS]
        table.writerow([*names, *clocks, "chosen_return", "updates", "steps"])
        for run in runs:
            times = [shown(seconds_to(run, level, clock)) for level in LEVELS for clock in CLOCKS]
            # A run that diverged before its first evaluation has no rows.
            last = run["rows"][-1] if run["rows"] else {"chosen": 0.0, "updates": 0, "step": 0}
            end = [f"{last['chosen']:.4f}", last["updates"], last["step"]]
            table.writerow([*(run[name] for name in names), *times, *end])


def write_markdown(path: Path, runs: list[Run]) -> None:
    """Contestants × tasks, for each amount of data and each clock; and the versions."""
    lines = [f"Processor seconds of one core to {' / '.join(map(str, LEVELS))} of the expert, median over seeds."]
    tasks = [task for task in TASKS if any(run["task"] == task for run in runs)]
    for subsample, clock in product(sorted({run["subsample"] for run in runs}), CLOCKS):
        data = "whole" if subsample == 1 else f"one transition in {subsample}"
        lines += ["", f"One trajectory, {data}; {CLOCKS[clock]}:", ""]
        lines += ["| " + " | ".join(["contestant", *tasks]) + " |", "|---" * (len(tasks) + 1) + "|"]
        for contestant in CONTESTANTS:
            theirs = [run for run in runs if (run["contestant"], run["subsample"]) == (contestant, subsample)]
            cells = [[run for run in theirs if run["task"] == task] for task in tasks]
            texts = [cell(part, clock) if part else "" for part in cells]
            if theirs:
                lines.append("| " + " | ".join([contestant, *texts]) + " |")
    lines += ["", "Processor: " + "; ".join(sorted({run["processor"] for run in runs})) + ".", ""]
    lines += ["| contestant | seeds | versions |", "|---|---|---|"]
    for contestant in CONTESTANTS:
        theirs = [run for run in runs if run["contestant"] == contestant]
        seeds = " ".join(map(str, sorted({run["seed"] for run in theirs})))
        used = dict.fromkeys(", ".join(f"{n} {v}" for n, v in run["versions"].items()) for run in theirs)
        if theirs:
            lines.append(f"| {contestant} | {seeds} | {'; '.join(used)} |")
    path.write_text("\n".join(lines) + "\n")


def python_with(package: str, pythons: list[str]) -> str | None:
    """The first of these Pythons that has the package."""
    code = f"from importlib.metadata import version; version({package!r})"
    tried = (
        python for python in pythons if not subprocess.run([python, "-c", code], capture_output=True).returncode
    )
    return next(tried, None)


def run_all(options: argparse.Namespace) -> int:
    """Starts the runs one after the other; returns how many failed."""
    from valuedice.system.machine import THREADS

    environment = os.environ | dict.fromkeys(THREADS, "1")
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    pythons = {package: python_with(package, options.peers) for package in dict.fromkeys(PEERS.values())}
    contestants = [name for name in CONTESTANTS if name in options.contestants]
    for name in [name for name in contestants if name in PEERS and pythons[PEERS[name]] is None]:
        print(f"{name} is left out: name a Python that has {PEERS[name]} with --peers")
        contestants.remove(name)
    failed = 0
    for subsample, task, seed, name in product(options.subsample, options.tasks, options.seeds, contestants):
        path = options.out / f"{name}-{task}-every{subsample}-seed{seed}.json"
        if path.exists() or (name == "dac" and subsample == 1):
            continue
        budget = (options.steps or STEPS[name]) if name in STEPS else options.updates
        run = {"contestant": name, "task": task, "subsample": subsample, "seed": seed, "budget": budget}
        command = [sys.executable, __file__, str(options.demos), str(options.out), "--one", json.dumps(run)]
        if name in PEERS:
            command += ["--peers", str(pythons[PEERS[name]])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
        if done.returncode:
            failed += 1
            print(f"{path.stem} failed", flush=True)
        else:
            path.write_text(done.stdout)
            print(path, flush=True)
    return failed


def main() -> None:
    """Starts the missing runs, then writes the tables."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("demos", type=Path, help="folder with the files TASK.npz")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS), choices=CONTESTANTS)
    parser.add_argument("--subsample", nargs="+", type=int, default=[1, 20], help="use every Nth transition")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--updates", type=int, default=20_000, help="budget of behavioural cloning")
    budgets = ", ".join(f"{steps} for {name}" for name, steps in STEPS.items())
    parser.add_argument("--steps", type=int, help=f"budget in the environment; by default {budgets}")
    parser.add_argument("--peers", nargs="+", default=[], help="Pythons that have imitation or d3rlpy")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        from valuedice.system.machine import cpu

        path = options.demos / f"{options.one['task']}.npz"
        peer = options.one["contestant"] in PEERS
        run = train_peer(path, options.one, options.peers[0]) if peer else train_ours(path, options.one)
        print(json.dumps(run | {"processor": cpu("model name")}, indent=1))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    failed = run_all(options)
    runs: list[Run] = [json.loads(path.read_text()) for path in sorted(options.out.glob("*-every*-seed*.json"))]
    write_csv(options.out / "table.csv", runs)
    write_markdown(options.out / "table.md", runs)
    sys.exit(f"{failed} runs failed; start again to repeat them" if failed else None)


if __name__ == "__main__":
    main()
