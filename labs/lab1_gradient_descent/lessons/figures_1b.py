"""Figures of notebook 1b: mini-batches, the noise of their gradients, and update rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from course_lib.notebook.plots.descent_paths import Ground, ground, path  # noqa: F401  (used by the notebook)
from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    WIDTH,
    Figure,
    powers_of_ten,
    style,
    subplots,
)


def batches(
    draw: Callable[[int, int, int], Sequence[np.ndarray]], examples: int, batch_size: int, epochs: int
) -> Figure:
    """Which example is in which mini-batch: a row for each epoch, a square for each example, a colour for each batch.

    Args:
        draw: (examples, batch_size, epoch) → the batches, arrays of the numbers of examples.
    """
    drawn = [draw(examples, batch_size, epoch) for epoch in range(epochs)]
    most = max(map(len, drawn))
    with style():
        figure, (axis,) = subplots(
            height=150 + 34 * epochs,
            caption=f"{examples} examples, batches of {batch_size}; empty: in no batch; ×: in more than one",
        )
        for epoch, parts in enumerate(drawn):
            for number, part in enumerate(parts):
                place = np.asarray(part)
                axis.scatter(place, np.full(len(place), epoch), s=190, marker="s", color=PALETTE[number % 6])
            seen = np.concatenate([np.asarray(part) for part in parts])
            twice = np.flatnonzero(np.bincount(seen, minlength=examples) > 1)
            axis.scatter(twice, np.full(len(twice), epoch), s=60, marker="x", color=INK, zorder=3)
        axis.scatter(
            *np.meshgrid(range(examples), range(epochs)),
            s=190,
            marker="s",
            facecolor="none",
            edgecolor="#b8b8b4",
            lw=0.6,
        )
        axis.set_yticks(range(epochs), [f"epoch {epoch}" for epoch in range(epochs)])
        axis.set_ylim(epochs - 0.4, -0.6)
        axis.set_xlim(-0.8, examples - 0.2)
        axis.set_xlabel("example")
        axis.grid(False)
        figure.subplots_adjust(left=78 / WIDTH)
        handles = [
            Line2D([], [], color=PALETTE[n % 6], marker="s", linestyle="none", markersize=9, label=f"batch {n}")
            for n in range(most)
        ]
        figure.legend(handles=handles, loc="upper left", ncols=min(most, 9), handletextpad=0.3, columnspacing=1.2)
    return figure


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the straight line that fits log values over log sizes best."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def variance(panels: Sequence[Mapping[str, object]], *, caption: str = "") -> Figure:
    """The variance of the mini-batch gradient over the batch size, log-log: measured, σ²/m, and with its correction.

    Args:
        panels: for each population of examples `title`, `population` (N), `sizes` (m), `measured` [seed, size]
            and `one` (σ², the variance of the gradient of one example); with `fit` the slope is shown.
    """
    with style():
        figure, axes = subplots(height=390, columns=len(panels), caption=caption)
        figure.subplots_adjust(wspace=0.22, left=70 / WIDTH)
        for axis, panel in zip(axes, panels):
            population, sizes, one = panel["population"], np.asarray(panel["sizes"]), panel["one"]
            measured = np.atleast_2d(panel["measured"])
            fine = np.geomspace(1, sizes[-1], 300)
            axis.plot(fine, one / fine, color=FAINT, linewidth=1.3, label="σ²/m")
            correction = one / fine * (population - fine) / (population - 1)
            axis.plot(fine, correction, color=PALETTE[1], linewidth=1.3, linestyle="--", label="σ²/m · (N−m)/(N−1)")
            for number, row in enumerate(measured):
                label = f"measured, {len(measured)} seeds" if number == 0 else None
                axis.plot(sizes, row, "o", color=PALETTE[0], markersize=5, alpha=0.6, label=label)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.xaxis.set_major_formatter("{x:,.0f}")
            title = f"{panel['title']}: N = {population:,}"
            if panel.get("fit"):
                slopes = [slope(sizes, row) for row in measured]
                title += f" · slope {np.mean(slopes):.3f}".replace("-", "−")
            axis.set_title(title)
            axis.set_xlabel("batch size m")
            axis.legend(loc="lower left")
        axes[0].set_ylabel("variance of the gradient, E‖g − ∇L‖²")
    return figure


def epochs(losses: Mapping[int, Sequence[float]], *, eta: float, caption: str = "") -> Figure:
    """The loss after each epoch of SGD, a line for each batch size.

    Args:
        losses: batch size → the loss before the first epoch and after each.
    """
    with style():
        figure, (axis,) = subplots(height=340, caption=caption)
        figure.subplots_adjust(left=64 / WIDTH)
        for number, (size, values) in enumerate(losses.items()):
            axis.plot(values, color=PALETTE[number % 7], marker=MARKERS[number % 7], label=f"m = {size:,}")
        axis.set_title(f"Loss after each epoch, the same η = {eta:g} for all")
        axis.set_xlabel("epoch")
        axis.set_ylabel("training loss")
        axis.locator_params(axis="x", integer=True)
        figure.legend(*axis.get_legend_handles_labels(), loc="upper left", ncols=len(losses))
    return figure


def ball(
    scene: Ground,
    walked: np.ndarray,
    minimum: np.ndarray,
    squared_radius: float,
    *,
    title: str = "",
    caption: str = "",
) -> Figure:
    """SGD around the minimum: its path, and its squared distance from the minimum.

    Args:
        scene: see `ground`.
        walked: weights [steps + 1, 2].
        minimum: where the loss of all examples is lowest, [2].
        squared_radius: the mean squared distance that theory expects of a constant η.
    """
    distance = np.sum((walked - minimum) ** 2, axis=1)
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.24, left=64 / WIDTH)
        scene.draw(left)
        # The whole path is a blot, and slow to draw: all of the first steps, then every k-th.
        shown = np.unique(
            np.append(np.arange(min(50, len(walked))), np.arange(0, len(walked), max(1, len(walked) // 400)))
        )
        left.plot(*walked[shown].T, color=PALETTE[0], linewidth=0.7)
        left.add_patch(
            Circle(minimum, squared_radius**0.5, facecolor="none", edgecolor=PALETTE[1], linewidth=2, zorder=3)
        )
        left.plot(*minimum, "+", color=INK, markersize=10, markeredgewidth=1.5)
        left.plot(*walked[0], "o", color=PALETTE[0], markersize=7)
        left.set_xlabel("w")
        left.set_ylabel("b", labelpad=0)
        left.set_title(title)
        right.plot(shown, distance[shown], color=PALETTE[0], linewidth=0.8)
        right.axhline(squared_radius, color=PALETTE[1], linewidth=2)
        right.annotate(
            "s² η/m",
            (len(walked), squared_radius),
            (0, 12),
            textcoords="offset points",
            color=PALETTE[1],
            ha="right",
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5},
        )
        powers_of_ten(right)
        right.locator_params(axis="x", nbins=4)
        right.set_ylim(1e-7, 20)
        right.set_xlabel("steps")
        right.set_title("squared distance from the minimum")
    return figure


def ball_sizes(table: pd.DataFrame, line: float, *, caption: str = "") -> Figure:
    """How far SGD stays from the minimum, over η/m, log-log.

    Args:
        table: one row for each run: eta, batch_size, squared_distance (mean over the second half of the run).
        line: theory's squared distance for η/m = 1.
    """
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        figure.subplots_adjust(left=70 / WIDTH)
        ratio = table["eta"] / table["batch_size"]
        ends = np.array([ratio.min(), ratio.max()])
        axis.plot(ends, line * ends, color=FAINT, linewidth=1.3, label="s² η/m")
        for number, (size, rows) in enumerate(table.groupby("batch_size")):
            look = {"color": PALETTE[number % 7], "marker": MARKERS[number % 7], "linestyle": "none"}
            axis.plot(rows["eta"] / size, rows["squared_distance"], label=f"m = {size}", **look)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("η/m")
        axis.set_ylabel("mean squared distance")
        axis.set_title("The ball that constant η settles in")
        axis.legend(loc="upper left")
    return figure
