"""Timelines: activities as bars over time."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from matplotlib.patches import Patch
from matplotlib.ticker import ScalarFormatter

from course_lib.notebook.plots.style import PALETTE, WIDTH, Figure, empty_figure, panel, style

MAX_ROWS = 24
_LEFT_PX, _RIGHT_PX = 196, 24  # beside the bars
_MAX_NAME_LETTERS = 23
_MIN_BAR_PX = 1.0  # a shorter bar would be invisible


def rows(
    table: pd.DataFrame, start: float = 0.0, width: float | None = None, *, title: str = "", caption: str = ""
) -> Figure:
    """Draw a timeline: one row for each value of table["row"], one bar for each activity, coloured by its name.

    Args:
        table: columns row, activity, start and seconds. Rows and colours are in the order of first appearance; rows
            after MAX_ROWS are left out. If activities overlap, the later one in the table is on top.
        start, width: the time window in seconds; default: to the end of the last activity.
        title: the line above the rows.
        caption: the line under the figure.
    """
    names = list(pd.unique(table["row"]))
    omitted, names = len(names) - MAX_ROWS, names[:MAX_ROWS]
    if omitted > 0:
        caption = f"{caption} · {omitted} more row{'s' * (omitted > 1)}".removeprefix(" · ")
    colours = dict(zip(pd.unique(table["activity"]), itertools.cycle(PALETTE)))
    end = (table["start"] + table["seconds"]).to_numpy(float)
    if width is None:
        width = max(np.nanmax(end, initial=start) - start, 1e-6)
    in_window = table[(end >= start) & (table["start"] <= start + width)]

    row_px = 26 if len(names) <= 10 else 19
    bars_px = WIDTH - _LEFT_PX - _RIGHT_PX, row_px * max(len(names), 1)
    height = 146 + bars_px[1]
    with style():
        figure = empty_figure(height, caption)
        axis = panel(figure, _LEFT_PX, 70, *bars_px)
        for place, name in enumerate(names):
            bars = in_window[in_window["row"] == name]
            seconds = bars["seconds"].clip(lower=_MIN_BAR_PX * width / bars_px[0])
            spans = 1e3 * np.stack([bars["start"], seconds], axis=1)
            axis.broken_barh(spans, (place - 0.36, 0.72), facecolors=[colours[kind] for kind in bars["activity"]])
        axis.set(xlim=(1e3 * start, 1e3 * (start + width)), xlabel="time (ms)")
        axis.locator_params(axis="x", nbins=8)
        axis.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        axis.set_yticks(range(len(names)), [_short(name) for name in names])
        axis.set_ylim(max(len(names), 1) - 0.5, -0.5)
        axis.tick_params(length=0)
        figure.text(14 / WIDTH, 1 - 14 / height, title, va="top", fontsize=11)
        activities = [Patch(color=colour, label=str(activity)) for activity, colour in colours.items()]
        figure.legend(
            handles=activities, loc="upper left", ncols=max(1, len(activities)), bbox_to_anchor=(0, 1 - 28 / height)
        )
    return figure


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= _MAX_NAME_LETTERS else "…" + text[-_MAX_NAME_LETTERS + 1 :]
