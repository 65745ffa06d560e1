"""What the callbacks of lab 1c measure: seconds of epochs, images a second, time to a target; and how training fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    WIDTH,
    Figure,
    colour,
    empty_figure,
    style,
    subplots,
)
from course_lib.notebook.plots.training_curves import batch_axis
from course_lib.notebook.plots.training_curves import throughput as throughput


def examples(images: np.ndarray, labels: np.ndarray, classes: Sequence[str], *, caption: str = "") -> Figure:
    """Three images of every class, one below the other.

    Args:
        images: uint8 [n, h, w, c]. labels: [n], numbers of classes. classes: their names.
        caption: see `provenance`.
    """
    height, rows = 330, 3
    with style():
        figure = empty_figure(height, caption)
        grid = figure.subplots(rows, len(classes), squeeze=False)
        for column, name in enumerate(classes):
            found = np.flatnonzero(labels == column)[:rows]
            grid[0, column].set_title(name, loc="center", fontsize=9)
            for row in range(rows):
                axis = grid[row, column]
                axis.set_axis_off()
                if row < len(found):
                    axis.imshow(images[found[row]].squeeze(), cmap="gray_r", vmin=0, vmax=255)
        figure.subplots_adjust(left=0.02, right=0.98, top=0.89, bottom=0.1, wspace=0.08, hspace=0.08)
    return figure


def epoch_times(seconds: Sequence[float], validation: Sequence[float], *, caption: str = "") -> Figure:
    """The seconds of each epoch as a bar, cut into training and validation."""
    epochs = np.arange(1, len(seconds) + 1)
    training = np.subtract(seconds, validation)
    with style():
        figure, (axis,) = subplots(height=90 + 40 * max(3, len(epochs)), caption=caption)
        axis.barh(epochs, training, color=PALETTE[0], height=0.6, label="training")
        axis.barh(epochs, validation, left=training, color=PALETTE[4], height=0.6, label="validation")
        axis.set_yticks(epochs, [f"epoch {epoch}" for epoch in epochs])
        axis.invert_yaxis()
        axis.grid(False, axis="y")
        axis.set_xlabel("seconds")
        figure.legend(loc="upper left", ncols=2)
        figure.subplots_adjust(left=84 / WIDTH)
    return figure


def race(
    curves: Mapping[int, pd.DataFrame], *, target: float, planned: Sequence[int] | None = None, caption: str = ""
) -> Figure:
    """Validation accuracy over time for several batch sizes, and the seconds until each is at the target.

    Args:
        curves: batch size → one row for each epoch, with the columns seconds (since training began) and
            val_accuracy.
        target: validation accuracy that counts as arrived.
        planned: all batch sizes that are going to be run: the axis does not grow while the figure fills.
        caption: see `provenance`.
    """
    planned = list(planned or curves)
    with style():
        figure, (left, right) = subplots(height=380, columns=2, caption=caption)
        left.axhline(target, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        left.annotate(
            f"target {100 * target:g} %", (1, target), xycoords=("axes fraction", "data"), xytext=(-2, 4),
            textcoords="offset points", ha="right", color=INK, fontsize=9,
        )  # fmt: skip
        for size, curve in curves.items():
            number = planned.index(size)
            look = {"color": colour(number), "marker": MARKERS[number % len(MARKERS)]}
            left.plot(curve["seconds"], curve["val_accuracy"], **look, markersize=5, label=f"B = {size:,}")
            seconds = curve["seconds"].iloc[-1]
            if curve["val_accuracy"].iloc[-1] >= target:
                right.plot([size], [seconds], **look, linestyle="")
            else:
                right.plot([size], [seconds], **look, linestyle="", markerfacecolor="none", markeredgewidth=1.6)
                right.annotate(
                    f"not in {seconds:.0f} s", (size, seconds), xytext=(0, 9), textcoords="offset points",
                    ha="center", color=FAINT, fontsize=9,
                )  # fmt: skip
        left.set_xlim(left=0)
        left.set_xlabel("seconds of training, validation included")
        left.set_title("validation accuracy")
        right.set_title(f"seconds until {100 * target:g} %; open: not reached")
        batch_axis(right, planned)
        highest = max((curve["seconds"].iloc[-1] for curve in curves.values()), default=1.0)
        right.set_ylim(0, 1.25 * highest)
        if curves:
            figure.legend(loc="upper left", ncols=len(planned), handlelength=1.4, columnspacing=1.4)
    return figure


def to_target(runs: pd.DataFrame, *, target: float, caption: str = "") -> Figure:
    """Epochs, steps and seconds to a target by batch size: a mark for each run, a line through the medians.

    Args:
        runs: one row for each run, with the columns batch size, reached, epochs, steps, seconds. Runs that did not
            reach the target are open marks, and count in the medians as the longest.
        target: the validation accuracy.
        caption: see `provenance`.
    """
    sizes = sorted(runs["batch size"].unique())
    arrived = runs[runs["reached"]]
    with style():
        figure, axes = subplots(height=370, columns=3, caption=caption)
        for axis, column in zip(axes, ("epochs", "steps", "seconds")):
            for rows, face in ((arrived, PALETTE[0]), (runs[~runs["reached"]], "none")):
                axis.plot(rows["batch size"], rows[column], "o", color=PALETTE[0], markerfacecolor=face, alpha=0.55)
            medians = runs.groupby("batch size")[column].median()
            solid = runs.groupby("batch size")["reached"].mean() > 0.5
            axis.plot(medians.index[solid], medians[solid], color=PALETTE[0])
            axis.set_title(f"{column} to {100 * target:g} %")
            batch_axis(axis, sizes)
            axis.tick_params(axis="x", labelsize=8.5)
            if column == "steps":
                # Perfect scaling: twice the batch, half the steps.
                perfect = [medians.iloc[0] * sizes[0] / size for size in sizes]
                axis.plot(sizes, perfect, color=FAINT, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1)
                axis.set_yscale("log")
                axis.yaxis.set_major_formatter("{x:,.0f}")
                axis.yaxis.set_minor_formatter("")
            else:
                axis.set_ylim(bottom=0)
        marks = [Line2D([], [], color=PALETTE[0], marker="o", linestyle="", alpha=0.55, label="one run")]
        if not runs["reached"].all():
            look = {"color": PALETTE[0], "marker": "o", "linestyle": "", "markerfacecolor": "none"}
            marks.append(Line2D([], [], **look, label="ended before it arrived"))
        marks.append(Line2D([], [], color=PALETTE[0], label="median"))
        marks.append(Line2D([], [], color=FAINT, linestyle=(0, (4, 3)), label="twice the batch, half the steps"))
        figure.legend(handles=marks, loc="upper left", ncols=4)
        figure.subplots_adjust(wspace=0.2)
    return figure


def fits(histories: Mapping[str, pd.DataFrame], *, caption: str = "") -> Figure:
    """Training and validation curves side by side: accuracy above, loss below, the gap between them shaded.

    Args:
        histories: title → one row for each validated epoch, with the columns updates (steps so far),
            accuracy, val_accuracy, loss, val_loss.
        caption: see `provenance`.
    """
    height, metrics = 520, ("accuracy", "loss")
    with style():
        figure = empty_figure(height, caption)
        grid = figure.subplots(len(metrics), len(histories), squeeze=False, sharey="row")
        for column, (title, history) in enumerate(histories.items()):
            for row, metric in enumerate(metrics):
                axis, x = grid[row, column], history["updates"]
                training, validation = history[metric], history[f"val_{metric}"]
                axis.fill_between(x, training, validation, color=PALETTE[4], alpha=0.18, linewidth=0)
                axis.plot(x, training, color=PALETTE[0])
                axis.plot(x, validation, color=PALETTE[1], linestyle=(0, (1, 1)), marker="s", markersize=4,
                          markerfacecolor="none", markevery=max(1, len(x) // 8))  # fmt: skip
                axis.set_xlim(0, 1.03 * x.iloc[-1])
                axis.locator_params(axis="x", nbins=4, integer=True)
                if row == 0:
                    axis.set_title(title, fontsize=10)
                    axis.tick_params(labelbottom=False)
                else:
                    axis.set_xlabel("updates")
                    best = int(validation.to_numpy().argmin())
                    axis.plot(x.iloc[best], validation.iloc[best], marker="v", color=INK, markersize=7, zorder=4)
                if column == 0:
                    axis.set_ylabel(metric)
        grid[1, 0].set_ylim(bottom=0)
        grid[1, 0].locator_params(axis="y", nbins=6)
        handles = [
            Line2D([], [], color=PALETTE[0], label="training"),
            Line2D([], [], color=PALETTE[1], linestyle=(0, (1, 1)), marker="s", markersize=4, markerfacecolor="none",
                   label="validation"),
            Line2D([], [], color=INK, marker="v", linestyle="", label="lowest validation loss"),
        ]  # fmt: skip
        figure.legend(handles=handles, loc="upper left", ncols=3)
        figure.subplots_adjust(
            left=62 / WIDTH, right=1 - 24 / WIDTH, top=1 - 84 / height, bottom=76 / height, wspace=0.17, hspace=0.1
        )
    return figure


def slices_by_rate(networks: pd.DataFrame, *, caption: str = "") -> Figure:
    """What slices of networks with and without skip connections have in common at equal learning rates.

    Args:
        networks: one row for each network, with the columns depth, skip, rate, share below guessing, highest loss.
        caption: see `provenance`.
    """
    with style():
        figure, axes = subplots(height=340, columns=2, caption=caption)
        for number, ((depth, skip), rows) in enumerate(networks.groupby(["depth", "skip"])):
            look = {
                "color": PALETTE[0 if skip else 1],
                "marker": MARKERS[number],
                "linestyle": "-" if depth > 20 else ":",
            }
            for axis, column in zip(axes, ("share below guessing", "highest loss")):
                axis.plot(rows["rate"], rows[column], label=f"depth {depth}, {'with' if skip else 'no'} skips", **look)
        for axis, title in zip(axes, ("share of the square below ln 10", "highest loss in the square")):
            axis.set(xscale="log", xlabel="learning rate η")
            axis.set_xticks(
                sorted(networks["rate"].unique()), [f"{rate:g}" for rate in sorted(networks["rate"].unique())]
            )
            axis.minorticks_off()
            axis.set_title(title)
        axes[0].set_ylim(bottom=0)
        axes[1].set_yscale("log")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=4)
        figure.subplots_adjust(wspace=0.24, left=62 / WIDTH)
    return figure
