"""Figures of notebook 8b: a bound, a divisor, two axes, and winners that were chosen."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, style, subplots
from labs.lab8_honest_benchmarks.lessons.reports_8b import within

SIDES = ("ours", "theirs")
LEFT = 78 / WIDTH


def bounds(recorded: pd.DataFrame) -> tuple[float, float, float]:
    """From and to where a slider for the bound goes, in ms, and where it starts."""
    ms = recorded[recorded["kind"] == "serving"]["ms"]
    return round(float(ms.min()), 1), round(1.15 * float(ms.max()), 1), round(float(ms.median()), 1)


def bound(serving: pd.DataFrame, limit: float) -> Figure:
    """Most images a second by the bound on the 99th percentile; `limit` in ms is marked.

    Args:
        serving: rows with `side`, `ms` (99th percentile) and `images_per_s`.
    """
    with style():
        figure, (axes,) = subplots(height=340, columns=1)
        grid = np.linspace(0, 1.15 * serving["ms"].max(), 600)
        found = {}
        for number, side in enumerate(SIDES):
            stairs = [within(ms, side, serving) / 1000 for ms in grid]
            axes.plot(grid, stairs, color=PALETTE[number], label=side)
            found[side] = within(limit, side, serving)
            axes.plot(limit, found[side] / 1000, MARKERS[number], color=PALETTE[number])
        axes.axvline(limit, color=INK, linewidth=1, linestyle=(0, (3, 3)))
        axes.set(xlabel="bound on the 99th percentile, ms", ylabel="thousand images a second", ylim=(0, None))
        axes.set_title(_told(limit, **found))
        axes.legend(loc="upper left")
        figure.subplots_adjust(left=LEFT)
    return figure


def _told(limit: float, ours: float, theirs: float) -> str:
    if not ours or not theirs:
        alone = "ours" if ours else "theirs" if theirs else "nobody"
        return f"Within {limit:.1f} ms: {alone} answers" + (" alone" if ours or theirs else "")
    ahead, factor = ("ours", ours / theirs) if ours >= theirs else ("theirs", theirs / ours)
    return f"Within {limit:.1f} ms: {ahead} {factor:.2f} times as many images a second"


def per_core(cores: pd.DataFrame) -> Figure:
    """Images a second of both sides, by the number of cores: in all, and for each core; a dot for each run."""
    bars = list(cores.groupby(["side", "setting"]))
    names = [f"{side}, {count:g} core{'s' if count > 1 else ''}" for (side, count), _ in bars]
    with style():
        figure, panels = subplots(height=250, columns=2)
        for axes, each in zip(panels, (False, True)):
            for number, ((side, count), rows) in enumerate(bars):
                rate = rows["images_per_s"] / (count if each else 1) / 1000
                axes.barh(number, rate.median(), color=PALETTE[SIDES.index(side)], height=0.55)
                axes.plot(rate, [number] * len(rate), ".", color=INK)
            axes.set_yticks(range(len(bars)), names if not each else [""] * len(bars))
            axes.set(ylim=(len(bars) - 0.5, -0.5), xlabel="thousand images a second")
            axes.set_title("For each core" if each else "In all")
        figure.subplots_adjust(left=128 / WIDTH)
    return figure


def axes(rates: pd.DataFrame) -> Figure:
    """Steps to a loss by learning rate, on a logarithmic and on a linear axis."""
    with style():
        figure, panels = subplots(height=330, columns=2)
        for axis, scale in zip(panels, ("log", "linear")):
            for number, side in enumerate(SIDES):
                rows = rates[rates["side"] == side]
                label = "momentum (ours)" if side == "ours" else "none (theirs)"
                axis.plot(rows["setting"], rows["steps"], marker=MARKERS[number], color=PALETTE[number], label=label)
            axis.set_xscale("log")
            axis.set_yscale(scale)
            axis.set_ylim((1, 1e6) if scale == "log" else (0, None))
            axis.set_xticks(
                sorted(rates["setting"].unique()), [f"{rate:g}" for rate in sorted(rates["setting"].unique())]
            )
            axis.minorticks_off()
            axis.set_title("Logarithmic, with room above" if scale == "log" else "Linear")
            axis.set(xlabel="learning rate", ylabel="steps (at most 500)")
        panels[0].legend(loc="upper right")
        figure.subplots_adjust(left=LEFT, wspace=0.28)
    return figure


def winners(scores: np.ndarray, *, caption: str = "") -> Figure:
    """Accuracy of models [n, 2] in percent on two halves of the test images; the best on the first one is ringed."""
    best = scores[np.argmax(scores[:, 0])]
    with style():
        figure, (axes,) = subplots(height=400, columns=1, caption=caption)
        axes.plot(scores[:, 0], scores[:, 1], ".", color=PALETTE[0])
        axes.plot(*best, "o", color=PALETTE[1], markersize=12, markerfacecolor="none", markeredgewidth=2)
        for mean, draw in zip(scores.mean(axis=0), (axes.axvline, axes.axhline)):
            draw(mean, color=FAINT, linewidth=1, linestyle=(0, (3, 3)))
        axes.annotate("the published one", best, (14, 12), textcoords="offset points", ha="right", color=PALETTE[1])
        axes.set(xlabel="accuracy on half A, %", ylabel="accuracy on half B, %")
        axes.set_title("Each dot a model; dashed: the averages")
        figure.subplots_adjust(left=LEFT)
    return figure
