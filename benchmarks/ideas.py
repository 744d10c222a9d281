"""Whether an option of the compiler makes the update faster: `python benchmarks/ideas.py OUT.json [--rounds N]`.

Every option has a process of its own, and the processes take turns. A ratio below 1 is faster than the
default; what is within a few per cent of 1 is noise.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from valuedice.bench import BASE, Worker
from valuedice.machine import cores, hardware, versions

IDEAS = {
    "default": "",
    "fast math": "--xla_cpu_enable_fast_math=true",
    "vectors of 512 bits": "--xla_cpu_prefer_vector_width=512",
    "oneDNN off": "--xla_cpu_use_onednn=false",
    "XNNPACK": "--xla_cpu_use_xnnpack=true",
    "no concurrency-optimised schedule": "--xla_cpu_enable_concurrency_optimized_scheduler=false",
    "Eigen without threads": "--xla_cpu_multi_thread_eigen=false",
}


def compare(count: int, rounds: int) -> dict[str, dict[str, float | str]]:
    """Alternating rounds on so many cores."""
    workers = {name: Worker.start(count, {"XLA_FLAGS": flags}) for name, flags in IDEAS.items()}
    times: dict[str, list[float]] = {name: [] for name in IDEAS}
    for _ in range(rounds):
        for name, worker in workers.items():
            times[name] += worker.ask(BASE)["times"]["update"]
    for worker in workers.values():
        worker.stop()
    best, median = min(times["default"]), float(np.median(times["default"]))
    return {
        name: {
            "flags": IDEAS[name],
            "best_ms": round(min(spent), 2),
            "ratio_of_best": round(min(spent) / best, 3),
            "ratio_of_median": round(float(np.median(spent)) / median, 3),
        }
        for name, spent in times.items()
    }


def main() -> None:
    """On one core, then on all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    report = {str(count): compare(count, options.rounds) for count in sorted({1, cores()})}
    options.out.write_text(json.dumps(report | {"hardware": hardware(), "versions": versions()}, indent=2) + "\n")
    for count, rows in report.items():
        for name, row in rows.items():
            ratios = f"best {row['ratio_of_best']}, median {row['ratio_of_median']}"
            print(f"{count} {name:36} {row['best_ms']:6.2f} ms, {ratios}")


if __name__ == "__main__":
    main()
