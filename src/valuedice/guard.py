"""Stops a run that has left the range in which it means anything."""

from __future__ import annotations

import math

from valuedice.errors import DivergenceError
from valuedice.types import Metrics

LEAST_SAMPLE_SIZE = 0.02
"""Share of the rows that must carry the weights e^x. Where training works it stays above 0.8 (docs/training.md)."""
PATIENCE = 3
"""Evaluations in a row below that share."""


class Guard:
    """Watches losses after every compiled call, and the diagnostics of every evaluation."""

    def __init__(self, remedies: str) -> None:
        self.remedies = f"What usually helps, in a new folder: {remedies}."
        self.low_since: int | None = None
        """Step of the first of the evaluations in a row whose sample size was too small."""
        self._low = 0

    @property
    def suspicious(self) -> bool:
        """While this holds, nothing good is overwritten."""
        return self.low_since is not None

    def check_finite(self, metrics: Metrics, when: str) -> None:
        """Raises at the first number that is none."""
        for name, value in metrics.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise DivergenceError(f"Training diverged: {name} is {value} at {when}. {self.remedies}")

    def check_sample(self, share: float | None, step: int, unit: str) -> None:
        """Raises when the effective sample size has been too small for too long."""
        if share is None or share >= LEAST_SAMPLE_SIZE:
            self.low_since, self._low = None, 0
            return
        self.low_since = step if self.low_since is None else self.low_since
        self._low += 1
        if self._low >= PATIENCE:
            raise DivergenceError(
                f"Training diverged: effective_sample_size is {share:.2g}, below {LEAST_SAMPLE_SIZE} at every "
                f"evaluation since {self.low_since:,} {unit}: a few rows decide everything. {self.remedies}"
            )
