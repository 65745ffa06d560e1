"""Figures of notebook 1e: batch norm, many starts, data and width, and what a search finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

import numpy as np
import pandas as pd

from course_lib import statistics
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, style, subplots


def rates(runs: pd.DataFrame, *, caption: str = "") -> Figure:
    """Validation accuracy by learning rate, with and without batch norm: a mark for each seed, a line through means.

    Args:
        runs: one row for each run, with the columns batch norm, rate, validation accuracy.
    """
    with style():
        figure, (axis,) = subplots(height=350, caption=caption)
        for number, (normalised, rows) in enumerate(runs.groupby("batch norm", sort=False)):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            accuracy = rows.groupby("rate")["validation accuracy"].mean()
            axis.plot(rows["rate"], rows["validation accuracy"], linestyle="", alpha=0.45, markersize=5, **look)
            axis.plot(accuracy.index, accuracy, label=f"{'with' if normalised else 'without'} batch norm", **look)
        axis.axhline(0.1, color=FAINT, linewidth=1, linestyle=":")
        values = sorted(runs["rate"].unique())
        axis.set(xscale="log", ylim=(0, 0.9), xlabel="learning rate η", ylabel="validation accuracy")
        axis.set_xticks(values, [f"{rate:g}" for rate in values])
        axis.minorticks_off()
        axis.text(values[0], 0.115, "guessing", color=FAINT, fontsize=9.5)
        axis.legend(loc="lower left", bbox_to_anchor=(0, 0.16))
        figure.subplots_adjust(left=66 / WIDTH)
    return figure


def percentiles(seen: Mapping[str, Sequence[Sequence[float]]], updates: Sequence[int], *, caption: str = "") -> Figure:
    """What one channel hands to its ReLU on the way: the 15th, 50th and 85th percentile over images and places.

    Args:
        seen: title → a triple of percentiles for each look. updates: after how many updates each look was.
    """
    with style():
        figure, axes = subplots(height=320, columns=len(seen), caption=caption)
        for axis, (title, looks) in zip(axes, seen.items()):
            low, middle, high = np.transpose(looks)
            axis.fill_between(updates, low, high, color=PALETTE[0], alpha=0.15, linewidth=0)
            for values, look in ((low, ":"), (middle, "-"), (high, ":")):
                axis.plot(updates, values, look, color=PALETTE[0])
            axis.axhline(0, color=INK, linewidth=0.8)
            axis.set_title(title)
            axis.set_xlabel("updates")
        figure.subplots_adjust(wspace=0.2, left=60 / WIDTH)
    return figure


def starts(runs: pd.DataFrame, bends: pd.DataFrame, *, limit: float, caption: str = "") -> Figure:
    """Where twenty starts end, and the largest and smallest curvature during the training of one.

    Args:
        runs: one row for each start: training loss, validation accuracy.
        bends: one row for each look: updates; largest and smallest, each also in training mode ("largest, training").
        limit: above this eigenvalue momentum diverges on a quadratic.
    """
    with style():
        figure, (left, right) = subplots(height=350, columns=2, caption=caption)
        left.plot(runs["training loss"], 100 * runs["validation accuracy"], "o", color=PALETTE[0], alpha=0.7)
        left.margins(0.12)
        left.set_xlabel("training loss at the end")
        left.set_title(f"{len(runs)} starts: validation accuracy, %")
        right.axhline(0, color=INK, linewidth=0.8)
        for number, end in enumerate(("largest", "smallest")):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            right.plot(bends["updates"], bends[f"{end}, training"], "-", label=end, **look)
            right.plot(bends["updates"], bends[end], "--", alpha=0.5, **look)
        right.plot([], [], "--", color=FAINT, label="inference")
        right.axhline(limit, color=FAINT, linestyle=":", linewidth=1.2)
        right.text(bends["updates"].iloc[-1], 1.08 * limit, "momentum's limit", color=FAINT, fontsize=9, ha="right")
        right.set_xscale("symlog", linthresh=10)
        right.set_yscale("symlog", linthresh=1)
        right.set_xticks(bends["updates"], [f"{update:,}" for update in bends["updates"]])
        right.set_yticks([-100, -10, -1, 0, 1, 10, 100], ["−100", "−10", "−1", "0", "1", "10", "100"])
        right.minorticks_off()
        right.set_xlabel("updates")
        right.set_title("eigenvalues of the Hessian, one start")
        right.set_ylim(-300, 700)
        right.set_xlim(-12, 400)
        right.legend(loc="lower left", fontsize=9)
        figure.subplots_adjust(wspace=0.2)
    return figure


def fit(sizes: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """(exponent, factor) of the power law error = factor · size^−exponent."""
    slope, height = np.polyfit(np.log(sizes), np.log(errors), 1)
    return -float(slope), float(np.exp(height))


def data_size(runs: pd.DataFrame, *, fitted: int, caption: str = "") -> Figure:
    """Error by the number of training images, with the laws fitted on the small ones; and by width.

    Args:
        runs: one row for each run: width, weights (parameters, as Keras counts them), images, error. Of each width and
            size at least two seeds; bars are 95 % intervals of their mean.
        fitted: the largest number of images on which the law is fitted.
    """
    errors = runs.groupby(["width", "images"])["error"]
    mean, half = errors.mean(), errors.agg(lambda seeds: statistics.mean(seeds)[1])
    with style():
        figure, (left, right) = subplots(height=380, columns=2, caption=caption)
        for number, width in enumerate(mean.index.unique("width")):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            own = mean[width]
            exponent, factor = fit(own.index[own.index <= fitted], own[own.index <= fitted])
            left.plot(own.index, factor * own.index.to_numpy(float) ** -exponent, "--", color=PALETTE[number], lw=1)
            label = f"width {width:g}: exponent {exponent:.2f}"
            left.errorbar(own.index, own, half[width], linestyle="", markersize=6, capsize=2.5, label=label, **look)
        left.axvline(fitted, color=FAINT, linestyle=":", linewidth=1.2)
        weights = runs.groupby("width")["weights"].first()
        for number, size in enumerate(sorted(runs["images"].unique())[1::2]):
            own = (values.xs(size, level="images") for values in (mean, half))
            right.errorbar(weights, *own, capsize=2.5, marker=MARKERS[number], color=PALETTE[number],
                           label=f"{size:,} images")  # fmt: skip
        for axis, title in ((left, "error by training images"), (right, "error by parameters")):
            axis.set(xscale="log", yscale="log", ylim=(0.09, 0.45))
            axis.set_yticks([0.1, 0.2, 0.4], ["0.1", "0.2", "0.4"])
            axis.minorticks_off()
            axis.set_title(title)
            axis.legend(loc="upper right", fontsize=9)
        sizes = sorted(runs["images"].unique())
        left.set_xticks(sizes[::2], [f"{size:,}" for size in sizes[::2]])
        right.set_xticks(weights, [f"{count:,}" for count in weights])
        left.set_xlabel("training images")
        right.set_xlabel("parameters, with the averages of batch norm")
        figure.subplots_adjust(wspace=0.2)
    return figure


def chances(trials: int, of: int) -> np.ndarray:
    """The chance that a search of `trials` of so many trials finds the best, the second best, … of all."""
    return np.array([comb(of - rank, trials - 1) for rank in range(1, of + 1)]) / comb(of, trials)


def found(accuracies: Sequence[float], trials: int) -> float:
    """The best accuracy of a search of so many of these trials: the mean of all such searches."""
    return float(chances(trials, len(accuracies)) @ np.sort(accuracies)[::-1])


def gain(accuracies: Sequence[float], few: int, many: int, draws: int = 2_000) -> tuple[float, float, float]:
    """How much more a search of `many` trials finds than one of `few`, and the 95 % interval of the bootstrap."""
    rng = np.random.default_rng(0)
    drawn = [rng.choice(accuracies, len(accuracies)) for _ in range(draws)]
    gains = [found(sample, many) - found(sample, few) for sample in drawn]
    low, high = np.percentile(gains, (2.5, 97.5))
    return found(accuracies, many) - found(accuracies, few), float(low), float(high)


def search(runs: pd.DataFrame, *, caption: str = "") -> Figure:
    """What a random search finds by its number of trials: the mean of all searches of so many of these trials."""
    accuracies = runs["validation accuracy"].to_numpy()
    counts = np.arange(1, len(accuracies) + 1)
    with style():
        figure, (axis,) = subplots(height=340, caption=caption)
        axis.plot(counts, [100 * found(accuracies, count) for count in counts], color=PALETTE[0])
        axis.set(xscale="log", xlabel="trials", ylabel="best accuracy found, %")
        ticks = [count for count in (1, 2, 5, 10, 20, 40) if count <= len(accuracies)]
        axis.set_xticks(ticks, map(str, ticks))
        axis.minorticks_off()
        figure.subplots_adjust(left=66 / WIDTH)
    return figure
