"""Memory and checkpoints of a full replay buffer: `python benchmarks/large_replay.py OUT.json [--rows N]`.

Fills a buffer, for observations of 17 and of 376 features. Measures the memory that the process gained, the first
checkpoint (which writes all rows), later ones (which append 1,500 rows, a minute of training), and loading. The
networks are ValueDICE's. The share of time assumes one checkpoint a minute.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from valuedice.algorithms import ValueDICE
from valuedice.replay import Replay
from valuedice.system.machine import hardware, versions
from valuedice.training.checkpoint import Checkpoints
from valuedice.training.learner import named_leaves, start
from valuedice.types import Spec

SIZES = {17: 6, 376: 17}
NEW_ROWS = 1_500
INTERVAL = 60.0


def resident() -> float:
    """Megabytes of memory in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def fill(replay: Replay, rows: int) -> None:
    """Adds episodes of 1,000 steps, a whole episode at a time."""
    block = np.zeros((1_000, replay.width), np.float32)
    block[:, :-1] = np.random.default_rng(replay.count).standard_normal((1_000, replay.width - 1))
    block[-1, -1] = 1
    for _ in range(0, rows, len(block)):
        replay.restore(replay.count, block)


def one(obs_size: int, rows: int) -> dict[str, Any]:
    """Takes all measurements for one observation size."""
    spec = Spec(obs_size, SIZES[obs_size])
    state = start(ValueDICE(), jax.random.key(0), spec)
    before = resident()
    replay = Replay(spec, rows)
    fill(replay, rows)
    memory = resident() - before
    # Rows of float32, two numbers of 8 bytes and a flag.
    predicted = rows * (4 * (replay.width - 1) + 17) / 2**20

    def seconds(checkpoints: Checkpoints) -> float:
        begin = time.perf_counter()
        arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(state).items()}
        checkpoints.save(arrays, {"done": replay.count}, replay)
        return time.perf_counter() - begin

    folder = Path(tempfile.mkdtemp(dir="."))
    try:
        checkpoints = Checkpoints(folder)
        first = [seconds(checkpoints), seconds(checkpoints)]
        later = []
        for _ in range(6):
            fill(replay, NEW_ROWS)
            later.append(seconds(checkpoints))
        begin = time.perf_counter()
        saved = Checkpoints(folder).load()
        assert saved is not None
        copy = Replay(spec, rows)
        saved.fill(copy)
        loading = time.perf_counter() - begin
        assert copy.count == replay.count
        assert np.array_equal(copy.obs, replay.obs)
    finally:
        shutil.rmtree(folder)
    middle = statistics.median(later)
    return {
        "observations": obs_size,
        "rows": rows,
        "memory_mb": round(memory),
        "predicted_mb": round(predicted),
        "first_checkpoint_s": round(max(first), 2),
        "later_checkpoint_s": round(middle, 3),
        "share_of_time": round(middle / (INTERVAL + middle), 4),
        "load_s": round(loading, 2),
    }


def main() -> None:
    """Measures each size in a process of its own, so that memory use does not mix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(options.one, options.rows)))
        return
    results = []
    for size in SIZES:
        command = [sys.executable, __file__, str(options.out), "--rows", str(options.rows), "--one", str(size)]
        results.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
        print(results[-1])
    report = {"results": results, "hardware": hardware(), "versions": versions()}
    options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
