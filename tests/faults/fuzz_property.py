"""What loading any file must be like: it loads as promised, or is refused in one line; cheaply and silently."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_files import CANARY

from valuedice.checkpoint import DamageError
from valuedice.demos import load_demos
from valuedice.errors import InputError
from valuedice.policy import load_policy


class Tally:
    """What became of the files that were tried, and what the worst of them cost."""

    def __init__(self) -> None:
        self.distinct: set[bytes] = set()
        self.tried = self.loaded = self.refused = 0
        self.slowest_seconds = self.peak_extra_mb = 0.0

    def report(self) -> dict[str, Any]:
        counts = {name: value for name, value in vars(self).items() if name != "distinct"}
        return counts | {"distinct": len(self.distinct)}

    def attempt(self, use: Callable[[Path], None], path: Path) -> bool:
        """Whether a file loads; fails if it does anything but load or be refused in one line, at little cost."""
        self.distinct.add(path.read_bytes())
        started = not tracemalloc.is_tracing()
        if started:
            tracemalloc.start(1)
        tracemalloc.reset_peak()
        base, begin = tracemalloc.get_traced_memory()[0], time.perf_counter()
        refusal: Exception | None = None
        with warnings.catch_warnings(record=True) as caught:
            # Not as errors: the loaders would catch those.
            warnings.simplefilter("always")
            try:
                use(path)
            except (InputError, DamageError) as error:
                refusal = error
        seconds, extra = time.perf_counter() - begin, (tracemalloc.get_traced_memory()[1] - base) / 1e6
        if started:
            tracemalloc.stop()
        assert [str(warning.message) for warning in caught] == []
        assert not CANARY.exists()
        assert seconds < 5
        assert extra < 64
        if refusal is not None:
            assert len(str(refusal).splitlines()) == 1
            assert len(str(refusal)) < 1500
            # Memory that was asked for and not given.
            assert not isinstance(refusal.__context__, MemoryError)
        self.tried += 1
        self.loaded += refusal is None
        self.refused += refusal is not None
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        self.peak_extra_mb = max(self.peak_extra_mb, extra)
        return refusal is None


def use_demos(path: Path) -> None:
    """Loads demonstrations and checks what they promise."""
    demos = load_demos(path, dones_are="truncated")
    for episode in demos.episodes:
        rows, size = len(episode), demos.obs_size
        assert rows > 0
        assert episode.observations.shape == episode.next_observations.shape == (rows, size)
        assert episode.actions.shape == ((rows,) if demos.discrete else (rows, demos.action_size))
        assert episode.actions.dtype == (np.int64 if demos.discrete else np.float32)
        assert episode.rewards is None or episode.rewards.shape == (rows,)
        for array in (episode.observations, episode.next_observations, episode.rewards):
            assert array is None or (array.dtype == np.float32 and np.isfinite(array).all())
        assert np.isfinite(episode.actions).all()


def use_policy(path: Path) -> None:
    """Loads a policy and acts: numbers may be extreme, but actions are of the right shape and within bounds."""
    policy = load_policy(path)
    obs = np.random.default_rng(0).normal(size=(4, policy.spec.obs_size))
    with np.errstate(all="ignore"):
        for given in (obs, obs[0]):
            for deterministic in (True, False):
                actions = policy(given, deterministic, np.random.default_rng(0))
                if policy.spec.discrete:
                    assert actions.shape == given.shape[:-1]
                    index = actions - policy.spec.first_action
                    assert ((index >= 0) & (index < policy.spec.action_size)).all()
                else:
                    assert actions.shape == (*given.shape[:-1], policy.spec.action_size)
                    low, high = (np.asarray(bound, np.float32) for bound in (policy.spec.low, policy.spec.high))
                    assert (np.isnan(actions) | ((actions >= low) & (actions <= high))).all()
                    assert not np.isnan(actions).all() or not np.isfinite(policy.forward(obs)).all()
