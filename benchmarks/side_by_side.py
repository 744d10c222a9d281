"""Two runs, one a core, against one run on two cores: `python benchmarks/side_by_side.py OUT.json [--rounds N]`.

Updates a second of all runs together, in turns: two processes of one thread at once, then one of two threads.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from valuedice.bench import BASE, Worker
from valuedice.machine import hardware, versions


def main() -> None:
    """Alternating rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    places = sorted(os.sched_getaffinity(0))[-2:]
    pair = [Worker.start(1) for _ in places]
    for worker, place in zip(pair, places, strict=True):
        os.sched_setaffinity(worker.process.pid, {place})
    both = Worker.start(2)
    # The limit takes its turn in each worker too; only updates are counted, while the other core is as busy.
    rates: dict[str, list[float]] = {"two runs of one thread": [], "one run of two threads": []}
    with ThreadPoolExecutor(2) as pool:
        for _ in range(options.rounds):
            answers = list(pool.map(lambda worker: worker.ask(BASE)["times"]["update"], pair))
            rates["two runs of one thread"] += [1e3 / a + 1e3 / b for a, b in zip(*answers, strict=True)]
            rates["one run of two threads"] += [1e3 / spent for spent in both.ask(BASE)["times"]["update"]]
    for worker in (*pair, both):
        worker.stop()
    report = {
        name: {"best": round(max(found), 1), "median": round(float(np.median(found)), 1)}
        for name, found in rates.items()
    }
    options.out.write_text(json.dumps(report | {"hardware": hardware(), "versions": versions()}, indent=2) + "\n")
    for name, row in report.items():
        print(f"{name}: {row['median']} updates a second (best {row['best']})")


if __name__ == "__main__":
    main()
