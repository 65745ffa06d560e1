"""Figures of notebook 3a: updates to a target and the noise scale by batch size, and the generalisation gap.

Recorded runs are drawn as dots, lines go through their medians.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, PAPER, WIDTH, Figure, style, subplots
from labs.lab3_large_batch.lessons import critical_batch
from labs.lab3_large_batch.lessons.gradient_noise import noise_scale
from labs.lab3_large_batch.lessons.log_axes import batch_ticks, log_ticks, ticks_at

Fit = Callable[[Sequence[float], Sequence[float]], "tuple[float, float]"]

RUNS = {"color": PALETTE[0], "marker": "o", "linestyle": "", "alpha": 0.45, "markersize": 5, "markeredgewidth": 0}
OWN = {"color": PALETTE[1], "marker": "*", "linestyle": "", "markersize": 13, "markeredgecolor": PAPER, "zorder": 5}


def noise_scales(squares: pd.DataFrame) -> pd.DataFrame:
    """The noise scale of each row as a column `noise scale`; missing where the noise hides the gradient.

    Args:
        squares: with two columns `|g|² of m`: the mean squared norm of gradients of m examples, for a small and a
            large m.
    """
    columns = [name for name in squares if name.startswith("|g|² of ")]
    sizes = [int(name.split()[-1]) for name in columns]

    def of(row: pd.Series) -> float:
        try:
            return noise_scale([row[name] for name in columns], sizes)
        except ValueError:
            return float("nan")

    return squares.assign(**{"noise scale": squares.apply(of, axis=1)})


def to_target(runs: pd.DataFrame, own: pd.DataFrame | None = None, *, target: float, caption: str = "") -> Figure:
    """Updates and images to a target by batch size.

    Args:
        runs: one row for each run: batch, updates (missing where it did not arrive).
        own: the reader's runs, drawn as stars, with the same columns.
        target: the accuracy.
        caption: see `provenance`.
    """
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.2, left=62 / WIDTH)
        _draw_updates(left, runs, target)
        images = runs.assign(updates=runs["updates"] * runs["batch"] / 1000)
        medians = images.groupby("batch")["updates"].median()
        right.plot(images["batch"], images["updates"], **RUNS)
        right.plot(medians.index, medians, color=PALETTE[0], marker="o", markersize=4)
        right.set_ylim(0, 1.15 * images["updates"].max())
        right.yaxis.set_major_formatter("{x:,.0f}")
        right.set_title("thousands of images that this takes")
        batch_ticks(right, runs["batch"])
        if own is not None:
            left.plot(own["batch"], own["updates"], label="your run", **OWN)
            right.plot(own["batch"], own["updates"] * own["batch"] / 1000, **OWN)
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure


def scales(squares: pd.DataFrame, own: pd.DataFrame | None = None, *, caption: str = "") -> Figure:
    """The gradient noise scale on the way to the target.

    Args:
        squares: one row for each place: batch (that trained), part (of the way to the target), and see `noise_scales`.
        own: what the reader measured, drawn as stars: part, noise scale.
        caption: see `provenance`.
    """
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        _draw_scales(axis, squares)
        if own is not None:
            axis.plot(own["part"], own["noise scale"], label="yours", **OWN)
        figure.legend(*axis.get_legend_handles_labels(), loc="upper left", ncols=4)
    return figure


def bend(
    runs: pd.DataFrame, squares: pd.DataFrame, *, target: float, fit: Fit = critical_batch.fit, caption: str = ""
) -> Figure:
    """Updates to a target by batch size, with perfect scaling, floor and bend; beside it the noise scale on the way.

    Args:
        runs: see `to_target`.
        squares: see `scales`.
        target: the accuracy.
        fit: (batches, medians of the updates) → floor and bend, as `critical_batch.fit`.
        caption: see `provenance`.
    """
    medians = runs.groupby("batch")["updates"].median().dropna()
    floor, critical = fit(medians.index.to_numpy(float), medians.to_numpy(float))
    with style():
        figure, (left, right) = subplots(height=420, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.2, left=62 / WIDTH)
        _draw_updates(left, runs, target)
        sizes = np.geomspace(medians.index.min(), medians.index.max(), 60)
        fitted = critical_batch.updates(sizes, floor, critical)
        left.plot(sizes, fitted, color=PALETTE[1], linewidth=1.5, label="fit: floor · (1 + bend / B)")
        left.axhline(floor, color=FAINT, linestyle=":", linewidth=1.2)
        left.text(sizes[0], floor * 0.92, f"floor {floor:.0f}", color=FAINT, fontsize=9, va="top")
        left.axvline(critical, color=PALETTE[1], linestyle=":", linewidth=1.4)
        left.text(
            critical * 1.12, left.get_ylim()[1] * 0.9, f"bend {critical:.0f}", color=PALETTE[1], fontsize=9.5, va="top"
        )
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
        _draw_scales(right, squares)
        right.axhline(critical, color=PALETTE[1], linestyle=":", linewidth=1.4)
        right.text(0, critical * 1.06, "bend", color=PALETTE[1], fontsize=9.5)
        right.legend(loc="upper left", fontsize=9)
    return figure


def gap(runs: pd.DataFrame, *, caption: str = "") -> Figure:
    """Test accuracy by epochs, and by the loss on training images: a dot for each run, lines through the medians.

    Args:
        runs: columns method ("naive" or another word), batch, epochs, updates, training loss, test accuracy. Naive
            runs are crosses.
        caption: see `provenance`.
    """
    naive = runs[runs["method"] == "naive"]
    tuned = runs[runs["method"] != "naive"]
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        for number, (batch, rows) in enumerate(tuned.groupby("batch")):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            medians = rows.groupby("epochs")[["test accuracy", "updates"]].median()
            left.plot(medians.index, 100 * medians["test accuracy"], color=PALETTE[number])
            left.plot(rows["epochs"], 100 * rows["test accuracy"], **look, linestyle="", alpha=0.6, mew=0)
            right.plot(
                rows["training loss"], 100 * rows["test accuracy"], **look, linestyle="", alpha=0.7, mew=0,
                label=f"B = {batch:,}",
            )  # fmt: skip
            for epochs, row in medians.iterrows():
                left.annotate(
                    f"{row['updates']:,.0f} updates", (epochs, 100 * row["test accuracy"]),
                    xytext=(0, 12) if number == 0 else (10, -14), textcoords="offset points",
                    ha="center" if number == 0 else "left",
                    color=PALETTE[number], fontsize=9,
                )  # fmt: skip
        cross = {"color": INK, "marker": "x", "linestyle": "", "markersize": 6}
        left.plot(naive["epochs"], 100 * naive["test accuracy"], **cross)
        if len(naive):
            right.plot(
                naive["training loss"], 100 * naive["test accuracy"], **cross,
                label=f"B = {naive['batch'].iloc[0]:,} with the small batch's η",
            )  # fmt: skip
        ticks = sorted(runs["epochs"].unique())
        ticks_at(left, ticks)
        left.set_xlim(ticks[0] / 2, ticks[-1] * 3)
        left.margins(y=0.15)
        left.set_xlabel("epochs")
        left.set_title("test accuracy in %")
        right.set_xlabel("loss on the training images")
        right.set_title("test accuracy in %")
        figure.legend(loc="upper left", ncols=3)
    return figure


def equal_loss(small: pd.DataFrame, large: pd.DataFrame, *, caption: str = "") -> Figure:
    """Test loss and accuracy by training loss: the small batch's runs as a curve, the large batch's as dots.

    Args:
        small: of the experiment equal_loss: batch, epochs, seed, training loss, test loss, test accuracy.
        large: of the experiment generalisation_gap; its large batch's tuned runs of 20 epochs and more are drawn.
    """
    tuned = large[(large["use"] == "result") & (large["method"] != "naive")]
    tuned = tuned[(tuned["batch"] == tuned["batch"].max()) & (tuned["epochs"] > tuned["epochs"].min())]
    with style():
        figure, axes = subplots(height=400, columns=2, caption=caption)
        for axis, column, factor, title in (
            (axes[0], "test loss", 1, "test loss"),
            (axes[1], "test accuracy", 100, "test accuracy, %"),
        ):
            middle = small.groupby("epochs")[["training loss", column]].mean()
            axis.plot(middle["training loss"], factor * middle[column], color=PALETTE[0], linewidth=1.4)
            axis.plot(
                small["training loss"], factor * small[column], MARKERS[0], color=PALETTE[0], alpha=0.5, mew=0,
                label=f"B = {small['batch'].iloc[0]:,}, {small['epochs'].min()} to {small['epochs'].max()} epochs",
            )  # fmt: skip
            for number, (epochs, rows) in enumerate(tuned.groupby("epochs"), 1):
                axis.plot(
                    rows["training loss"], factor * rows[column], MARKERS[number], color=PALETTE[number], alpha=0.8,
                    mew=0, label=f"B = {rows['batch'].iloc[0]:,}, {epochs} epochs",
                )  # fmt: skip
            axis.set_xscale("log")
            log_ticks(axis.xaxis)
            axis.set_xlabel("loss on the training images")
            axis.set_title(title)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure


def _draw_updates(axis: Axes, runs: pd.DataFrame, target: float) -> None:
    """Draw each run as a dot, a line through their medians, and perfect scaling from the smallest batch on."""
    medians = runs.groupby("batch")["updates"].median().dropna()
    sizes = medians.index.to_numpy(float)
    axis.plot(
        sizes, medians.iloc[0] * sizes[0] / sizes, color=FAINT, linestyle=(0, (4, 3)), linewidth=1.2,
        label="twice the batch, half the updates",
    )  # fmt: skip
    axis.plot(runs["batch"], runs["updates"], **RUNS)
    axis.plot(sizes, medians, color=PALETTE[0], marker="o", markersize=4, label="runs and their median")
    axis.set_yscale("log")
    axis.set_ylim(runs["updates"].min() / 3, runs["updates"].max() * 1.6)
    log_ticks(axis.yaxis)
    axis.set_title(f"updates to {100 * target:g} % validation accuracy")
    batch_ticks(axis, runs["batch"])


def _draw_scales(axis: Axes, squares: pd.DataFrame) -> None:
    for number, (size, rows) in enumerate(noise_scales(squares).groupby("batch")):
        look = {"color": PALETTE[(0, 2, 3)[number % 3]], "marker": MARKERS[number % 7]}
        axis.plot(rows["part"], rows["noise scale"], linestyle="", alpha=0.45, **look, markeredgewidth=0)
        middle = rows.groupby("part")["noise scale"].median()
        axis.plot(middle.index, middle, **look, markersize=4, label=f"training with B = {size:,}")
    axis.set_yscale("log")
    log_ticks(axis.yaxis)
    axis.set_xlabel("part of the updates to the target")
    axis.set_title("gradient noise scale, in examples")
