"""The table of the shipped experts: `python benchmarks/experts.py results/experts`.

Reads the run folders of experts (`TASK-seedS`) and the shipped demonstrations of their tasks, and writes `table.md`
into the same folder. Returns are those of the run's headline: ten fresh episodes with the mean action, with sampled
actions, and with noise of 0.1 on the mean action.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from valuedice import load_demos
from valuedice.envs.episodes import is_robust

HEADER = (
    "| task | learned by | steps | minutes | mean action | sampled actions | under noise | shipped episodes |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def line(folder: Path) -> str:
    """One expert."""
    config, summary = (json.loads((folder / name).read_text()) for name in ("config.json", "summary.json"))
    final, last, task = summary["final"], summary["last"], config["env"]
    kept = "" if is_robust(final["return_mean"], final["noisy_return"]) else " (fragile)"
    demos = load_demos(task.partition("-")[0].lower())
    returns = np.array([episode.total_reward for episode in demos.episodes], float)
    cells = [
        task,
        config["algorithm"].upper(),
        f"{last['step']:,}",
        f"{last['wall_seconds'] / 60:.1f}",
        f"{final['return_mean']:.0f} ± {final['return_std']:.0f}",
        f"{final['sampled_return']:.0f}",
        f"{final['noisy_return']:.0f}{kept}",
        f"{returns.mean():.0f} ± {returns.std():.0f}",
    ]
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    """Writes the table."""
    place = Path(sys.argv[1])
    folders = sorted(path.parent for path in place.glob("*/summary.json"))
    table = HEADER + "".join(map(line, folders))
    (place / "table.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
