"""How well can a policy be chosen without rewards? `python benchmarks/choosing.py STUDY... --out DIR`.

Reads studies (folders with `rows.csv` and `runs.csv`, as `valuedice report` writes them, or folders of runs). It
compares three ways to choose one of a run's evaluated policies: the smallest distance, the smallest `kl_estimate`,
and the last. Runs with fewer than five evaluations are left out. It writes

- `cells.md`: for each task, regime and contestant, the normalised return of the last evaluation, of the kept policy
  on fresh episodes, of the best evaluation, and the mean of all evaluations; all seeds, then their mean;
- `kept.md` and `mean.md`: in short, the means over seeds of the kept policy's return on fresh episodes, and of all
  evaluations;
- `promise.md`: whether runs end worse than the cloned start that they begin with, if any begins so;
- `choosing.csv` and `choosing.md`: the rank correlation of distance and `kl_estimate` with the return over a run's
  evaluations, and the regret of each choice: how far its return is below that of the run's best evaluation;
- `choosing.png`: the regret of every run, by choice.

If no run has enough evaluations, it writes these alone.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from valuedice.report.collect import collect
from valuedice.report.records import Row, Run, contestants_of, groups_of

CHOICES = ("closest", "smallest KL", "last")
EPISODES = 10
"""Episodes of an evaluation."""
FEWEST = 5
"""Evaluations of a run that has a rank correlation."""


def ranks(values: list[float]) -> np.ndarray:
    """Ranks from 0; equal values share their mean rank."""
    array = np.asarray(values)
    return np.array([np.mean(np.flatnonzero(np.sort(array) == value)) for value in array])


def rank_correlation(one: list[float], other: list[float]) -> float | None:
    """Spearman's; None if one of them is constant."""
    a, b = ranks(one), ranks(other)
    return None if a.std() == 0 or b.std() == 0 else float(np.corrcoef(a, b)[0, 1])


def column(run: Run, name: str) -> list[float] | None:
    """A column of a run, from the first row that has it on; None if later rows lack it."""
    values = [getattr(row, name) for row in scored(run)]
    return None if any(value is None for value in values) else [float(value) for value in values]


def scored(run: Run) -> list[Row]:
    """The evaluations that can be compared: those with a return and a distance. The first row of a warm start has
    no `kl_estimate` yet and is left out, so that all choices have the same candidates."""
    rows = [row for row in run.rows if row.normalized_return is not None and row.distance is not None]
    known = [row for row in rows if row.kl_estimate is not None]
    return known or rows


def study(run: Run) -> dict[str, Any] | None:
    """The line of a run; None if it cannot be studied."""
    returns = column(run, "normalized_return")
    if returns is None or len(returns) < FEWEST:
        return None
    distance, kl = column(run, "distance"), column(run, "kl_estimate")
    chosen = {"closest": distance, "smallest KL": kl}
    picks = {name: None if values is None else int(np.argmin(values)) for name, values in chosen.items()}
    picks["last"] = len(returns) - 1
    line: dict[str, Any] = {"run": run.name, "task": run.task, "subsample": run.subsample, "title": run.title}
    line |= {"evaluations": len(returns), "best": max(returns)}
    for name, values in (("distance", distance), ("kl", kl)):
        line[f"correlation of {name}"] = None if values is None else rank_correlation(values, returns)
    for name in CHOICES:
        pick = picks[name]
        line[f"regret, {name}"] = None if pick is None else max(returns) - returns[pick]
    return line


def cells(runs: tuple[Run, ...]) -> str:
    """A Markdown table: every seed, then the mean."""
    titles = contestants_of(runs)
    lines = [
        "| task | transitions | | last | kept, fresh episodes | best evaluation | mean of the evaluations |",
        "|---|---|---|---|---|---|---|",
    ]
    for group, members in sorted(groups_of(runs).items()):
        done = sorted((run for run in members if run.status == "finished"), key=lambda run: run.seed or 0)
        found: dict[str, list[float]] = {"last": [], "kept": [], "best": [], "mean": []}
        for run in done:
            returns = [row.normalized_return for row in run.rows if row.normalized_return is not None]
            found["last"].append(returns[-1])
            found["best"].append(max(returns))
            found["mean"].append(float(np.mean(returns)))
            if run.final.get("normalized_return") is not None:
                found["kept"].append(run.final["normalized_return"])
        every = "all" if group.regime.subsample == 1 else f"1 in {group.regime.subsample}"
        numbers = [shown(values) for values in found.values()]
        lines.append(f"| {group.task} | {every} | {titles[group.contestant]} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def overview(runs: tuple[Run, ...], value: Callable[[Run], float | None]) -> str:
    """A Markdown table of contestants × tasks: means over seeds, and over the tasks."""
    titles, tasks = contestants_of(runs), list(dict.fromkeys(run.task for run in runs))
    found: dict[tuple[int, str], dict[str, float]] = {}
    for group, members in groups_of(runs).items():
        values = [value(run) for run in members if run.status == "finished"]
        known = [each for each in values if each is not None]
        if known:
            found.setdefault((group.regime.subsample, group.contestant), {})[group.task] = float(np.mean(known))
    head = ["transitions", "", *tasks, "mean"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for subsample, name in sorted(found, key=lambda row: (row[0], list(titles).index(row[1]))):
        means = found[subsample, name]
        # The mean of some tasks cannot be compared with that of others.
        whole = f"{np.mean(list(means.values())):.2f}" if len(means) == len(tasks) else ""
        cells = [f"{means[task]:.2f}" if task in means else "" for task in tasks]
        every = "all" if subsample == 1 else f"1 in {subsample}"
        lines.append(f"| {every} | {titles[name]} | {' | '.join(cells)} | {whole} |")
    return "\n".join(lines) + "\n"


def kept(run: Run) -> float | None:
    """The normalised return of the kept policy, on fresh episodes."""
    return run.final.get("normalized_return")


def mean(run: Run) -> float | None:
    """The mean normalised return of all evaluations."""
    returns = [row.normalized_return for row in run.rows if row.normalized_return is not None]
    return float(np.mean(returns)) if returns else None


def promise(runs: tuple[Run, ...]) -> str:
    """A Markdown table: does a run end worse than its cloned start, its first row? Empty if none has such a start.

    A run ends lower if its kept policy's return, on fresh episodes, is below that of the first row by more than two
    standard errors of the difference and a hundredth of the expert's return.
    """
    rows = ["| | runs | mean gain | ends lower | which |", "|---|---|---|---|---|"]
    for contestant, title in contestants_of(runs).items():
        gains: list[float] = []
        lower: list[str] = []
        for run in (run for run in runs if run.contestant == contestant and run.status == "finished"):
            first, end = run.rows[0], kept(run)
            known = (first.return_mean, first.return_std, first.expert_return, first.normalized_return, end)
            if first.step or first.updates or any(value is None for value in known):
                continue
            begin, spread, expert, normalised, ends = (float(value or 0) for value in known)
            gains.append(ends - normalised)
            noise = np.hypot(spread, run.final["return_std"]) / np.sqrt(EPISODES)
            if run.final["return_mean"] < begin - 2 * noise - 0.01 * abs(expert):
                every = "" if run.subsample == 1 else f" 1 in {run.subsample}"
                lower.append(f"{run.task}{every} seed {run.seed}: {gains[-1]:+.2f}")
        if gains:
            cells = [title, str(len(gains)), f"{np.mean(gains):+.2f}", str(len(lower)), "; ".join(lower)]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def shown(values: list[float]) -> str:
    """Each value, then the mean."""
    each = ", ".join(f"{value:.2f}" for value in values)
    return f"{each}: **{np.mean(values):.2f}**" if values else "not measured"


def summary(lines: list[dict[str, Any]]) -> str:
    """A Markdown table over all runs of a contestant."""
    head = ["", "runs", "rank correlation with the return: distance", "`kl_estimate`"]
    head += [f"regret: {name}" for name in CHOICES]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for title in [*dict.fromkeys(line["title"] for line in lines), "all"]:
        some = [line for line in lines if title in (line["title"], "all")]
        cells = [title, str(len(some))]
        cells += [middle(some, f"correlation of {name}") for name in ("distance", "kl")]
        cells += [average(some, f"regret, {name}") for name in CHOICES]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def known(lines: list[dict[str, Any]], name: str) -> list[float]:
    """A column without what was not measured."""
    return [line[name] for line in lines if line[name] is not None]


def middle(lines: list[dict[str, Any]], name: str) -> str:
    """The median, and the quarter and three-quarter points."""
    values = known(lines, name)
    if not values:
        return "none"
    low, mid, high = np.percentile(values, [25, 50, 75])
    return f"{mid:.2f} ({low:.2f} to {high:.2f})"


def average(lines: list[dict[str, Any]], name: str) -> str:
    """The mean and the largest."""
    values = known(lines, name)
    return f"{np.mean(values):.3f} (at most {max(values):.2f})" if values else "none"


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """The sorted regrets of all runs, a curve for each choice."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, colour in zip(CHOICES, ("#1b6ca8", "#d98324", "#8a8a8a"), strict=True):
        values = np.sort(known(lines, f"regret, {name}"))
        if len(values):
            share = np.arange(1, len(values) + 1) / len(values)
            axes.step(values, share, where="post", label=f"{name} ({len(values)} runs)", color=colour, linewidth=2)
    axes.set_xlabel("regret: normalised return below the run's best evaluation")
    axes.set_ylabel("fraction of runs")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Reads, compares, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    runs = collect(options.studies).runs
    lines = [line for run in runs if run.status == "finished" and (line := study(run)) is not None]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "cells.md").write_text(cells(runs))
    (options.out / "kept.md").write_text(overview(runs, kept))
    (options.out / "mean.md").write_text(overview(runs, mean))
    if table := promise(runs):
        (options.out / "promise.md").write_text(table)
    if not lines:
        return
    (options.out / "choosing.md").write_text(summary(lines))
    with (options.out / "choosing.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(lines[0]))
        table.writeheader()
        table.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in line.items()} for line in lines)
    draw(lines, options.out / "choosing.png")


if __name__ == "__main__":
    main()
