"""How large a batch can be: updates to a target by batch size, the gradient noise scale, and what ranks can win."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, NullLocator

from course_lib.bend import fit as least_squares
from course_lib.bend import updates as curve
from course_lib.noise import noise_scale
from course_lib.plots.style import CARD, FAINT, MARKERS, PALETTE, WIDTH, Card, card, style

Fit = Callable[[Sequence[float], Sequence[float]], "tuple[float, float]"]


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


def to_target(runs: pd.DataFrame, own: pd.DataFrame | None = None, *, target: float, caption: str = "") -> Card:
    """Updates and images to a target by batch size.

    Args:
        runs: one row for each run: batch, updates (missing where it did not arrive).
        own: the reader's runs, drawn as stars, with the same columns.
        target: the accuracy.
        caption: see `provenance`.
    """
    with style():
        figure, (left, right) = card(height=400, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.2, left=62 / WIDTH)
        _steps(left, runs, target)
        images = runs.assign(updates=runs["updates"] * runs["batch"] / 1000)
        medians = images.groupby("batch")["updates"].median()
        right.plot(images["batch"], images["updates"], **_DOTS)
        right.plot(medians.index, medians, color=PALETTE[0], marker="o", markersize=4)
        right.set_ylim(0, 1.15 * images["updates"].max())
        right.yaxis.set_major_formatter("{x:,.0f}")
        right.set_title("thousands of images that this takes")
        _batches(right, runs["batch"])
        if own is not None:
            left.plot(own["batch"], own["updates"], label="your run", **_OWN)
            right.plot(own["batch"], own["updates"] * own["batch"] / 1000, **_OWN)
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure


def scales(squares: pd.DataFrame, own: pd.DataFrame | None = None, *, caption: str = "") -> Card:
    """The gradient noise scale on the way to the target.

    Args:
        squares: one row for each place: batch (that trained), part (of the way to the target), and see `noise_scales`.
        own: what the reader measured, drawn as stars: part, noise scale.
        caption: see `provenance`.
    """
    with style():
        figure, (axis,) = card(height=380, caption=caption)
        _scales(axis, squares)
        if own is not None:
            axis.plot(own["part"], own["noise scale"], label="yours", **_OWN)
        figure.legend(*axis.get_legend_handles_labels(), loc="upper left", ncols=4)
    return figure


def bend(
    runs: pd.DataFrame, squares: pd.DataFrame, *, target: float, fit: Fit = least_squares, caption: str = ""
) -> Card:
    """Updates to a target by batch size, with perfect scaling, floor and bend; beside it the noise scale on the way.

    Args:
        runs: see `to_target`.
        squares: see `scales`.
        target: the accuracy.
        fit: (batches, updates) → floor and bend, as `course_lib.bend.fit`; takes the medians.
        caption: see `provenance`.
    """
    medians = runs.groupby("batch")["updates"].median().dropna()
    floor, at = fit(medians.index.to_numpy(float), medians.to_numpy(float))
    with style():
        figure, (left, right) = card(height=420, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.2, left=62 / WIDTH)
        _steps(left, runs, target)
        ends = np.geomspace(medians.index.min(), medians.index.max(), 60)
        left.plot(ends, curve(ends, floor, at), color=PALETTE[1], linewidth=1.5, label="fit: floor · (1 + bend / B)")
        left.axhline(floor, color=FAINT, linestyle=":", linewidth=1.2)
        left.text(ends[0], floor * 0.92, f"floor {floor:.0f}", color=FAINT, fontsize=9, va="top")
        left.axvline(at, color=PALETTE[1], linestyle=":", linewidth=1.4)
        left.text(at * 1.12, left.get_ylim()[1] * 0.9, f"bend {at:.0f}", color=PALETTE[1], fontsize=9.5, va="top")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
        _scales(right, squares)
        right.axhline(at, color=PALETTE[1], linestyle=":", linewidth=1.4)
        right.text(0, at * 1.06, "bend", color=PALETTE[1], fontsize=9.5)
        right.legend(loc="upper left", fontsize=9)
    return figure


_DOTS = {"color": PALETTE[0], "marker": "o", "linestyle": "", "alpha": 0.45, "markersize": 5, "markeredgewidth": 0}
_OWN = {"color": PALETTE[1], "marker": "*", "linestyle": "", "markersize": 13, "markeredgecolor": CARD, "zorder": 5}


def _steps(axis: Axes, runs: pd.DataFrame, target: float) -> None:
    """Draw each run as a dot, a line through their medians, and perfect scaling from the smallest batch on."""
    medians = runs.groupby("batch")["updates"].median().dropna()
    sizes = medians.index.to_numpy(float)
    axis.plot(
        sizes, medians.iloc[0] * sizes[0] / sizes, color=FAINT, linestyle=(0, (4, 3)), linewidth=1.2,
        label="twice the batch, half the updates",
    )  # fmt: skip
    axis.plot(runs["batch"], runs["updates"], **_DOTS)
    axis.plot(sizes, medians, color=PALETTE[0], marker="o", markersize=4, label="runs and their median")
    axis.set_yscale("log")
    axis.set_ylim(runs["updates"].min() / 3, runs["updates"].max() * 1.6)
    _plain(axis.yaxis)
    axis.set_title(f"updates to {100 * target:g} % validation accuracy")
    _batches(axis, runs["batch"])


def _scales(axis: Axes, squares: pd.DataFrame) -> None:
    for number, (size, rows) in enumerate(noise_scales(squares).groupby("batch")):
        look = {"color": PALETTE[(0, 2, 3)[number % 3]], "marker": MARKERS[number % 7]}
        axis.plot(rows["part"], rows["noise scale"], linestyle="", alpha=0.45, **look, markeredgewidth=0)
        middle = rows.groupby("part")["noise scale"].median()
        axis.plot(middle.index, middle, **look, markersize=4, label=f"training with B = {size:,}")
    axis.set_yscale("log")
    _plain(axis.yaxis)
    axis.set_xlabel("part of the updates to the target")
    axis.set_title("gradient noise scale, in examples")


def _batches(axis: Axes, sizes: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    shown = sorted(set(sizes))
    shown = shown[:: 2 if len(shown) > 7 else 1]
    axis.set_xticks(shown, [f"{size:,}" for size in shown])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("batch size B")


def _plain(axis: Axis) -> None:
    """Ticks at 1, 2, 5, 10, 20, …, written out."""
    axis.set_major_locator(FixedLocator([digit * 10.0**power for power in range(-1, 6) for digit in (1, 2, 5)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,g}")
