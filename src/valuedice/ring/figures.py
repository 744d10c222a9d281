"""Draws the figures of the Ring MDP from plain numbers, as PNG files in memory."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from valuedice.ring.comparison import Comparison, ReplayRow
    from valuedice.ring.mdp import RingResult, Rows, Table

INK, QUIET, GREY = "#1f2933", "#b8c1cb", "#7b8794"
ACCENT, OTHER, PALE = "#c2410c", "#1d4ed8", "#6f9bf0"
NODE = 0.135
# Radii of the labels: clockwise arrows bend outwards, counter-clockwise ones inwards. Labels are wider than high,
# so those at the sides stand further away.
OUTSIDE, INSIDE, ASIDE = 1.2, 0.67, 0.1
SHOWN = "away from the expert"
"""The fixed replay whose policies are drawn as rings."""
FORMS = {"donsker_varadhan": (ACCENT, "log E eˣ − E x"), "f_divergence": (OTHER, "E eˣ − E x")}
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 9.5, "labelcolor": INK}
FLOOR = 1e-15
"""A smaller KL is rounding error, and may be negative."""


def draw_ring_study(result: RingResult, visited: NDArray[np.bool_]) -> bytes:
    """The paper's Figure 1: four rings and the KL curve. The sparse expert is known in the `visited` states."""
    figure = Figure(figsize=(17, 3.9), dpi=150)
    grid = figure.add_gridspec(1, 5, wspace=0.05, left=0.005, right=0.985, bottom=0.03, top=0.88)
    sparse, stochastic = result["sparse"], result["stochastic"]
    bc_policy = np.asarray(sparse["bc_policy"])
    rings = [
        ("Sparse expert", bc_policy, visited),
        ("Behavioural cloning", bc_policy, None),
        ("ValueDICE policy", np.asarray(sparse["policy"]), None),
        ("Stochastic expert", np.asarray(stochastic["expert"]), None),
    ]
    for column, (title, policy, known) in enumerate(rings):
        axes = figure.add_subplot(grid[column])
        axes.set_title(title, color=INK, fontsize=13, pad=10)
        draw_ring(axes, policy, known)
    # The paper draws a line between the sparse and the stochastic expert.
    rule = grid[3].get_position(figure).x0 - 0.004
    figure.add_artist(Line2D((rule, rule), (0.08, 0.95), color=QUIET, linewidth=1))
    left, bottom, width, height = grid[4].get_position(figure).bounds
    curve = figure.add_axes((left + 0.04, bottom + 0.13, width - 0.045, height - 0.18))
    curve.set_title("KL to the stochastic expert", color=INK, fontsize=13, pad=20)
    draw_curve(curve, np.asarray(stochastic["kl"]))
    return as_png(figure)


def draw_ring(axes: Axes, policy: Table, known: NDArray[np.bool_] | None = None) -> None:
    """A policy as arrows labelled with probabilities; "?" in states that are not `known`."""
    axes.set_xlim(-1.4, 1.4)
    axes.set_ylim(-1.4, 1.4)
    axes.set_aspect("equal")
    axes.axis("off")
    for state in range(8):
        seen = known is None or bool(known[state])
        for action, (step, radius) in enumerate(((1, OUTSIDE), (-1, INSIDE))):
            probability = float(policy[state, action])
            strength = probability if seen else 0.0
            colour = ACCENT if strength > 0.6 else INK if strength > 0.1 else QUIET
            arrow = FancyArrowPatch(
                point(state),
                point(state + step),
                connectionstyle="arc3,rad=-0.38",
                arrowstyle="-|>",
                mutation_scale=11,
                shrinkA=11,
                shrinkB=11,
                linewidth=0.9 + 1.1 * strength,
                linestyle="-" if seen else (0, (3, 2)),
                color=colour,
            )
            axes.add_patch(arrow)
            x, y = point(state + step / 2, radius)
            text = label(probability) if seen else "?"
            tint = GREY if colour == QUIET else colour
            axes.text(x + step * ASIDE * x / radius, y, text, fontsize=10.5, color=tint, **CENTRED)
        axes.add_patch(Circle(point(state), NODE, facecolor="white", edgecolor=INK, linewidth=1.3, zorder=3))
        axes.text(*point(state), str(state), fontsize=12, color=INK, zorder=4, **CENTRED)


def draw_curve(axes: Axes, kl: Table) -> None:
    """KL(dπ ‖ dE) against the number of updates, on a log axis."""
    axes.semilogy(kl[:, 0], kl[:, 1], color=ACCENT, linewidth=1.6, marker="s", markersize=3)
    axes.axhline(1e-3, color=QUIET, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel("updates", color=INK)
    axes.set_ylabel(r"KL$(d^\pi\,\|\,d^{\mathrm{exp}})$", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)


def point(state: float, radius: float = 1.0) -> tuple[float, float]:
    """Where a state is drawn: 0 at the top, the others clockwise."""
    angle = np.pi / 2 - 2 * np.pi * state / 8
    return float(radius * np.cos(angle)), float(radius * np.sin(angle))


def label(probability: float) -> str:
    """Two decimals, but plain 0 and 1 as in the paper."""
    text = f"{probability:.2f}"
    return {"0.00": "0", "1.00": "1"}.get(text, text)


def draw_comparison(result: Comparison, expert: Table) -> bytes:
    """Five policies as rings, above four plots."""
    figure = Figure(figsize=(18, 8.4), dpi=130)
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
        axes.text(0, 0, note, fontsize=13, color=INK, **CENTRED)
    plots = figure.add_gridspec(1, 4, wspace=0.25, left=0.045, right=0.99, bottom=0.085, top=0.445)
    forms = result["forms"]
    draw_replays(figure.add_subplot(plots[0]), result["replay"])
    draw_refreshed(figure.add_subplot(plots[1]), result["refreshed"])
    draw_forms(figure.add_subplot(plots[2]), forms)
    draw_minibatches(figure.add_subplot(plots[3]), forms["sampled"], forms["exact"]["stochastic"])
    return as_png(figure)


def draw_replays(axes: Axes, rows: dict[str, ReplayRow]) -> None:
    """Final KL of each method, for each fixed replay."""
    series = [
        ("the replay itself", "s", GREY, -0.3, [row["kl"] for row in rows.values()]),
        ("DAC", "s", OTHER, -0.1, [row["dac"]["0.0"]["kl"] for row in rows.values()]),
        ("DAC, best bonus", "D", PALE, 0.1, [row["dac_in_hindsight"]["kl"] for row in rows.values()]),
    ]
    places = np.arange(len(rows))
    for label, marker, colour, offset, kls in series:
        axes.scatter(places + offset, kls, marker=marker, s=38, color=colour, linewidths=0, label=label)
    for place, row in zip(places, rows.values(), strict=True):
        # Side by side in the order of α, so that no point hides another.
        kls = at_least_floor([learned["kl"] for learned in row["value_dice"].values()])
        label = "ValueDICE, α = " + ", ".join(f"{float(alpha):g}" for alpha in row["value_dice"])
        x = place + np.linspace(-0.3, 0.3, len(kls))
        axes.scatter(x, kls, s=38, color=ACCENT, linewidths=0, label=None if place else label)
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_ylim(FLOOR, 1e2)
    axes.set_xticks(places, ["either way\nalike", "clockwise", "counter-\nclockwise", "away from\nthe expert"])
    finish(axes, "Fixed replay: where each ends", "the replay's policy goes")
    axes.legend(loc="center left", bbox_to_anchor=(0, 0.56), **LEGEND)


def draw_refreshed(axes: Axes, curves: dict[str, dict[str, list[float]]]) -> None:
    """DAC with a replay written by its own policies."""
    series = [
        ("growing, RL solved", "policy_kl", "all rounds, RL solved: policy", GREY, "-"),
        ("growing, RL solved", "replay_kl", "all rounds, RL solved: replay", GREY, "--"),
        ("growing", "policy_kl", "all rounds, small steps: policy", OTHER, "-"),
        ("growing", "replay_kl", "all rounds, small steps: replay", OTHER, "--"),
        ("fresh", "policy_kl", "this round only, small steps: both", ACCENT, "-"),
    ]
    for name, side, label, colour, style in series:
        kls = at_least_floor(curves[name][side])
        axes.plot(curves[name]["round"], kls, style, color=colour, linewidth=1.7, label=label)
    axes.set_xscale("log")
    axes.set_ylim(FLOOR, 1e2)
    finish(axes, "DAC, replay written by its policy", "rounds of discriminator, then RL")
    axes.legend(loc="lower left", title="what the replay holds", alignment="left", **LEGEND)


def draw_forms(axes: Axes, forms: dict[str, dict[str, dict[str, Rows]]]) -> None:
    """Training on exact tables, with ν starting at 0 and at another constant."""
    for form, (colour, formula) in FORMS.items():
        exact, shifted = np.asarray(forms["exact"]["stochastic"][form]), np.asarray(forms["level"]["-300.0"][form])
        axes.plot(*exact.T, color=colour, linewidth=1.7, label=f"{formula}, ν from 0")
        # Wide, because one of these lines coincides with the line above.
        axes.plot(*shifted.T, color=colour, linewidth=6, alpha=0.3, label=f"{formula}, ν from −300")
    axes.set_ylim(1e-10, 1e3)
    finish(axes, "Forms of the KL: exact tables", "updates")
    axes.legend(loc="upper right", **LEGEND)


def draw_minibatches(axes: Axes, sampled: dict[str, dict[str, Rows]], exact: dict[str, Rows]) -> None:
    """Training on minibatches: the median over seeds, and the range shaded."""
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


def at_least_floor(kls: list[float]) -> Table:
    """Clips the KLs for a log axis."""
    return np.maximum(kls, FLOOR)


def finish(axes: Axes, title: str, below: str) -> None:
    """Sets the log scale, titles and colours that the four plots share."""
    axes.set_yscale("log")
    axes.set_title(title, color=INK, fontsize=13, pad=10)
    axes.set_ylabel(r"KL to the expert, $d\,\|\,d^{\mathrm{exp}}$", color=INK)
    axes.set_xlabel(below, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)


def as_png(figure: Figure) -> bytes:
    """The figure as the content of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
