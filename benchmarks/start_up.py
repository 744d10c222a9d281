"""Start-up time of the commands: `python benchmarks/start_up.py DEMOS OUT.json [--rounds N]`.

Times `valuedice train` until its first update is done, with an empty and with a filled cache of compiled code, and
the help texts. Each measurement is a process of its own; reports best and median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from valuedice.system.machine import hardware, versions

# Runs the command, and exits after the first update.
FIRST_UPDATE = """
import os, sys
from valuedice.cli import main
import valuedice.system.machine
keep = valuedice.system.machine.keep_compiled
def patched():
    keep()
    from valuedice.training.learner import Learner as learner
    learn = learner.learn
    def first(self, *args):
        learn(self, *args)
        if self.updates:
            os._exit(0)
    learner.learn = first
valuedice.system.machine.keep_compiled = patched
main(sys.argv[1:])
os._exit(1)
"""


def seconds(command: list[str], cache: Path) -> float:
    """Wall time of one process."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"XDG_CACHE_HOME": str(cache)})
    return time.perf_counter() - begin


def main() -> None:
    """Takes all measurements once in each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demos")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    times: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            train = [sys.executable, "-c", FIRST_UPDATE, "train", "--env", "HalfCheetah-v5", "--quiet"]
            train += ["--demos", str(options.demos), "--episodes", "1", "--out"]
            for what in ("cold", "warm"):
                spent = seconds([*train, str(root / what)], root / "cache")
                times.setdefault(f"train to the first update, {what} cache", []).append(spent)
            for args in (["--help"], ["train", "--help"]):
                spent = seconds([sys.executable, "-m", "valuedice.cli", *args], root / "cache")
                times.setdefault(" ".join(["valuedice", *args]), []).append(spent)
    report = {
        what: {"best": round(min(spent), 2), "median": round(statistics.median(spent), 2)}
        for what, spent in times.items()
    }
    options.out.write_text(json.dumps(report | {"hardware": hardware(), "versions": versions()}, indent=2) + "\n")
    for what, row in report.items():
        print(f"{what:45} best {row['best']:6.2f} s, median {row['median']:6.2f} s")


if __name__ == "__main__":
    main()
