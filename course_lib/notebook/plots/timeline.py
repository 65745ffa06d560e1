"""Activities as bars over time, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from course_lib.notebook.plots.canvas import Canvas, Panel
from course_lib.notebook.plots.style import FAINT, MARKERS, PALETTE, PAPER, WIDTH, Figure, colour, style, subplots

MAX_ROWS = 24
_LEFT_PX, _RIGHT_PX = 196, 24  # beside the bars
_MAX_NAME_LETTERS = 23
_MIN_BAR_PX = 1.0  # what is shorter would not be seen


def rows(
    table: pd.DataFrame, start: float = 0.0, width: float | None = None, *, title: str = "", caption: str = ""
) -> Figure:
    """One row for each value of table["row"], a bar for each activity, coloured by its name.

    Args:
        table: columns row, activity, start and seconds. Rows and colours are in the order of first appearance; rows
            after the 24th are left out. Of two activities at the same time, the later in the table lies on top.
        start, width: the window that is shown, in seconds; by default to the end of the last activity.
    """
    names = list(pd.unique(table["row"]))
    more, names = len(names) - MAX_ROWS, names[:MAX_ROWS]
    activities = list(pd.unique(table["activity"]))
    begin, end = table["start"].to_numpy(float), (table["start"] + table["seconds"]).to_numpy(float)
    if width is None:
        width = max(np.nanmax(end, initial=start) - start, 1e-6)

    high = 26 if len(names) <= 10 else 19
    height = 146 + high * max(len(names), 1)
    with style():
        canvas = Canvas(height)
        panel = Panel(
            canvas,
            (_LEFT_PX, 70, WIDTH - _LEFT_PX - _RIGHT_PX, high * max(len(names), 1)),
            (1e3 * start, 1e3 * (start + width)),
            (len(names) - 0.5, -0.5),
        )
        panel.axes(_ticks(1e3 * start, 1e3 * width), [(i, _short(name)) for i, name in enumerate(names)])
        row = pd.Categorical(table["row"], names).codes
        kind = pd.Categorical(table["activity"], activities).codes
        shown = np.flatnonzero((row >= 0) & (end >= start) & (begin <= start + width))
        left = panel.x(1e3 * np.maximum(begin[shown], start))
        long = np.maximum(panel.x(1e3 * np.minimum(end[shown], start + width)) - left, _MIN_BAR_PX)
        low = panel.y(row[shown]) - 0.36 * high
        colours = [PALETTE[k % len(PALETTE)] for k in kind[shown]]
        canvas.boxes([(x, y, w, 0.72 * high, c) for x, y, w, c in zip(left, low, long, colours)])

        if title:
            canvas.text(14, height - 14, title, va="top", size=11)
        _legend(canvas, activities, height - 50)
        canvas.text(_LEFT_PX + (WIDTH - _LEFT_PX - _RIGHT_PX) / 2, 34, "time (ms)", ha="center", size=10.5)
        if more > 0:
            caption = f"{caption} · {more} more row{'s' * (more > 1)}".removeprefix(" · ")
        if caption:
            canvas.text(14, 10, caption, size=8.5, colour=FAINT)
        return canvas.figure()


def _legend(canvas: Canvas, activities: list, y: float) -> None:
    x = 14.0
    for number, activity in enumerate(activities):
        canvas.boxes([(x, y, 13, 13, PALETTE[number % len(PALETTE)])], edge=PAPER)
        canvas.text(x + 19, y + 1.5, str(activity), size=9.5)
        x += 19 + 8.6 * len(str(activity)) + 16


def _ticks(start: float, width: float) -> list[tuple[float, str]]:
    """Round numbers in a window, about seven of them."""
    rough = width / 7
    unit = 10 ** np.floor(np.log10(rough))
    step = unit * next(factor for factor in (1, 2, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    digits = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    values = step * np.arange(np.ceil(start / step - 1e-9), np.floor((start + width) / step + 1e-9) + 1)
    return [(value, f"{value + 0.0:,.{digits}f}") for value in values]


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= _MAX_NAME_LETTERS else "…" + text[-_MAX_NAME_LETTERS + 1 :]


def steps(runs: Mapping[str, pd.DataFrame], caption: str = "") -> Figure:
    """How long each step takes and of what that is made up: stacked bars, a panel for each run.

    Args:
        runs: title → table of milliseconds, a row for each step and a column for each part.
    """
    with style():
        figure, axes = subplots(height=340, columns=len(runs), caption=caption)
        for axis, (title, parts) in zip(axes, runs.items()):
            bottom = np.zeros(len(parts))
            for number, (name, values) in enumerate(parts.items()):
                axis.bar(parts.index, values, bottom=bottom, width=0.85, color=PALETTE[number], label=name)
                bottom += values.to_numpy()
            axis.set_title(title)
            axis.set_xlabel("step")
            axis.set_ylim(0, 1.05 * max(table.sum(axis=1).max() for table in runs.values()))
            axis.grid(False, axis="x")
            axis.locator_params(axis="x", integer=True)
        axes[0].set_ylabel("ms")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=len(axes[0].containers))
        figure.subplots_adjust(top=1 - 84 / 340)
    return figure


def lateness(milliseconds: pd.DataFrame, asleep: float, caption: str = "") -> Figure:
    """By how much each rank comes after the first one, step by step.

    Args:
        milliseconds: a row for each step, a column for each rank.
        asleep: a dashed line, the milliseconds that a rank sleeps.
    """
    with style():
        figure, (axis,) = subplots(height=300, caption=caption)
        for rank, values in milliseconds.items():
            look = {"color": colour(rank), "marker": MARKERS[rank % len(MARKERS)], "label": f"rank {rank}"}
            axis.plot(milliseconds.index, values, **look)
        axis.axhline(asleep, color=FAINT, linestyle="--", linewidth=1, label=f"{asleep:g} ms of sleep")
        axis.set_ylim(bottom=-0.04 * axis.get_ylim()[1])
        axis.set_xlabel("step")
        axis.set_ylabel("ms after the first rank")
        axis.locator_params(axis="x", integer=True)
        figure.legend(loc="upper left", ncols=milliseconds.shape[1] + 1)
    return figure


def uneven(sizes: Sequence[int], differ: Mapping[int, Sequence[bool]], caption: str = "") -> Figure:
    """For which numbers of examples the ranks have different numbers of batches: a row for each number of ranks.

    Args:
        sizes: numbers of examples, ascending and without gaps.
        differ: number of ranks → whether their numbers of batches differ, for each of `sizes`.
    """
    height = 130 + 30 * len(differ)
    with style():
        figure, (axis,) = subplots(height=height, caption=caption)
        for place, flags in enumerate(differ.values()):
            axis.broken_barh([(sizes[0] - 0.5, len(sizes))], (place - 0.32, 0.64), color="#e4e4df")
            bars = [(size - 0.5, 1) for size, flag in zip(sizes, flags) if flag]
            axis.broken_barh(bars, (place - 0.32, 0.64), color=PALETTE[1], linewidth=0.6)
        axis.set_yticks(range(len(differ)), [f"{ranks} ranks" for ranks in differ])
        axis.set_xlim(sizes[0] - 0.5, sizes[-1] + 0.5)
        axis.invert_yaxis()
        axis.grid(False)
        axis.set_xlabel("number of examples")
        axis.set_title("sizes at which the ranks have different numbers of batches")
        figure.subplots_adjust(left=84 / WIDTH, top=1 - 40 / height)
    return figure
