"""Notebook 5b: errors of means, the window of a format, trainings with few bits, and a slow link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from course_lib import statistics
from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    WIDTH,
    Figure,
    empty_figure,
    style,
    subplots,
)
from course_lib.precision import smallest
from labs.lab5_precision_and_memory.lessons import narrow_wire as wire

DASHED = (0, (4, 3))
WINDOW = "#dfeaf2"
METHODS = {  # factor, way → words
    ("none", "ring"): "plain cast, ring",
    ("all", "ring"): "one factor for all, ring",
    ("each", "ring"): "factors, ring",
    ("each", "twice"): "factors, rounded twice",
    ("each", "once"): "factors, rounded once",
}
SHADES = LinearSegmentedColormap.from_list("lost", [PAPER, "#f3c9a5", "#d55e00", "#5e2a00"])
DARKEST = 20  # points that are lost


def errors(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The error of a mean by the number of ranks, and how many numbers a rank sends for it.

    Args:
        table: columns way, ranks, error (relative), numbers (sent by a rank for each of the gradient).
    """
    with style():
        figure, (left, right) = subplots(height=360, columns=2, caption=caption)
        for number, (way, rows) in enumerate(table.groupby("way", sort=False)):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            left.plot(rows["ranks"], rows["error"], label=way, **look)
            # Two ways send the same: shifted and dashed, both can be seen.
            right.plot(rows["ranks"] * 1.03**number, rows["numbers"], linestyle="-" if number != 1 else DASHED, **look)
        for axis in (left, right):
            axis.set_xscale("log")
            ranks = sorted(table["ranks"].unique())
            axis.set_xticks(ranks, [str(n) for n in ranks])
            axis.minorticks_off()
            axis.set_xlabel("ranks N")
        left.set_ylim(bottom=0)
        left.set_title("error of the mean / length of the exact mean")
        right.set_yscale("log")
        right.set_yticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
        right.set_title("numbers sent / numbers in the gradient")
        figure.legend(loc="upper left", ncols=3)
    return figure


def windows(panels: Mapping[str, Mapping[str, np.ndarray]], form: wire.Format, *, caption: str = "") -> Figure:
    """Where the numbers of each tensor lie on a scale of octaves, against what a format holds.

    Args:
        panels: title → tensor → numbers as they are cast; zeros are left out.
    """
    low, high = smallest(*form), wire.top(form)
    with style():
        names = list(next(iter(panels.values())))
        figure, axes = subplots(height=130 + 34 * len(names), columns=len(panels), caption=caption)
        for axis, (title, tensors) in zip(axes, panels.items()):
            axis.axvspan(np.log2(low) - 1, np.log2(high), color=WINDOW, zorder=0)
            for place, numbers in enumerate(tensors.values()):
                sizes = np.abs(numbers[numbers != 0])
                octaves = np.log2(np.quantile(sizes, [0.05, 0.5, 1.0]))
                axis.plot(octaves[[0, 2]], [place, place], color=PALETTE[0], linewidth=2.5, solid_capstyle="butt")
                axis.plot(octaves[1], place, "o", color=PALETTE[0])
                share = np.mean(sizes <= low / 2)  # a half is rounded to even, which is 0
                axis.text(0.99, place - 0.14, f"{share:.0%}", transform=axis.get_yaxis_transform(), ha="right",
                          color=FAINT, fontsize=9)  # fmt: skip
            axis.set_ylim(len(names) - 0.4, -0.6)
            axis.set_yticks(range(len(names)), names if axis is axes[0] else [])
            axis.grid(False, axis="y")
            axis.set_xlim(-22, 8)
            axis.set_xticks(range(-20, 9, 4), [f"2{_raised(power)}" for power in range(-20, 9, 4)])
            axis.set_title(f"{title} (right: share that becomes 0)")
            axis.set_xlabel("size: 5th percentile to largest; dot: median")
        figure.subplots_adjust(left=84 / WIDTH, top=1 - 36 / (130 + 34 * len(names)), wspace=0.08)
    return figure


def losses(runs: Mapping[str, Sequence[float]], *, title: str = "training loss", caption: str = "") -> Figure:
    """The loss of each update, averaged over five; a training that broke off ends with a cross."""
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        longest = max(map(len, runs.values()))
        for number, (name, values) in enumerate(runs.items()):
            values = np.array(values, float)
            kernel = min(5, len(values))
            smooth = np.convolve(values, np.ones(kernel) / kernel, "valid")
            updates = np.arange(len(smooth)) + kernel
            axis.plot(updates, smooth, color=PALETTE[number], label=name)
            if len(values) < longest:
                axis.plot(updates[-1], smooth[-1], "X", color=PALETTE[number], markersize=10)
        axis.set_xlim(0, longest + 1)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("updates")
        axis.set_title(title)
        figure.legend(loc="upper left", ncols=len(runs))
    return figure


def against_float32(table: pd.DataFrame) -> pd.DataFrame:
    """For each setting of the result runs of `gradient_bits`, points of test accuracy less float32's, seed by seed.

    Returns columns part, regime, exponent, mantissa, scale, way, difference, half (of the 95 % interval),
    sent as 0, accuracy, seeds.
    """
    results = table[table["use"] == "result"]
    plain = _plain(results)
    keys = ["part", "regime", "exponent", "mantissa", "scale", "way"]
    rest = results[results["part"] != "float32"].assign(way=lambda rows: rows["way"].fillna("ring"))
    rows = []
    for values, runs in rest.groupby(keys, sort=False):
        theirs = [plain[values[1], seed] for seed in runs["seed"]]
        difference, half = statistics.paired(100 * runs["test accuracy"], 100 * np.array(theirs))
        rows.append(
            {
                **dict(zip(keys, values)),
                "difference": difference,
                "half": half,
                "sent as 0": runs["sent as 0"].mean(),
                "accuracy": runs["test accuracy"].mean(),
                "seeds": len(runs),
            }
        )
    return pd.DataFrame(rows)


def loses_more(table: pd.DataFrame, form: wire.Format, scale: str, way: str) -> tuple[float, float]:
    """Points that a batch of 64 loses more than one of 1,280 against float32, and half of the 95 % interval.

    The two scatter unlike, so the interval is Welch's.
    """
    results = table[table["use"] == "result"].assign(way=lambda rows: rows["way"].fillna("ring"))
    plain, lost = _plain(results), []
    here = (results["scale"] == scale) & (results["way"] == way) & (results["part"] != "float32")
    runs = results[here & (results["exponent"] == form[0]) & (results["mantissa"] == form[1])]
    for regime in ("64", "1,280"):
        accuracies = runs[runs["regime"] == regime].set_index("seed")["test accuracy"]
        lost.append([100 * (plain[regime, seed] - accuracy) for seed, accuracy in accuracies.items()])
    return statistics.welch(*lost)


def _plain(results: pd.DataFrame) -> pd.Series:
    """Test accuracy in float32 by regime and seed."""
    return results[results["part"] == "float32"].set_index(["regime", "seed"])["test accuracy"]


def bits_map(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `gradient_bits`: points lost by format, a panel for each batch and method."""
    rows = against_float32(table)
    rows = rows[rows["part"] == "map"]
    regimes = list(dict.fromkeys(rows["regime"]))
    methods = list(dict.fromkeys(zip(rows["scale"], rows["way"])))
    exponents, mantissas = sorted(rows["exponent"].unique()), sorted(rows["mantissa"].unique())
    height = 118 + len(regimes) * (44 + 28 * len(exponents))
    note = "points of test accuracy, less float32's; bold: its 95 % interval (t) leaves 0 out"
    with style():
        figure = empty_figure(height, " · ".join(part for part in (note, caption) if part))
        grid = figure.subplots(len(regimes), len(methods), squeeze=False)
        for line, regime in zip(grid, regimes):
            for axis, (scale, way) in zip(line, methods):
                part = rows[(rows["regime"] == regime) & (rows["scale"] == scale) & (rows["way"] == way)]
                _draw_map(axis, part, exponents, mantissas)
                axis.set_title(f"B = {regime}: {METHODS[scale, way]}", fontsize=10)
            line[0].set_ylabel("exponent bits")
        for axis in grid[-1]:
            axis.set_xlabel("mantissa bits")
        figure.subplots_adjust(
            left=60 / WIDTH, right=1 - 16 / WIDTH, top=1 - 34 / height, bottom=78 / height, wspace=0.1, hspace=0.3
        )
    return figure


def _draw_map(axis: Axes, rows: pd.DataFrame, exponents: list, mantissas: list) -> None:
    lost = np.full((len(exponents), len(mantissas)), np.nan)
    for _, row in rows.iterrows():
        y, x = exponents.index(row["exponent"]), mantissas.index(row["mantissa"])
        lost[y, x] = -row["difference"]
        sure = abs(row["difference"]) > row["half"]
        dark = lost[y, x] > DARKEST / 2
        axis.text(
            x, y, _points(row["difference"]), ha="center", va="center", fontsize=8.5,
            color=PAPER if dark else INK if sure else FAINT, weight="bold" if sure else "normal",
        )  # fmt: skip
    axis.imshow(lost, cmap=SHADES, vmin=0, vmax=DARKEST, aspect="auto")
    axis.set_xticks(range(len(mantissas)), mantissas)
    axis.set_yticks(range(len(exponents)), exponents)
    axis.grid(False)


def _points(difference: float) -> str:
    return f"{difference:+.{1 if abs(difference) < 9.95 else 0}f}".replace("-", "−")


def differences(panels: Mapping[str, pd.DataFrame], *, caption: str = "") -> Figure:
    """Points of test accuracy less float32's, with their intervals.

    Args:
        panels: title → rows with name, difference and half.
    """
    with style():
        tallest = max(map(len, panels.values()))
        height = 120 + 34 * tallest
        figure, axes = subplots(height=height, columns=len(panels), caption=caption)
        for axis, (title, rows) in zip(axes, panels.items()):
            places = np.arange(len(rows))
            axis.axvline(0, color=FAINT, linestyle=DASHED, linewidth=1.2)
            axis.errorbar(rows["difference"], places, xerr=rows["half"], fmt="o", color=PALETTE[0], capsize=3)
            axis.set_yticks(places, rows["name"] if axis is axes[0] else [])
            axis.set_ylim(tallest - 0.5, -0.5)
            axis.grid(False, axis="y")
            axis.set_title(title)
            axis.set_xlabel("points of accuracy, less float32's; 95 % (t)")
        figure.subplots_adjust(left=180 / WIDTH, top=1 - 36 / height, wspace=0.08)
    return figure


def slow_link(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `slow_link`: milliseconds a step by bits, a panel for each link."""
    caption = " · ".join(part for part in ("median; whiskers: fastest and slowest tenth", caption) if part)
    links = list(dict.fromkeys(table["link"]))
    with style():
        figure, axes = subplots(height=340, columns=len(links), caption=caption)
        for axis, link in zip(axes, links):
            rows = table[table["link"] == link]
            places = np.arange(len(rows))
            step, computing, cable = (1e3 * rows[name] for name in ("seconds per step", "computing", "cable alone"))
            axis.bar(places, computing, color=PALETTE[5], label="gradient")
            axis.bar(places, cable, bottom=computing, color=PALETTE[1], label="bytes ÷ bandwidth")
            rest = np.maximum(step - computing - cable, 0)
            axis.bar(places, rest, bottom=computing + cable, color="#cfcfca", label="casting, packing, waiting")
            spread = 1e3 * np.stack([rows["seconds per step"] - rows["fastest tenth"],
                                     rows["slowest tenth"] - rows["seconds per step"]])  # fmt: skip
            axis.errorbar(places, step, spread, fmt="none", color=INK, capsize=3, linewidth=1.2)
            names = ["float32" if bits == 32 else f"{bits} bits" for bits in rows["bits"]]
            axis.set_xticks(places, names)
            axis.grid(False, axis="x")
            axis.set_title(link)
        axes[0].set_ylabel("ms a step")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=3)
        figure.subplots_adjust(left=66 / WIDTH, wspace=0.2)
    return figure


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
