"""Figures: what they show, as matplotlib holds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from run_folders import finished_run

from valuedice.report.curves import panels_of
from valuedice.report.figures import draw_aggregates, draw_curves, figures
from valuedice.report.palette import COLOURS, looks_of
from valuedice.report.records import Row, Run, contestants_of
from valuedice.report.statistics import aggregates

CLONING = Run("b", "A", "bc", "BC", "bc", episodes=1, rows=(Row(0, 10, return_mean=40.0),))
RUNS = [*(finished_run("A", "dac", seed, 0.2, score) for seed, score in enumerate((0.4, 0.8))), CLONING]


def drawn(runs: list[Run], metric: Any = "return_mean") -> Figure:
    titles = contestants_of(runs)
    figure = draw_curves(panels_of(runs), metric, titles, looks_of(titles))
    assert figure is not None
    return figure


def lines(figure: Figure, panel: int = 0) -> dict[str, tuple[list[float], list[float]]]:
    """Points of the lines of a panel by colour."""
    found = figure.axes[panel].lines
    return {
        str(line.get_color()): (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist())
        for line in found
    }


def test_means_levels_and_the_expert_are_drawn():
    figure = drawn(RUNS)
    dac, bc = (COLOURS[place][0] for place in (0, 1))
    found = lines(figure)
    np.testing.assert_allclose(found[dac], ([1000, 2000], [20, 60]))
    assert found[bc] == ([0, 1], [40, 40])
    assert found["#1f2933"] == ([0, 1], [100, 100])
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["dac", "BC", "expert"]
    assert figure.axes[0].get_xlabel() == "environment steps"


def test_half_a_standard_deviation_is_shaded():
    band = drawn(RUNS).axes[0].collections[0].get_paths()[0].vertices
    # The two runs end at 40 and 80: their deviation is 20√2.
    assert np.asarray(band)[:, 1].max() == pytest.approx(60 + 10 * 2**0.5)


def test_normalised_returns_have_the_expert_at_one():
    assert lines(drawn(RUNS, "normalized_return"))["#1f2933"] == ([0, 1], [1, 1])


def test_each_task_and_amount_of_data_has_a_panel():
    runs = [finished_run(task, "c", 0, 0.5, episodes=episodes) for task in "AB" for episodes in (1, 10)]
    titles = [axes.get_title() for axes in drawn(runs).axes]
    assert titles == ["A\n1 episode", "B\n1 episode", "A\n10 episodes", "B\n10 episodes"]


def test_a_panel_of_runs_under_way_says_so():
    runs = [finished_run("A", "c", 0, 0.5, status="unfinished"), finished_run("B", "c", 0, 0.5)]
    assert [axes.get_title() for axes in drawn(runs).axes] == ["A (under way)", "B"]


def test_intervals_are_drawn_around_their_numbers():
    titles = contestants_of(RUNS)
    figure = draw_aggregates(aggregates(RUNS), titles, looks_of(titles))
    assert figure is not None
    bar: Any = figure.axes[0].patches[0]
    assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx((0.4, 0.8))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["dac"]


def test_twelve_contestants_look_different():
    looks = looks_of(f"c{place}" for place in range(12)).values()
    assert len({look.light for look in looks}) == len({look.dark for look in looks}) == 12
    assert len(set(looks_of(map(str, range(30))).values())) == 30


def test_equal_runs_make_equal_files():
    first, second = (figures(RUNS, ["png", "pdf"], normalized=False) for _ in range(2))
    assert list(first) == ["curves.png", "curves.pdf", "aggregate.png", "aggregate.pdf"]
    assert first == second
    assert first["curves.png"].startswith(b"\x89PNG")
    assert first["curves.pdf"].startswith(b"%PDF")


def test_further_metrics_have_figures_of_their_own_and_nothing_has_none():
    rows = tuple(Row(step, step, kl_estimate=10.0**-step, distance=1.0) for step in range(1, 9))
    run = Run("r", "A", "c", rows=rows)
    assert list(figures([run], ["png"], normalized=False)) == ["kl.png", "distance.png"]
    assert drawn([run], "kl_estimate").axes[0].get_yscale() == "log"
    assert drawn([run], "distance").axes[0].get_yscale() == "linear"
    assert figures([], ["png"], normalized=False) == {}


def test_names_that_matplotlib_would_interpret_are_drawn():
    # Neither broken mathematics nor a label that is hidden, which would be a warning.
    run = finished_run("$A^{$", "_c$\\frac$", 0, 0.5)
    assert set(figures([run], ["png"], normalized=True)) == {"curves.png", "aggregate.png"}
