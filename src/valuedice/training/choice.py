"""Which of the evaluated policies a run ends with. No reward ever chooses."""

from __future__ import annotations

from math import inf, isfinite

from valuedice.policy import Policy
from valuedice.training.checkpoint import Arrays, Facts
from valuedice.training.config import Keep
from valuedice.types import Form, Metrics, Normalizer, Spec


class Choice:
    """Remembers the policy that a run would end with now: the latest, or the one whose rollouts were closest to the
    demonstrations."""

    def __init__(self, keep: Keep, spec: Spec) -> None:
        self.keep, self.spec = keep, spec
        self.policy: Policy | None = None
        """None before the first evaluation."""
        self.distance = inf
        self.step = self.updates = 0
        """When the policy was evaluated."""

    def consider(self, row: Metrics, policy: Policy) -> None:
        """Takes the policy of an evaluation, if it is to be kept. Of equally close ones, the later is kept."""
        found = row.get("distance")
        closeness = inf if found is None or not isfinite(found) else found
        if self.keep == "closest" and self.policy is not None and closeness > self.distance:
            return
        self.policy, self.distance, self.step, self.updates = policy, closeness, row["step"], row["updates"]

    def save(self) -> tuple[Arrays, Facts]:
        """The policy, and when it was evaluated."""
        distance = self.distance if isfinite(self.distance) else None
        facts = {"distance": distance, "step": self.step, "updates": self.updates}
        if self.policy is None:
            return {}, facts | {"layers": 0}
        layers, normalizer = self.policy.layers, self.policy.normalizer
        arrays = {f"{i}/{n}": part for i, layer in enumerate(layers) for n, part in enumerate(layer)}
        arrays |= {"mean": normalizer.mean, "std": normalizer.std}
        return arrays, facts | {"layers": len(layers), "clip": normalizer.clip, "form": list(self.policy.form)}

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Continues from what `save` returned."""
        self.policy = None
        if facts["layers"]:
            layers = tuple((arrays[f"{i}/0"], arrays[f"{i}/1"]) for i in range(facts["layers"]))
            normalizer = Normalizer(arrays["mean"], arrays["std"], facts["clip"])
            self.policy = Policy(layers, normalizer, self.spec, Form(*facts["form"]))
        self.distance = inf if facts["distance"] is None else facts["distance"]
        self.step, self.updates = facts["step"], facts["updates"]
