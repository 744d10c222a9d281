"""Draws the comparison on the ring: policies learned from a replay that stays as it is, and how far all end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from valuedice.ring_figure import ACCENT, INK, draw_ring

OTHER, PALE, GREY = "#1d4ed8", "#6f9bf0", "#7b8794"
SHOWN = "away from the expert"
"""The replay whose policies are drawn as rings."""
FORMS = {"donsker_varadhan": (ACCENT, "log E eˣ − E x"), "f_divergence": (OTHER, "E eˣ − E x")}
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 9.5, "labelcolor": INK}
FLOOR = 1e-15
"""Below it a KL is rounding, and may be negative."""


def draw(result: dict, expert: np.ndarray, path: Path) -> None:
    """Five rings above four plots, into `path`."""
    figure = Figure(figsize=(18, 8.4), dpi=130)
    FigureCanvasAgg(figure)
    rings = figure.add_gridspec(1, 5, wspace=0.05, left=0.01, right=0.99, bottom=0.515, top=0.935)
    row = result["replay"][SHOWN]
    hindsight, mixed = row["dac_in_hindsight"], row["value_dice"]["0.5"]
    drawn = [
        ("The expert", "to be\nimitated", expert),
        ("Replay, fixed", f"KL {row['kl']:.2f}", row["policy"]),
        ("DAC", f"KL {row['dac']['0.0']['kl']:.2f}", row["dac"]["0.0"]["policy"]),
        ("DAC, entropy bonus best in hindsight", f"KL {hindsight['kl']:.2f}", hindsight["policy"]),
        ("ValueDICE, half of its data replay", f"KL {mixed['kl']:.0e}", mixed["policy"]),
    ]
    for column, (title, note, policy) in enumerate(drawn):
        axes = figure.add_subplot(rings[column])
        axes.set_title(title, color=INK, fontsize=13, pad=6)
        draw_ring(axes, np.asarray(policy))
        axes.text(0, 0, note, ha="center", va="center", fontsize=13, color=INK)
    plots = figure.add_gridspec(1, 4, wspace=0.25, left=0.045, right=0.99, bottom=0.085, top=0.445)
    forms = result["forms"]
    draw_replays(figure.add_subplot(plots[0]), result["replay"])
    draw_refreshed(figure.add_subplot(plots[1]), result["refreshed"])
    draw_forms(figure.add_subplot(plots[2]), forms)
    draw_minibatches(figure.add_subplot(plots[3]), forms["sampled"], forms["exact"]["stochastic"])
    figure.savefig(path)


def draw_replays(axes: Axes, rows: dict) -> None:
    """KL to the expert that each method ends at, by replay."""
    series = [
        ("the replay itself", "s", GREY, -0.3, [row["kl"] for row in rows.values()]),
        ("DAC", "s", OTHER, -0.1, [row["dac"]["0.0"]["kl"] for row in rows.values()]),
        ("DAC, best bonus", "D", PALE, 0.1, [row["dac_in_hindsight"]["kl"] for row in rows.values()]),
    ]
    places = np.arange(len(rows))
    for label, marker, colour, offset, kls in series:
        axes.scatter(places + offset, kls, marker=marker, s=38, color=colour, linewidths=0, label=label)
    for place, row in zip(places, rows.values(), strict=True):
        # Side by side, in the order of α, so that none hides another.
        kls = at_least_floor([learned["kl"] for learned in row["value_dice"].values()])
        label = "ValueDICE, α = " + ", ".join(f"{float(alpha):g}" for alpha in row["value_dice"])
        x = place + np.linspace(-0.3, 0.3, len(kls))
        axes.scatter(x, kls, s=38, color=ACCENT, linewidths=0, label=None if place else label)
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_ylim(FLOOR, 1e2)
    axes.set_xticks(places, ["either way\nalike", "clockwise", "counter-\nclockwise", "away from\nthe expert"])
    finish(axes, "Fixed replay: where each ends", "the replay's policy goes")
    axes.legend(loc="center left", bbox_to_anchor=(0, 0.56), **LEGEND)


def draw_refreshed(axes: Axes, curves: dict) -> None:
    """DAC whose replay follows the policy."""
    series = [
        ("growing, RL solved", "policy_kl", "all rounds, RL solved: policy", GREY, "-"),
        ("growing, RL solved", "replay_kl", "all rounds, RL solved: replay", GREY, "--"),
        ("growing", "policy_kl", "all rounds, small steps: policy", OTHER, "-"),
        ("growing", "replay_kl", "all rounds, small steps: replay", OTHER, "--"),
        ("fresh", "policy_kl", "this round only, small steps: both", ACCENT, "-"),
    ]
    for name, side, label, colour, style in series:
        curve = curves[name]
        axes.plot(curve["round"], at_least_floor(curve[side]), style, color=colour, linewidth=1.7, label=label)
    axes.set_xscale("log")
    axes.set_ylim(FLOOR, 1e2)
    finish(axes, "DAC, replay written by its policy", "rounds of discriminator, then RL")
    axes.legend(loc="lower left", title="what the replay holds", alignment="left", **LEGEND)


def draw_forms(axes: Axes, forms: dict) -> None:
    """Exact tables, from ν = 0 and from another constant."""
    for form, (colour, formula) in FORMS.items():
        exact, shifted = np.asarray(forms["exact"]["stochastic"][form]), np.asarray(forms["level"]["-300.0"][form])
        axes.plot(*exact.T, color=colour, linewidth=1.7, label=f"{formula}, ν from 0")
        # Broad, because one of the two coincides with the line above.
        axes.plot(*shifted.T, color=colour, linewidth=6, alpha=0.3, label=f"{formula}, ν from −300")
    axes.set_ylim(1e-10, 1e3)
    finish(axes, "Forms of the KL: exact tables", "updates")
    axes.legend(loc="upper right", **LEGEND)


def draw_minibatches(axes: Axes, sampled: dict, exact: dict) -> None:
    """Medians over seeds, from the least to the most shaded."""
    for form, (colour, formula) in FORMS.items():
        for batch, style in (("4", "-"), ("64", "--")):
            seeds = np.asarray(sampled[f"stochastic, batch {batch}"][form])
            updates = np.linspace(0, exact[form][-1][0], seeds.shape[1])
            label = f"{formula}, batch {batch}"
            axes.plot(updates, np.median(seeds, axis=0), style, color=colour, linewidth=1.7, label=label)
            axes.fill_between(updates, seeds.min(axis=0), seeds.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(1e-5, 1e2)
    finish(axes, "Forms of the KL: minibatches, 10 seeds", "updates")
    axes.legend(loc="upper right", **LEGEND)


def at_least_floor(kls: list[float]) -> np.ndarray:
    """For a log axis."""
    return np.maximum(kls, FLOOR)


def finish(axes: Axes, title: str, below: str) -> None:
    """What the plots share."""
    axes.set_yscale("log")
    axes.set_title(title, color=INK, fontsize=13, pad=10)
    axes.set_ylabel(r"KL to the expert, $d\,\|\,d^{\mathrm{exp}}$", color=INK)
    axes.set_xlabel(below, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
