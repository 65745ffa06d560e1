"""Figures of notebook 2f: what settings of Horovod do to a step, and how speed grows with the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, style, subplots

# (scaling, exchange) → colour and marker, and how far beside the number of ranks: no line hides another.
_LOOKS = {
    ("weak", False): (PALETTE[5], "v", -0.12),
    ("weak", True): (PALETTE[0], "o", -0.04),
    ("strong", False): (PALETTE[4], "D", 0.04),
    ("strong", True): (PALETTE[1], "s", 0.12),
}

# Numbers of GPUs and speed-ups: Inception with TensorFlow 0.8 (Murray 2016).
INCEPTION = np.array([1, 100]), np.array([1.0, 56.0])


def settings(table: pd.DataFrame, expected: Mapping[str, float] | None = None, *, caption: str = "") -> Figure:
    """Milliseconds and kilobytes of a step, a row for each setting: all blocks as dots, their median as a bar.

    Args:
        table: as from `step_time.measure`.
        expected: setting → bytes that a formula expects; drawn as a cross.
        caption: see `provenance`.
    """
    names = list(dict.fromkeys(table["setting"]))
    height = 150 + 34 * len(names)
    with style():
        figure, axes = subplots(height=height, columns=2, caption=caption)
        for axis, column, unit in zip(axes, ("seconds", "bytes"), (1e3, 1e-3)):
            for row, name in enumerate(names):
                values = unit * table.loc[table["setting"] == name, column].to_numpy()
                middle = np.median(values)
                axis.barh(row, middle, height=0.62, color=PALETTE[5], alpha=0.55, linewidth=0)
                axis.plot(values, np.full(len(values), row), "o", color=PALETTE[0], markersize=3.5, alpha=0.6)
                edge = max(middle, values.max()) if column == "seconds" else middle
                axis.annotate(
                    f"{middle:.3g}" if middle < 1000 else f"{middle:,.0f}",
                    (edge, row), (9, 0), textcoords="offset points", va="center", fontsize=9.5,
                )  # fmt: skip
            axis.set_yticks(range(len(names)), names if axis is axes[0] else [])
            axis.set_ylim(len(names) - 0.4, -0.6)
            axis.set_xlim(0, 1.17 * axis.get_xlim()[1])
            axis.grid(False, axis="y")
        if expected:
            known = [(row, 1e-3 * expected[name]) for row, name in enumerate(names) if name in expected]
            axes[1].plot(
                [value for _, value in known], [row for row, _ in known], "x",
                color=PALETTE[1], markersize=8, markeredgewidth=2, label="2(N−1)/N · bytes of the gradient",
            )  # fmt: skip
            figure.legend(loc="upper right", handletextpad=0.2)
        axes[0].set_title("time of a step")
        axes[0].set_xlabel("milliseconds")
        axes[1].set_title("sent by a rank in a step")
        axes[1].set_xlabel("kilobytes")
        figure.subplots_adjust(left=142 / WIDTH, wspace=0.08)
    return figure


def sweep(table: pd.DataFrame, panels: Mapping[str, str], floor: float, *, caption: str = "") -> Figure:
    """Milliseconds of a step over the value of a knob, a panel for each: blocks as dots, a line of medians; kilobytes.

    Args:
        table: columns knob, value, seconds, bytes. The values of a knob are drawn in their order, at equal distances.
        panels: knob → label of its axis.
        floor: milliseconds of a step without exchange, a dashed line.
    """
    with style():
        figure, axes = subplots(height=360, columns=len(panels), caption=caption)
        ceiling = 1.06e3 * table["seconds"].max()
        for axis, (knob, label) in zip(axes, panels.items()):
            rows = table[table["knob"] == knob]
            values = list(dict.fromkeys(rows["value"]))
            middle = rows.groupby("value")[["seconds", "bytes"]].median().loc[values]
            for place, value in enumerate(values):
                numbers = 1e3 * rows.loc[rows["value"] == value, "seconds"]
                axis.plot(np.full(len(numbers), place), numbers, "o", color=PALETTE[0], markersize=3.5, alpha=0.4)
                axis.text(
                    place, 1.02, f"{1e-3 * middle['bytes'].iloc[place]:.0f} kB", fontsize=8.5, ha="center",
                    color=PALETTE[1], transform=axis.get_xaxis_transform(),
                )  # fmt: skip
            axis.plot(1e3 * middle["seconds"].to_numpy(), color=PALETTE[0])
            axis.axhline(floor, color=FAINT, linestyle="--", linewidth=1)
            axis.set_xticks(range(len(values)), values)
            axis.set_xlim(-0.5, len(values) - 0.5)
            axis.set_ylim(0, ceiling)
            if axis is not axes[0]:
                axis.set_yticklabels([])
            axis.set_xlabel(label)
        axes[0].set_ylabel("milliseconds for a step")
        axes[0].text(
            0.98, floor, "without exchange", color=FAINT, fontsize=9, ha="right", va="top",
            transform=axes[0].get_yaxis_transform(),
        )  # fmt: skip
        figure.text(56 / WIDTH, 1 - 22 / 360, "above: what a rank sends in a step", color=PALETTE[1], fontsize=9.5)
        figure.subplots_adjust(left=64 / WIDTH, wspace=0.08)
    return figure


def speed(table: pd.DataFrame, cores: int, *, best: float | None = None, caption: str = "") -> Figure:
    """Images a second and efficiency by the number of ranks: weak and strong scaling, and copies that exchange nothing.

    Args:
        table: columns scaling ("weak" or "strong"), exchange (bool), ranks, rate (images/s of all ranks together),
            efficiency. Several rows for the same are drawn as dots, and a line through their medians.
        cores: where the machine ends, a vertical line.
        best: images/s of one process that uses all cores, a horizontal line.
    """
    with style():
        figure, (left, right) = subplots(height=390, columns=2, caption=caption)
        counts = sorted(set(table["ranks"]))
        single = table.loc[table["ranks"] == 1, "rate"].median()
        fine = np.array([1, max(counts)])
        left.plot(fine, single * fine, color=FAINT, linestyle=":", linewidth=1.4, label="ideal")
        right.axhline(1, color=FAINT, linestyle=":", linewidth=1.4)
        for (kind, exchange), (colour, marker, beside) in _LOOKS.items():
            rows = table[(table["scaling"] == kind) & (table["exchange"] == exchange)]
            if rows.empty:
                continue
            look = {"color": colour, "marker": marker, "linestyle": "-" if exchange else "--"}
            face = colour if exchange else "white"
            for axis, column in ((left, "rate"), (right, "efficiency")):
                axis.plot(rows["ranks"] + beside, rows[column], marker, color=colour, alpha=0.3, markersize=3)
                middle = rows.groupby("ranks")[column].median()
                label = kind if exchange else f"{kind}, copies"
                axis.plot(middle.index + beside, middle, label=label, markerfacecolor=face, **look)
        if best:
            left.axhline(best, color=PALETTE[2], linewidth=1.2, linestyle="-.", label="one process, all cores")
        for axis in (left, right):
            axis.axvline(cores, color=INK, linewidth=0.8, alpha=0.6)
            axis.set_xticks(counts)
            axis.set_xlabel("number of ranks N, one thread each")
            axis.set_ylim(bottom=0)
        right.text(cores, 0.02, f" {cores} cores", color=INK, fontsize=9, transform=right.get_xaxis_transform())
        left.set_title("images a second, all ranks together")
        right.set_title("efficiency")
        right.set_xlabel("N (points of one N side by side)")
        right.set_ylim(0, max(1.12, 1.05 * table["efficiency"].max()))
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=6, columnspacing=1.2, handlelength=2.6)
        figure.subplots_adjust(left=70 / WIDTH, wspace=0.16)
    return figure


def laws(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float], float]],
    *,
    log: bool = True,
    both: bool = False,
    reach: int = 128,
    caption: str = "",
) -> Figure:
    """Speed-up by the number of ranks, on log axes, on linear axes, or on both side by side.

    Args:
        curves: name → (numbers of ranks, measured speed-up, serial fraction s of the law that is drawn through them).
        log: which axes, where it is not both.
        both: two panels.
        reach: the largest number of ranks on the axis.
    """
    scales = (True, False) if both else (log,)
    with style():
        figure, axes = subplots(height=400, columns=len(scales), caption=caption)
        for axis, logarithmic in zip(axes, scales):
            _laws(axis, curves, logarithmic, reach)
            axis.set_title(("log axes" if logarithmic else "linear axes") + (": the same data" if both else ""))
            axis.set_xlabel("number of ranks N")
        axes[0].set_ylabel("speed-up over one rank")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=4)
        figure.subplots_adjust(left=64 / WIDTH)
    return figure


def _laws(axis: Axes, curves: Mapping, log: bool, reach: int) -> None:
    fine = np.geomspace(1, reach, 200) if log else np.linspace(1, reach, 200)
    axis.plot(fine, fine, color=FAINT, linestyle=":", linewidth=1.4, label="ideal")
    for number, (name, (ranks, speedup, serial)) in enumerate(curves.items()):
        colour = PALETTE[number]
        axis.plot(fine, 1 / (serial + (1 - serial) / fine), color=colour, linewidth=1.3)
        axis.plot(ranks, speedup, MARKERS[number], color=colour, label=name)
    if log:
        ticks = [2**k for k in range(int(np.log2(reach)) + 1)]
        for which, scaled in ((axis.xaxis, axis.set_xscale), (axis.yaxis, axis.set_yscale)):
            scaled("log", base=2)
            which.set_major_locator(FixedLocator(ticks))
            which.set_minor_locator(NullLocator())
            which.set_major_formatter("{x:g}")
        axis.set_xlim(0.9, reach * 1.1)
        axis.set_ylim(0.7, reach * 1.1)
    else:
        axis.set_xlim(0, reach)
        axis.set_ylim(0, reach)
