"""Signals wait for a moment at which a run can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from valuedice.errors import Interrupted


@dataclass
class Signals:
    """What has arrived."""

    caught: int | None = None

    def handle(self, signum: int, _: FrameType | None) -> None:
        """Remembers the first signal; the second ends the run at once."""
        if self.caught is not None:
            raise Interrupted(signum, "interrupted again, at once")
        self.caught = signum


@contextmanager
def deferred() -> Iterator[Signals]:
    """Ctrl-C and SIGTERM are noted instead of obeyed; elsewhere than in the main thread, Python cannot."""
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
