"""Redraws the paper's Figure 1: policies on the ring as arrows, and the KL during training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch

INK, QUIET, ACCENT = "#1f2933", "#b8c1cb", "#c2410c"
NODE = 0.135
# Where labels stand: clockwise arrows bend outwards, counter-clockwise ones inwards. Labels are wider than
# high, so they stand further off at the sides.
OUTSIDE, INSIDE, ASIDE = 1.2, 0.67, 0.1


def draw(result: dict, sparse_expert: np.ndarray, path: Path) -> None:
    """Four rings and the KL curve, side by side, into `path`."""
    figure = Figure(figsize=(17, 3.9), dpi=150)
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(1, 5, wspace=0.05, left=0.005, right=0.985, bottom=0.03, top=0.88)
    sparse, stochastic = result["sparse"], result["stochastic"]
    bc_policy = np.asarray(sparse["bc_policy"])
    visited = sparse_expert.sum(axis=1) > 0
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
    # The paper's rule between the sparse and the stochastic expert.
    rule = grid[3].get_position(figure).x0 - 0.004
    figure.add_artist(Line2D((rule, rule), (0.08, 0.95), color=QUIET, linewidth=1))
    left, bottom, width, height = grid[4].get_position(figure).bounds
    curve = figure.add_axes((left + 0.04, bottom + 0.13, width - 0.045, height - 0.18))
    curve.set_title("KL to the stochastic expert", color=INK, fontsize=13, pad=20)
    draw_curve(curve, np.asarray(stochastic["kl"]))
    figure.savefig(path)


def draw_ring(axes: Axes, policy: np.ndarray, known: np.ndarray | None = None) -> None:
    """π(clockwise), π(counter-clockwise) of each state on the arrows that leave it; "?" where not `known`."""
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
            axes.text(
                x + step * ASIDE * x / radius,
                y,
                label(probability) if seen else "?",
                ha="center",
                va="center",
                fontsize=10.5,
                color="#7b8794" if colour == QUIET else colour,
            )
        axes.add_patch(Circle(point(state), NODE, facecolor="white", edgecolor=INK, linewidth=1.3, zorder=3))
        axes.text(*point(state), str(state), ha="center", va="center", fontsize=12, color=INK, zorder=4)


def draw_curve(axes: Axes, kl: np.ndarray) -> None:
    """True KL(dπ ‖ dE) against updates, on a log axis."""
    axes.semilogy(kl[:, 0], kl[:, 1], color=ACCENT, linewidth=1.6, marker="s", markersize=3)
    axes.axhline(1e-3, color=QUIET, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel("updates", color=INK)
    axes.set_ylabel(r"KL$(d^\pi\,\|\,d^{\mathrm{exp}})$", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)


def point(state: float, radius: float = 1.0) -> tuple[float, float]:
    """0 at the top, then clockwise."""
    angle = np.pi / 2 - 2 * np.pi * state / 8
    return float(radius * np.cos(angle)), float(radius * np.sin(angle))


def label(probability: float) -> str:
    """Two digits, and bare 0 and 1 as in the paper."""
    text = f"{probability:.2f}"
    return {"0.00": "0", "1.00": "1"}.get(text, text)
