"""`table.csv` and `table.md`: the numbers of a report, ready to be pasted."""

from __future__ import annotations

from collections.abc import Sequence

from valuedice.report.collect import Collection
from valuedice.report.compact import csv_text
from valuedice.report.records import STATUSES, Regime, Run, contestants_of, regimes_of
from valuedice.report.statistics import (
    LEVEL,
    RESAMPLES,
    Aggregate,
    Estimate,
    GroupStatistics,
    Improvement,
    aggregates,
    group_statistics,
    improvements,
)

COLUMNS = (
    *("task", "contestant", "title", "episodes", "subsample", "runs", "return_mean", "return_std", "return_late"),
    *("expert_return", "normalized_mean", "normalized_std", "normalized_late", "kl_estimate", "distance"),
)
NOTE = f"""\
Each number stands on finished runs at their last evaluation, never at their best one; ± is the standard
deviation over seeds, "late" the mean over the last quarter of the evaluations. Normalised: 0 is a random policy,
1 the expert. Brackets hold {LEVEL:g} % intervals of a bootstrap over seeds, stratified by task ({RESAMPLES:,}
resamples). A task with one run adds nothing to their width."""


def table_csv(runs: Sequence[Run]) -> str:
    """A line for each group."""
    titles = contestants_of(runs)
    lines: list[Sequence[object]] = [COLUMNS]
    for s in group_statistics(runs):
        labels = [s.group.task, s.group.contestant, titles[s.group.contestant], *s.group.regime, s.runs]
        numbers = [s.mean, s.std, s.late, s.expert, s.normalized_mean, s.normalized_std, s.normalized_late]
        lines.append([*labels, *numbers, s.kl_estimate, s.distance])
    return csv_text(lines)


def table_md(collection: Collection, title: str, command: str) -> str:
    """All tables in Markdown."""
    runs = collection.runs
    titles = contestants_of(runs)
    parts = [f"# {escaped(title)}", f"{counts(runs)}. {NOTE}"]
    parts += [f"Note: {escaped(note)}." for note in collection.notes]
    parts += ["## Tasks", *task_tables(group_statistics(runs), titles)]
    found = aggregates(runs)
    if found:
        parts += ["## Normalised return over tasks", aggregate_table(found, titles)]
    pairs = improvements(runs)
    if pairs:
        text = "How likely a run of the row is better than one of the column, on the tasks that both have."
        parts += ["## Probability of improvement", text, *improvement_tables(pairs, titles)]
    for ring in collection.rings:
        if ring.table:
            parts += [f"## {escaped(ring.name)}: KL at the end", markdown(ring.table)]
    parts += problem_lists(runs)
    parts.append(f"Made by: `{command}`")
    return "\n\n".join(parts) + "\n"


def counts(runs: Sequence[Run]) -> str:
    """How many runs of which status."""
    numbers = {status: sum(run.status == status for run in runs) for status in STATUSES}
    text = ", ".join(f"{number} {status}" for status, number in numbers.items() if number)
    return f"{len(runs)} run{'s' if len(runs) != 1 else ''}: {text}"


def task_tables(found: Sequence[GroupStatistics], titles: dict[str, str]) -> list[str]:
    """A table for each regime: a line for each task and contestant."""
    tables: list[str] = []
    if not found:
        tables.append("No run is finished yet.")
    for regime in dict.fromkeys(s.group.regime for s in found):
        lines = [("task", "contestant", "seeds", "return", "late", "expert", "normalised", "late, normalised")]
        for s in found:
            if s.group.regime == regime:
                labels = (escaped(s.group.task), escaped(titles[s.group.contestant]), str(s.runs))
                returns = (spread(s.mean, s.std, 0), number(s.late, 0), number(s.expert, 0))
                lines.append(
                    (
                        *labels,
                        *returns,
                        spread(s.normalized_mean, s.normalized_std, 2),
                        number(s.normalized_late, 2),
                    )
                )
        tables += [f"### {regime_title(regime)}", markdown(lines)]
    return tables


def aggregate_table(found: Sequence[Aggregate], titles: dict[str, str]) -> str:
    """A line for each regime and contestant."""
    lines = [("demonstrations", "contestant", "IQM", "mean", "tasks", "runs")]
    for a in found:
        numbers = (bracketed(a.iqm), bracketed(a.mean), tasks_of(a), str(a.runs))
        lines.append((a.regime.title, escaped(titles[a.contestant]), *numbers))
    return markdown(lines)


def tasks_of(aggregate: Aggregate) -> str:
    """On how many tasks a number stands. Numbers on different tasks do not compare."""
    every = aggregate.tasks == aggregate.of_tasks
    return str(aggregate.tasks) if every else f"{aggregate.tasks} of {aggregate.of_tasks}"


def improvement_tables(pairs: Sequence[Improvement], titles: dict[str, str]) -> list[str]:
    """A matrix for each regime. Each number says what it stands on, unless all stand on the same."""
    tables: list[str] = []
    for regime in dict.fromkeys(pair.regime for pair in pairs):
        here = {(pair.contestant, pair.other): pair for pair in pairs if pair.regime == regime}
        same = len({basis(pair) for pair in here.values()}) == 1
        cells = {key: bracketed(p.probability) + ("" if same else f"; {basis(p)}") for key, p in here.items()}
        names = [name for name in titles if any(name in key for key in cells)]
        lines = [("", *(escaped(titles[name]) for name in names))]
        lines += [(escaped(titles[row]), *(cells.get((row, name), "") for name in names)) for row in names]
        stands = [f"Each number stands on {basis(next(iter(here.values())))}."] if same else []
        tables += [f"### {regime_title(regime)}", *stands, markdown(lines)]
    return tables


def basis(pair: Improvement) -> str:
    """How many tasks and runs a comparison stands on."""
    tasks = f"{pair.tasks} task{'s' if pair.tasks != 1 else ''}"
    return f"{tasks}, {pair.runs} against {pair.other_runs} runs"


def problem_lists(runs: Sequence[Run]) -> list[str]:
    """The runs that are in no table, by status."""
    parts: list[str] = []
    for status in STATUSES:
        members = [run for run in runs if run.status == status]
        if status != "finished" and members:
            lines = [
                f"- {escaped(run.name)}{': ' if progress(run) else ''}{escaped(progress(run))}" for run in members
            ]
            parts += [f"## {status.capitalize()} runs", "\n".join(lines)]
    return parts


def progress(run: Run) -> str:
    """How far a run has come, and its error."""
    last = run.rows[-1] if run.rows else None
    place = "" if last is None else f"at {last.step:,} steps" if last.step else f"at {last.updates:,} updates"
    return "; ".join(part for part in (place, run.error) if part)


def short_summary(runs: Sequence[Run]) -> list[str]:
    """The lines that the command prints."""
    titles = contestants_of(runs)
    several = len(regimes_of(runs)) > 1
    lines = [("normalised return", "IQM", "mean", "tasks", "runs")]
    for a in aggregates(runs):
        name = titles[a.contestant] + (f" ({a.regime.title})" if several else "")
        lines.append((name, bracketed(a.iqm), bracketed(a.mean), tasks_of(a), str(a.runs)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return [counts(runs), *(table if len(table) > 1 else [])]


def regime_title(regime: Regime) -> str:
    """A regime as a heading."""
    return regime.title[0].upper() + regime.title[1:]


def number(value: float | None, digits: int) -> str:
    """A number, or a dash if there is none."""
    return "–" if value is None else f"{value:,.{digits}f}".replace("-", "−")


def spread(mean: float | None, std: float | None, digits: int) -> str:
    """Mean and standard deviation."""
    return number(mean, digits) if std is None else f"{number(mean, digits)} ± {number(std, digits)}"


def bracketed(estimate: Estimate) -> str:
    """A number with its interval."""
    if estimate.low is None:
        return number(estimate.value, 2)
    return f"{number(estimate.value, 2)} [{number(estimate.low, 2)}, {number(estimate.high, 2)}]"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, also in a table."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in " ".join(text.split()))


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table; the first line is its head."""
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body])
