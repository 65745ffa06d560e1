"""Figures of notebook 3e: luck and tuning, methods by batch size, rules against tuning, tricks one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, style, subplots

ACCURACY_RANGE = 0.25  # shown below the best accuracy; what is worse needs no detail
METHODS = ("SGD", "Adam", "LARS", "LARC", "LAMB", "NovoGrad")  # in the order of their colours
Pair = tuple[Sequence[float], Sequence[float]]
Interval = Callable[[Sequence[float], Sequence[float]], tuple[float, float]]


def winners(gains: Mapping[str, np.ndarray], *, caption: str = "") -> Figure:
    """How far B is ahead of A over many repetitions: a histogram for each way to judge.

    Args:
        gains: title → B's score minus A's [repetitions], in percentage points.
    """
    with style():
        figure, axes = subplots(height=330, columns=len(gains), caption=caption)
        limit = max(np.abs(values).max() for values in gains.values())
        for axis, (title, values) in zip(axes, gains.items()):
            bins = np.linspace(-limit, limit, 41)
            for side, tone in ((values[values <= 0], FAINT), (values[values > 0], PALETTE[1])):
                axis.hist(side, bins, color=tone, alpha=0.75)
            axis.axvline(values.mean(), color=INK, linestyle=(0, (4, 3)), linewidth=1.2)
            axis.set_title(f"{title}: B wins {np.mean(values > 0):.0%}")
            axis.set_xlabel("B − A in percentage points; dashed: the mean")
            axis.yaxis.set_major_locator(NullLocator())
        axes[0].set_ylabel("repetitions")
    return figure


def valleys(panels: Mapping[str, Mapping[str, pd.Series]], *, caption: str = "") -> Figure:
    """Validation accuracy over the learning rate, a line for each method; the chosen rate is marked.

    Args:
        panels: title → name → accuracy by learning rate; a missing one has diverged, and ends its line.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    with style():
        figure, axes = subplots(height=400, columns=len(panels), caption=caption)
        for axis, (title, lines) in zip(axes, panels.items()):
            for name, scores in lines.items():
                line_style = _line_style(names.index(name))
                axis.plot(scores.index, scores, **line_style, markersize=4.5, linewidth=1.5, alpha=0.9, label=name)
                axis.plot([scores.idxmax()], [scores.max()], **{**line_style, "linestyle": ""}, markersize=9.5)
            axis.set_xscale("log")
            rates = sorted({rate for scores in lines.values() for rate in scores.index})
            axis.xaxis.set_major_locator(FixedLocator(rates))
            axis.xaxis.set_major_formatter(FixedFormatter([f"{rate:g}" for rate in rates]))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.set_title(title)
            axis.set_xlabel("learning rate; large mark: the one that is chosen")
            best = max(scores.max() for scores in lines.values())
            worst = min(scores.min() for scores in lines.values())
            axis.set_ylim(max(best - ACCURACY_RANGE, worst - 0.01), best + 0.012)
            _in_percent(axis)
        axes[0].set_ylabel("validation accuracy, %")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", ncols=4 if len(names) > 6 else len(names), handlelength=2.4)
        figure.subplots_adjust(left=70 / WIDTH, top=1 - (86 if len(names) > 6 else 66) / 400)
    return figure


def budgets(curves: Mapping[str, Sequence[float]], *, caption: str = "") -> Figure:
    """The best validation accuracy that can be expected after 1, 2, … settings, a line for each method."""
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        figure.subplots_adjust(left=64 / WIDTH)
        for number, (name, values) in enumerate(curves.items()):
            axis.plot(range(1, len(values) + 1), values, **_line_style(number), markersize=5, label=name)
        axis.set_title("What a budget buys")
        axis.set_xlabel("learning rates that one can afford to try")
        _in_percent(axis)
        axis.set_ylabel("expected best accuracy, %")
        axis.locator_params(axis="x", integer=True)
        figure.legend(*axis.get_legend_handles_labels(), loc="upper right", ncols=len(curves), handlelength=2.4)
    return figure


def methods(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Test accuracy of the tuned methods, a panel for each batch size: a dot for each seed, a line for the mean.

    Args:
        table: as the experiment shoot_out records it.
    """
    chosen = table[(table["use"] == "result") & (table["rule"] == "")]
    panels = {
        f"batch {batch:,}": {name: part.loc[part["method"] == name, "test"] for name in METHODS}
        for batch, part in chosen.groupby("batch")
    }
    with style():
        figure, axes = subplots(height=380, columns=len(panels), caption=caption)
        figure.subplots_adjust(left=70 / WIDTH, wspace=0.06)
        for axis, (title, scores) in zip(axes, panels.items()):
            for place, values in enumerate(scores.values()):
                jittered = _jittered(place, values)
                axis.plot(jittered, values, MARKERS[place], color=PALETTE[place], markersize=6, alpha=0.7)
                axis.hlines(values.mean(), place - 0.34, place + 0.34, color=PALETTE[place], linewidth=2.2)
            axis.set_xticks(range(len(scores)), scores)
            axis.set_title(title)
            axis.grid(axis="x", visible=False)
        _share_limits(axes, "y")
        _in_percent(axes[0])
        axes[0].set_ylabel("test accuracy, %")
        for axis in axes[1:]:
            axis.tick_params(labelleft=False)
        told = "each method with its own best learning rate; dots: one seed each; line: mean"
        figure.text(14 / WIDTH, 1 - 26 / 380, told, color=FAINT, fontsize=9.5)
    return figure


def positions(
    table: pd.DataFrame, switches: Sequence[str], others: Sequence[str], batch: int, *, caption: str = ""
) -> Figure:
    """Test accuracy in all positions of the switches: a dot for each seed, a line for the mean.

    Args:
        table: as the experiment tricks records it. switches: its columns of the design; others: of further tricks.
    """
    rows = table[(table["use"] == "result") & (table["batch"] == batch) & (table[list(others)] == 0).all(axis=1)]
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        figure.subplots_adjust(left=70 / WIDTH, bottom=96 / 380)
        names = []
        for place, (on, part) in enumerate(rows.groupby(list(switches))):
            tone = PALETTE[sum(on)]
            values = 100 * part["test"]
            axis.plot(_jittered(place, values), values, MARKERS[sum(on)], color=tone, markersize=6, alpha=0.7)
            axis.hlines(values.mean(), place - 0.34, place + 0.34, color=tone, linewidth=2.2)
            names.append("\n".join(name for name, is_on in zip(switches, on) if is_on) or "nothing")
        axis.set_xticks(range(len(names)), names)
        axis.grid(axis="x", visible=False)
        axis.set_ylabel("test accuracy, %")
        axis.set_title(f"batch {batch:,}: three switches in all positions")
        told = "each with its own best learning rate; dots: one seed each; line: mean"
        figure.text(14 / WIDTH, 1 - 26 / 380, told, color=FAINT, fontsize=9.5)
    return figure


def gains(panels: Mapping[str, Mapping[str, Pair]], interval: Interval, *,
          against: str, caption: str = "") -> Figure:  # fmt: skip
    """By how much each of several is better than one: differences seed by seed, their mean and its interval.

    Args:
        panels: title → name → (ours, theirs), accuracies [seeds]; the names are the same in all panels.
        interval: (ours, theirs) → the mean difference and half the width of its interval.
        against: what the others are compared with.
    """
    names = list(next(iter(panels.values())))
    height = 134 + 34 * len(names)
    with style():
        figure, axes = subplots(height=height, columns=len(panels), caption=caption)
        left = 22 + 7.2 * max(map(len, names))
        figure.subplots_adjust(left=left / WIDTH, wspace=0.08)
        for axis, (title, pairs) in zip(axes, panels.items()):
            _gains(axis, pairs, interval)
            axis.set_title(title)
            axis.set_xlabel(f"test accuracy − that of {against}, in points")
        _share_limits(axes, "x")
        for axis in axes[1:]:
            axis.tick_params(labelleft=False)
        figure.text(
            14 / WIDTH, 1 - 26 / height, "dots: one seed each; black: mean and 95 % interval", color=FAINT, fontsize=9.5
        )
    return figure


def _gains(axis: Axes, pairs: Mapping[str, Pair], interval: Interval) -> None:
    for place, (ours, theirs) in enumerate(pairs.values()):
        each = 100 * np.subtract(ours, theirs)
        mean, half = (100 * value for value in interval(ours, theirs))
        axis.plot(each, _jittered(place, each), "o", color=PALETTE[0], markersize=5, alpha=0.55, markeredgewidth=0)
        axis.errorbar(mean, place, xerr=half, color=INK, marker="D", markersize=5, capsize=4, linewidth=1.6)
    axis.axvline(0, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
    axis.set_yticks(range(len(pairs)), pairs)
    axis.set_ylim(len(pairs) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)


def _in_percent(axis: Axes) -> None:
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")


def _share_limits(axes: Sequence[Axes], which: str) -> None:
    ends = [getattr(axis, f"get_{which}lim")() for axis in axes]
    low, high = min(end for end, _ in ends), max(end for _, end in ends)
    margin = 0.03 * (high - low)
    for axis in axes:
        getattr(axis, f"set_{which}lim")(low - margin, high + margin)


def _jittered(place: float, values: Sequence[float]) -> np.ndarray:
    """Places around `place`, so that equal values don't hide each other."""
    return place + np.linspace(-0.18, 0.18, len(values))


def _line_style(number: int) -> dict:
    lines = ("-", (0, (5, 1.5)), "-", (0, (5, 1.5)), (0, (1, 1)), (0, (1, 1)), "-")
    return {"color": PALETTE[number % 7], "marker": MARKERS[number % 7], "linestyle": lines[number % 7]}
