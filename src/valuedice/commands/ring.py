"""`valuedice ring`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from valuedice.commands import parse, say


@dataclass(frozen=True)
class RingOptions:
    """The paper's Ring MDP, exactly: both experts, and ValueDICE beside DAC and the f-divergence form."""

    out: Path = Path("runs/ring")
    """Folder for ring.json, comparison.json and their figures."""


def ring_command(args: list[str]) -> int:
    """`valuedice ring`."""
    options = parse(RingOptions, "ring", args)
    from valuedice.ring.mdp import SPARSE_ACTIONS, run_ring

    result = run_ring(options.out)
    least = min(row[action] for row, action in zip(result["sparse"]["policy"], SPARSE_ACTIONS, strict=True))
    say(f"sparse expert: least probability of the paper's action over all 8 states: {least:.3f}")
    updates, kl = result["stochastic"]["kl"][-1]
    say(f"stochastic expert: KL {kl:.2g} after {updates} updates")
    say(f"figure: {options.out / 'ring.png'}, numbers: {options.out / 'ring.json'}")
    from valuedice.ring.comparison import run_comparison

    compared = run_comparison(options.out)
    for line in [*replay_table(compared["replay"]), "", *form_table(compared["forms"])]:
        say(line)
    say(f"figure: {options.out / 'comparison.png'}, numbers: {options.out / 'comparison.json'}")
    return 0


def replay_table(rows: dict[str, Any]) -> list[str]:
    """KL(dπ ‖ dE) that each method ends at."""
    first = next(iter(rows.values()))
    head = ["replay, fixed", "of itself", *(f"DAC τ={t}" for t in first["dac"]), "DAC best τ"]
    lines = [[*head, *(f"ValueDICE α={alpha}" for alpha in first["value_dice"])]]
    for name, row in rows.items():
        methods = [*row["dac"].values(), row["dac_in_hindsight"], *row["value_dice"].values()]
        lines.append([name, *(f"{kl:.2g}" for kl in (row["kl"], *(method["kl"] for method in methods)))])
    return aligned(lines)


def form_table(forms: dict[str, Any]) -> list[str]:
    """The divergence at the end, by form; of minibatches the median, least and most over seeds."""
    lines = [["KL at the end", "log E e^x - E x", "E e^x - E x"]]
    for name, pair in forms["exact"].items():
        lines.append([f"{name}, exact", *(f"{curve[-1][1]:.2g}" for curve in pair.values())])
    for level, pair in forms["level"].items():
        lines.append([f"stochastic, ν from {level}", *(f"{curve[-1][1]:.2g}" for curve in pair.values())])
    for name, pair in forms["sampled"].items():
        ends = [[path[-1] for path in paths] for paths in pair.values()]
        lines.append([name, *(f"{median(end):.2g} ({min(end):.2g}-{max(end):.2g})" for end in ends)])
    return aligned(lines)


def aligned(lines: list[list[str]]) -> list[str]:
    """Columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
