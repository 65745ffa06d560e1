"""Figures of notebook 1f: update rules on surfaces, batch size and time to a target, throughput under the roofline."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from course_lib.cost.roofline import attainable, ridge
from course_lib.notebook.plots.descent_paths import Ground, ground, path, race  # noqa: F401  (used by the notebook)
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, style, subplots


def to_target(table: pd.DataFrame, *, title: str = "", caption: str = "") -> Figure:
    """Steps, examples and seconds to the target over the batch size: a panel for each, its winner marked.

    Args:
        table: one row for each run that reached the target: batch_size and, of steps, examples, seconds, what is drawn.
    """
    shown = [what for what in ("steps", "examples", "seconds") if what in table]
    with style():
        figure, axes = subplots(height=390, columns=len(shown), caption=caption)
        figure.subplots_adjust(wspace=0.3, bottom=82 / 390)
        sizes = sorted(table["batch_size"].unique())
        for number, (axis, what) in enumerate(zip(axes, shown)):
            runs = table.groupby("batch_size")[what]
            middle, low, high = runs.median(), runs.min(), runs.max()
            spread = np.stack([middle - low, high - middle])
            axis.errorbar(middle.index, middle, spread, color=PALETTE[number], marker=MARKERS[number], capsize=3)
            best = middle.idxmin()
            axis.plot(best, middle[best], "o", markersize=16, markerfacecolor="none", color=INK, markeredgewidth=1.5)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.xaxis.set_major_locator(FixedLocator(sizes[::2]))
            axis.xaxis.set_minor_locator(FixedLocator(sizes))
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))
            axis.yaxis.set_major_locator(LogLocator(numticks=8))
            axis.yaxis.set_minor_formatter(NullFormatter())
            axis.set_title(f"{what} to target · best m = {best:,}", fontsize=10)
            axis.set_xlabel("batch size m")
        figure.text(14 / WIDTH, 1 - 24 / 390, title, fontsize=10.5)
    return figure


def roofline(table: pd.DataFrame, peak: float, bandwidth: float, *, caption: str = "") -> Figure:
    """Images per second by batch size, and the same runs under the machine's roof.

    Args:
        table: one row for each layer and batch size: layer (its name), batch_size, images_per_second,
            intensity (FLOP per byte), flops (FLOP/s).
        peak: FLOP/s.
        bandwidth: bytes/s.
    """
    with style():
        figure, (left, right) = subplots(height=430, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.24, left=70 / WIDTH)
        for number, (layer, rows) in enumerate(table.groupby("layer", sort=False)):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 6}
            left.plot(rows["batch_size"], rows["images_per_second"], label=layer, **look)
            right.plot(rows["intensity"], rows["flops"] / 1e9, linewidth=0.8, **look)
        left.set_xscale("log", base=2)
        left.xaxis.set_major_formatter("{x:,.0f}")
        left.set_yscale("log")
        left.set_xlabel("batch size m")
        left.set_title("images per second")
        knee = ridge(peak, bandwidth)
        reach = np.array([table["intensity"].min() / 2, knee, max(table["intensity"].max(), knee) * 2])
        right.plot(reach, attainable(reach, peak, bandwidth) / 1e9, color=INK, linewidth=2, zorder=1)
        right.axvline(knee, color=FAINT, linestyle=":", linewidth=1.2, zorder=1)
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xlim(reach[0], reach[-1])
        right.set_ylim(min(table["flops"].min(), attainable(reach[0], peak, bandwidth)) / 1e9 / 1.5, peak / 1e9 * 2)
        right.set_xlabel("FLOP per byte")
        right.set_title(f"GFLOP/s, from left to right m = 1 … {table['batch_size'].max():,}")
        right.text(knee * 1.15, peak / 1e9 * 1.1, f"peak {peak / 1e9:,.0f} GFLOP/s", fontsize=9.5)
        # Along the slanted part of the roof, whose angle on the page is that of a decade by a decade.
        (x_0, y_0), (x_1, y_1) = right.transData.transform([(1, 1), (10, 10)])
        right.text(
            0.8,  # right of a batch of 1, which lies at half a FLOP per byte
            0.8 * bandwidth / 1e9 * 1.15,
            f"memory {bandwidth / 1e9:,.0f} GB/s",
            rotation=np.degrees(np.arctan2(y_1 - y_0, x_1 - x_0)),
            rotation_mode="anchor",
            fontsize=9.5,
        )
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=table["layer"].nunique())
    return figure
