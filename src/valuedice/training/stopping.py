"""What ends a run before its time: divergence, and signals, which wait until the run can be saved."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from valuedice.errors import DivergenceError, Interrupted
from valuedice.types import Metrics

LEAST_SAMPLE_SIZE = 0.02
"""Smallest effective sample size, as a fraction of the rows. While training works it stays above 0.8."""
PATIENCE = 3
"""Consecutive evaluations below that share."""


class Guard:
    """Watches losses after every compiled call, and the diagnosis of every evaluation."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.low_since: int | None = None
        """The count at the first of the consecutive evaluations with too small a sample size."""
        self._low = 0

    @property
    def suspicious(self) -> bool:
        """While this holds, no good checkpoint or policy is overwritten."""
        return self.low_since is not None

    def check_finite(self, metrics: Metrics, done: int) -> None:
        """Raises if any metric is not finite."""
        for name, value in metrics.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise DivergenceError(f"Training diverged: {name} is {value} at {done:,} {self.unit}.")

    def check_sample(self, share: float | None, done: int) -> None:
        """Raises if the effective sample size has been too small for too long."""
        if share is None or share >= LEAST_SAMPLE_SIZE:
            self.low_since, self._low = None, 0
            return
        self.low_since = done if self.low_since is None else self.low_since
        self._low += 1
        if self._low >= PATIENCE:
            raise DivergenceError(
                f"Training diverged: effective_sample_size is {share:.2g}, below {LEAST_SAMPLE_SIZE} at every "
                f"evaluation since {self.low_since:,} {self.unit}: a few rows dominate the objective."
            )


@dataclass
class Signals:
    """The signal that has arrived, if any."""

    caught: int | None = None

    def handle(self, signum: int, _: FrameType | None) -> None:
        """Remembers the first signal; the second ends the run at once."""
        if self.caught is not None:
            raise Interrupted(signum, "interrupted a second time; stopped at once")
        self.caught = signum


@contextmanager
def deferred_signals() -> Generator[Signals]:
    """Notes Ctrl-C and SIGTERM instead of obeying them. Python allows this in the main thread only."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {signum: signal.signal(signum, signals.handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
