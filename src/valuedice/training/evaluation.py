"""One row of `metrics.csv`: what a policy reaches, and what the algorithm knows about itself."""

from __future__ import annotations

from functools import cached_property

from valuedice.algorithms import Diagnosis
from valuedice.demos import Demos
from valuedice.energy import Reference
from valuedice.envs.episodes import NOISE, Evaluator, is_robust
from valuedice.policy import Policy
from valuedice.training.checkpoint import Arrays, Facts
from valuedice.training.choice import Choice
from valuedice.training.config import TrainConfig
from valuedice.training.learner import Learner
from valuedice.training.stopping import Guard
from valuedice.types import Metrics

FRESH = 1
"""Seeds of the final episodes; those of evaluations are shorter."""


class Evaluation:
    """Measures a learner. Without an evaluator, returns stay empty; without rewards, so does the normalised one."""

    def __init__(
        self, config: TrainConfig, learner: Learner, evaluator: Evaluator | None, demos: Demos | None
    ) -> None:
        self.config, self.learner, self.evaluator = config, learner, evaluator
        self.expert_return = None if demos is None else demos.expert_return
        self.reference = None if demos is None or evaluator is None else Reference(demos)
        self.guard = Guard(config.unit)
        self.converged = False
        """Whether the algorithm has nothing left to learn, by its last diagnosis."""

    @cached_property
    def random_return(self) -> float | None:
        """Mean return of uniformly random actions; None if there is nothing to compare it with."""
        if self.evaluator is None or self.expert_return is None:
            return None
        return self.evaluator.random().mean

    def begin(self, done: int, seconds: float) -> Metrics:
        """The columns that every row has, before anything is measured."""
        return {
            "step": 0 if self.config.offline else done,
            "updates": self.learner.updates,
            "wall_seconds": seconds,
            "return_mean": None,
            "return_std": None,
            "expert_return": self.expert_return,
            "normalized_return": None,
            "distance": None,
            "kl_estimate": None,
        }

    def fill(self, row: Metrics, done: int) -> None:
        """Measures everything. Raises DivergenceError if the run has diverged; the row then shows it."""
        diagnosis, means = self.learner.measure()
        columns = diagnosis_columns(diagnosis) | means
        row |= columns
        # First, because a policy of NaN should not reach the environment.
        self.guard.check_finite(columns, done)
        row |= self.returns(self.learner.policy, [self.config.seed, done])
        if self.config.robust:
            row["noisy_return"] = self.noisy_return(self.learner.policy, [self.config.seed, done])
        self.guard.check_sample(columns.get("effective_sample_size"), done)
        self.converged = bool(diagnosis.converged)

    def returns(self, policy: Policy, seed: list[int]) -> Metrics:
        """The columns about what a policy does, as far as they can be measured."""
        if self.evaluator is None:
            return {}
        result = self.evaluator.policy(policy, seed)
        row: Metrics = {"return_mean": result.mean, "return_std": result.std}
        if self.reference is not None:
            row["distance"] = self.reference.distance(result.episodes)
        # If random actions do as well as the expert, there is no scale.
        if self.expert_return is not None and self.random_return not in (None, self.expert_return):
            span = self.expert_return - self.random_return
            row["normalized_return"] = (result.mean - self.random_return) / span
        return row

    def final(self, choice: Choice) -> Metrics:
        """The headline of a run: the policy that it ends with, measured on episodes that chose nothing."""
        row: Metrics = dict.fromkeys(("return_mean", "return_std", "normalized_return", "distance"))
        if choice.policy is not None:
            row |= self.returns(choice.policy, [self.config.seed, 0, FRESH])
            row |= self.robustness(choice.policy, [self.config.seed, 0, FRESH])
        floor = None if self.reference is None else self.reference.floor
        return row | {"distance_floor": floor, "kept": choice.keep, "step": choice.step, "updates": choice.updates}

    def robustness(self, policy: Policy, seed: list[int]) -> Metrics:
        """What an expert reaches with sampled actions and under noise. Imitators are not measured."""
        if self.evaluator is None or self.learner.algorithm.data.demos:
            return {}
        sampled = self.evaluator.policy(policy, seed, deterministic=False)
        return {"sampled_return": sampled.mean, "noisy_return": self.noisy_return(policy, seed)}

    def noisy_return(self, policy: Policy, seed: list[int]) -> float | None:
        """The mean return under noise, from the same starts as without."""
        return None if self.evaluator is None else self.evaluator.policy(policy, seed, noise=NOISE).mean

    def save(self) -> tuple[Arrays, Facts]:
        """Whether the algorithm has converged."""
        return {}, {"converged": self.converged}

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Continues from what `save` returned."""
        self.converged = facts["converged"]

    def reached(self, rows: list[Metrics]) -> bool:
        """Whether the last evaluation reached the target return, or the algorithm has converged."""
        target, mean = self.config.target_return, rows[-1]["return_mean"] if rows else None
        if self.converged or target is None or mean is None or mean < target:
            return self.converged
        # Unknown if the run was begun without asking.
        noisy = rows[-1].get("noisy_return")
        return not self.config.robust or (noisy is not None and is_robust(mean, noisy))


def diagnosis_columns(diagnosis: Diagnosis) -> Metrics:
    """A diagnosis as columns of `metrics.csv`; what the algorithm does not know has no column but `kl_estimate`."""
    columns: Metrics = {"kl_estimate": diagnosis.kl_estimate}
    for name in ("effective_sample_size", "converged"):
        if (value := getattr(diagnosis, name)) is not None:
            columns[name] = value
    return columns | diagnosis.metrics
