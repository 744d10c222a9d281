"""Keeps a run: metrics, policy and checkpoints, and never something broken over something good."""

from __future__ import annotations

import time

import numpy as np

from valuedice.errors import DivergenceError, InputError, Interrupted
from valuedice.guard import Guard
from valuedice.policy import Policy
from valuedice.runs import RunFolder
from valuedice.training import Training
from valuedice.types import Metrics


class Keeper:
    """What is saved, and when. Without a folder nothing is, but the guard watches all the same."""

    def __init__(
        self, folder: RunFolder | None, training: Training, interval: float, unit: str, begin: float
    ) -> None:
        self.folder, self.training, self.interval, self.unit = folder, training, interval, unit
        self.guard = Guard(training.learner.algorithm.remedies)
        self.saved: int | None = None
        """Steps (offline: updates) of the last checkpoint."""
        self._begin = begin
        self._due = time.monotonic() + interval

    @property
    def seconds(self) -> float:
        """Of work, before and after an interruption."""
        return self.training.seconds + time.monotonic() - self._begin

    def recall(self, total: int) -> None:
        """Brings a run to its last checkpoint, if it has one, and its folder with it."""
        if self.folder is None:
            return
        saved = self.folder.checkpoints.load()
        if saved is not None:
            done: int = saved.facts["done"]
            if done > total:
                raise InputError(
                    f"{self.folder.path} has already made {done:,} {self.unit}, and {total:,} are asked for; "
                    "ask for more"
                )
            self.saved = done
            if (replay := self.training.learner.replay) is not None:
                replay.clear()
                saved.fill(replay)
            self.training.restore(saved.arrays, saved.facts)
        self.folder.begin(self.training.metrics)

    def log(self, row: Metrics, policy: Policy | None) -> None:
        """An evaluation; the policy is kept unless something is wrong."""
        self.training.metrics.append(row)
        if self.folder is not None:
            self.folder.log(row)
            if policy is not None and not self.guard.suspicious:
                self.folder.save_policy(policy)

    def save(self, now: bool = False) -> None:
        """A checkpoint, if it is time for one and nothing is wrong."""
        if self.folder is None or self.guard.suspicious or not (now or time.monotonic() >= self._due):
            return
        arrays, facts = self.training.save(self.seconds)
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all() and name.startswith("learner/"):
                what, when = name.removeprefix("learner/"), f"{self.training.done:,} {self.unit}"
                raise DivergenceError(
                    f"Training diverged: {what} is not finite after {when}. {self.guard.remedies}"
                )
        with self.folder.writing():
            self.folder.checkpoints.save(arrays, facts, self.training.learner.replay)
        self.saved = self.training.done
        self._due = time.monotonic() + self.interval

    def kept(self) -> str:
        """What is left of a run that ends early."""
        if self.folder is None:
            return "nothing was saved, since the run has no folder"
        if self.saved is None:
            return f"{self.folder.path} holds no checkpoint yet"
        return f"{self.folder.path} holds the checkpoint of {self.saved:,} {self.unit}"

    def finish(self) -> None:
        """The end of a run that reached it."""
        if self.folder is not None:
            self.folder.save_policy(self.training.learner.policy)
            self.folder.finish(self.training.metrics)

    def stop(self, signum: int) -> None:
        """Ends the run at the request of a signal."""
        self.save(now=True)
        message = f"stopped after {self.training.done:,} {self.unit}; {self.kept()}"
        if self.folder is not None:
            message += f"; go on with: {self.folder.resume_command}"
        raise Interrupted(signum, message)
