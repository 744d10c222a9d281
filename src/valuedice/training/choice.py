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

    def __init__(self, keep: Keep, normalizer: Normalizer, spec: Spec) -> None:
        self.keep, self.normalizer, self.spec = keep, normalizer, spec
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
        """The layers of the policy, and when it was evaluated."""
        layers = () if self.policy is None else self.policy.layers
        arrays = {f"{i}/{n}": part for i, layer in enumerate(layers) for n, part in enumerate(layer)}
        distance = self.distance if isfinite(self.distance) else None
        facts = {"layers": len(layers), "distance": distance, "step": self.step, "updates": self.updates}
        return arrays, facts | {"form": None if self.policy is None else list(self.policy.form)}

    def restore(self, arrays: Arrays, facts: Facts) -> None:
        """Continues from what `save` returned."""
        layers = tuple((arrays[f"{i}/0"], arrays[f"{i}/1"]) for i in range(facts["layers"]))
        self.policy = Policy(layers, self.normalizer, self.spec, Form(*facts["form"])) if layers else None
        self.distance = inf if facts["distance"] is None else facts["distance"]
        self.step, self.updates = facts["step"], facts["updates"]
