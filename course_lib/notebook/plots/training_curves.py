"""Training curves: loss and accuracy of every rank, and images per second by batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from course_lib.notebook.plots.style import FAINT, MARKERS, PALETTE, Figure, colour, style, subplots


def curves(epochs: pd.DataFrame, batches: pd.DataFrame, *, caption: str = "") -> Figure:
    """Draw loss and accuracy of every rank: training as lines, validation as markers.

    Args:
        epochs: one row for each rank and epoch, with the columns rank, epoch (1 is the first), and any of loss,
            accuracy, val_loss, val_accuracy.
        batches: one row for each measured batch: rank, epoch (2.5 is half-way through the third), loss, accuracy. The
            training lines show the batches. Keras averages them since the start of the epoch, so each epoch has its
            own line.
        caption: the line under the figure, see `provenance`.
    """
    ranks = sorted({*epochs["rank"], *batches["rank"]})
    metrics = [metric for metric in ("loss", "accuracy") if _has(batches, metric)] or ["loss"]
    validated = any(_has(epochs, f"val_{metric}") for metric in metrics)
    with style():
        figure, axes = subplots(columns=len(metrics), caption=caption)
        for axis, metric in zip(axes, metrics):
            for place, rank in enumerate(ranks):
                # Thin lines over thick ones and open markers, so that ranks with equal values stay visible.
                options = {"color": colour(rank), "linewidth": 1.3 + 1.7 * (1 - (place + 1) / len(ranks))}
                rows = _thinned(batches[batches["rank"] == rank], 1200 // len(ranks))
                axis.plot(*_line(rows, metric), **options)
                ends = epochs[epochs["rank"] == rank]
                if _has(ends, f"val_{metric}"):
                    options = _validation(rank)
                    axis.plot(ends["epoch"], ends[f"val_{metric}"], markevery=1 + len(ends) // 20, **options)
            axis.set_title(metric)
            axis.set_xlabel("epoch")
            axis.margins(x=0.02)
            axis.locator_params(axis="x", nbins=8, integer=True)
        _legend(figure, ranks, validated)
    return figure


def throughput(
    speeds: Mapping[int, Sequence[float]], *, planned: Sequence[int] | None = None, caption: str = ""
) -> Figure:
    """Draw images per second and milliseconds per step, by batch size.

    Args:
        speeds: batch size → images per second of one or more measurements.
        planned: all batch sizes that will be measured; the axis has room for them from the start.
        caption: the line under the figure, see `provenance`.
    """
    planned = list(planned or speeds)
    sizes = sorted(speeds)
    medians = np.array([np.median(speeds[size]) for size in sizes])
    with style():
        figure, (left, right) = subplots(height=360, columns=2, caption=caption)
        for size in sizes:
            values = np.asarray(speeds[size])
            left.plot([size] * len(values), values, "o", color=PALETTE[0], alpha=0.35, markeredgewidth=0)
            right.plot([size] * len(values), 1e3 * size / values, "o", color=PALETTE[0], alpha=0.35, markeredgewidth=0)
        left.plot(sizes, medians, color=PALETTE[0])
        right.plot(sizes, 1e3 * np.array(sizes) / medians, color=PALETTE[0])
        left.set_title("images a second")
        left.set_ylim(bottom=0)
        right.set_title("milliseconds for a step")
        right.set_yscale("log")
        if len(sizes):
            # The time of a step in proportion to the batch, at the highest throughput.
            line = 1e3 * np.array(planned) / medians.max()
            right.plot(planned, line, color=FAINT, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1)
            right.text(
                0.97, 0.06, "dashed: in proportion to the batch,\nat the highest throughput", ha="right",
                transform=right.transAxes, color=FAINT, fontsize=9,
            )  # fmt: skip
            right.set_ylim(line[0] / 1.6, line[-1] * 2)
        right.yaxis.set_major_formatter("{x:g}")
        right.yaxis.set_minor_formatter("")
        for axis in (left, right):
            batch_axis(axis, planned)
        left.yaxis.set_major_formatter("{x:,.0f}")
    return figure


def batch_axis(axis: Axes, sizes: Sequence[int]) -> None:
    """Make the x axis logarithmic for batch sizes, with a tick at each of `sizes`."""
    axis.set_xscale("log", base=2)
    axis.set_xlabel("batch size B")
    if sizes:
        axis.set_xlim(min(sizes) / 1.4, max(sizes) * 1.4)
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.minorticks_off()


def _has(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and frame[column].notna().any()


def _thinned(rows: pd.DataFrame, points: int) -> pd.DataFrame:
    """Every k-th row, so that about `points` rows remain, including the last."""
    return rows.iloc[:: -max(1, len(rows) // points)][::-1]


def _line(rows: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line that is interrupted between epochs, if there are enough points in each epoch."""
    # A batch that ends at 2.0 is the last of epoch 2, so a batch's epoch is the ceiling.
    starts = np.flatnonzero(np.diff(np.ceil(rows["epoch"].to_numpy(float)))) + 1
    if len(rows) < 4 * len(starts):
        starts = starts[:0]
    return tuple(np.insert(rows[column].to_numpy(float), starts, np.nan) for column in ("epoch", metric))


def _validation(rank: int) -> dict:
    return {
        "color": colour(rank),
        "linestyle": (0, (1, 2)),
        "linewidth": 1.2,
        "marker": MARKERS[rank % len(MARKERS)],
        "markerfacecolor": "none",
        "markeredgewidth": 1.6,
    }


def _legend(figure: Figure, ranks: Sequence[int], validated: bool) -> None:
    handles = [Line2D([], [], color=colour(rank), linewidth=3, label=f"rank {rank}") for rank in ranks]
    handles.append(Line2D([], [], color=FAINT, label="training"))
    if validated:
        handles.append(Line2D([], [], **{**_validation(0), "color": FAINT}, label="validation"))
    figure.legend(handles=handles, loc="upper left", ncols=len(handles), handlelength=1.6, columnspacing=1.4)
