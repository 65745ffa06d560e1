"""Figures of notebook 5a: powers of two in a training beside the ranges of formats, and the recorded experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from course_lib import precision, statistics
from course_lib.notebook.plots.style import (
    FAINT,
    MARKERS,
    PALETTE,
    WIDTH,
    Figure,
    empty_figure,
    panel,
    powers_of_ten,
    style,
    subplots,
)  # fmt: skip
from labs.lab5_precision_and_memory.lessons.formats_5a import FORMATS

DASHED = (0, (4, 3))
NINE = (*PALETTE, "#8c6d46", "#7a3fb0")  # as many ways as there are
KINDS = ("weights", "activations", "slopes", "gradients")
LOWEST, HIGHEST = -48, 20  # powers of two in the histograms
TALLEST = dict(zip(KINDS, (0.35, 0.65, 0.3, 0.25)))  # shares at the top of the histograms, so that they stay put


def powers(seen: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By tensor, the share of its numbers other than 0 that have each exponent floor(log2 |x|), LOWEST to HIGHEST.

    What lies beyond is counted at the ends.
    """
    found = {}
    for name, x in seen.items():
        exponents = np.clip(np.frexp(x[x != 0])[1] - 1, LOWEST, HIGHEST) - LOWEST
        found[name] = np.bincount(exponents, minlength=HIGHEST - LOWEST + 1) / max(1, exponents.size)
    return found


def histograms(shares: Mapping[str, np.ndarray], caption: str = "") -> Figure:
    """Shares of the powers of two, a panel for each kind of tensor and a line for each layer, with formats' ranges.

    Args:
        shares: "weights 1" and so on → what `powers` counts.
    """
    layers = sorted({int(name.split()[1]) for name in shares})
    with style():
        figure = empty_figure(400, caption)
        for column, kind in enumerate(KINDS):
            axis = panel(figure, 14 + 222 * column, 72, 148, 252)
            curves = {layer: shares[name] for layer in layers if (name := f"{kind} {layer}") in shares}
            top = max(TALLEST[kind], *(share.max() for share in curves.values()))
            for layer, share in curves.items():
                powers_of_two = range(LOWEST, HIGHEST + 1)
                ink = PALETTE[layer % len(PALETTE)]
                axis.plot(powers_of_two, share, color=ink, linewidth=1.4, label=f"layer {layer}")
            _ranges(axis, top)
            axis.set(xlim=(LOWEST, HIGHEST), ylim=(0, 1.5 * top), xlabel="power of two", title=kind)
            axis.set_xticks([-40, -20, 0, 20], ["−40", "−20", "0", "20"])
            axis.set_yticks([])
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", ncols=max(1, len(labels)))
    return figure


def _ranges(axis: Axes, top: float) -> None:
    """Above `top` a bar for each format, from its smallest number to its largest; the subnormal part is thin."""
    for number, form in enumerate(FORMATS):
        low = np.log2(precision.smallest(form.exponent, form.mantissa))
        normal = max(LOWEST, 2 - 2 ** (form.exponent - 1))
        high = np.log2(precision.largest(form.exponent, form.mantissa))
        y = top * (1.44 - 0.1 * number)
        axis.plot([low, normal], [y, y], color=FAINT, linewidth=1.5, solid_capstyle="butt")
        axis.plot([normal, high], [y, y], color=FAINT, linewidth=5, solid_capstyle="butt")
        axis.text(HIGHEST + 2, y, form.name, va="center", fontsize=7)


def along(table: pd.DataFrame, caption: str = "") -> Figure:
    """Shares that a cast to float16 makes 0, along a training.

    Args:
        table: columns updates, kind, layer, lost.
    """
    kinds = list(dict.fromkeys(table["kind"]))
    with style():
        figure, axes = subplots(height=360, columns=len(kinds), caption=caption)
        for axis, kind in zip(axes, kinds):
            for layer, rows in table[table["kind"] == kind].groupby("layer"):
                look = {"color": PALETTE[layer % len(PALETTE)], "marker": MARKERS[layer % len(MARKERS)]}
                axis.plot(rows["updates"], rows["lost"], **look, markersize=5, label=f"layer {layer}")
            axis.set_title(kind)
            axis.set_xlabel("updates")
            axis.set_ylim(0, max(0.05, 1.1 * table["lost"].max()))
        axes[0].set_ylabel("share that becomes 0")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=6)
        figure.subplots_adjust(left=66 / WIDTH)
    return figure


def descents(paths: Mapping[str, Sequence[float]], caption: str = "") -> Figure:
    """A weight on its way to its target 1, by how it is kept: the distance by update."""
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        for number, (name, path) in enumerate(paths.items()):
            distance = np.maximum(np.abs(np.asarray(path) - 1), 1e-6)
            axis.plot(distance, color=PALETTE[number], label=name)
        powers_of_ten(axis)
        axis.set_xlabel("updates")
        axis.set_ylabel("distance from the target")
        figure.legend(*axis.get_legend_handles_labels(), loc="upper left", ncols=len(paths))
        figure.subplots_adjust(left=80 / WIDTH)
    return figure


def bounds(traces: Mapping[str, np.ndarray], bound: object, caption: str = "") -> Figure:
    """Largest magnitudes of a tensor, and what was planned for, by update."""
    with style():
        figure, axes = subplots(height=340, columns=len(traces), caption=caption)
        for axis, (name, trace) in zip(axes, traces.items()):
            axis.plot(trace, color=PALETTE[0], linewidth=1, label="largest magnitude")
            planned = [bound([float(one) for one in trace[:update]]) for update in range(1, len(trace))]
            axis.plot(range(1, len(trace)), planned, color=PALETTE[1], linewidth=1.2, label="planned for")
            powers_of_ten(axis)
            axis.set_title(name)
            axis.set_xlabel("updates")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=2)
        figure.subplots_adjust(wspace=0.4)
    return figure


def against_float32(table: pd.DataFrame) -> pd.DataFrame:
    """Test accuracy by way, and its difference from float32, seed by seed: mean, half, difference, difference half."""
    rows = table[table["use"] == "result"].sort_values("seed", kind="stable")
    plain = rows.loc[rows["way"] == "float32", "test accuracy"].to_numpy()
    found = {}
    for way, part in rows.groupby("way", sort=False):
        values = part["test accuracy"].to_numpy()
        mean, half = statistics.mean(values)
        difference, around = statistics.paired(values, plain) if way != "float32" else (0.0, 0.0)
        found[way] = {"mean": mean, "half": half, "difference": difference, "difference half": around}
    return pd.DataFrame(found).T


def window_means(table: pd.DataFrame) -> pd.DataFrame:
    """Of part `window`: way, power, mean test accuracy and half of its interval."""
    rows = table[table["use"] == "window"]
    found = rows.groupby(["way", "power"], sort=False)["test accuracy"].agg(lambda values: statistics.mean(values))
    return pd.DataFrame(found.tolist(), index=found.index, columns=["mean", "half"]).reset_index()


def _look(number: int) -> dict:
    """Colour and marker of the way with this number."""
    return {"color": NINE[number], "marker": (*MARKERS, "<", ">")[number], "markersize": 5}


def _accuracies(axis: Axes, rows: pd.DataFrame, table: pd.DataFrame) -> None:
    """Test accuracy, a line for each way: its mean with an interval, and a dot for each seed."""
    means, order = against_float32(table), list(dict.fromkeys(rows["way"]))
    for number, way in enumerate(order):
        place, look = means.loc[way], _look(number)
        axis.errorbar([place["mean"]], [number], xerr=[place["half"]], **look, capsize=3)
        dots = rows.loc[rows["way"] == way, "test accuracy"]
        axis.plot(dots, [number - 0.25] * len(dots), ".", color=look["color"], alpha=0.6)
    axis.set_yticks(range(len(order)), order)
    axis.set_ylim(len(order) - 0.5, -0.75)
    axis.set_title("test accuracy")


def _losses(rows: pd.DataFrame) -> tuple[list[str], list[int]]:
    """The columns of validation losses, and their epochs."""
    names = [name for name in rows if name.startswith("loss at ")]
    return names, [int(name.rpartition(" ")[2]) for name in names]


def formats(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `number_formats`, by way: validation loss beside that of float32, and test accuracy."""
    rows = table[table["use"] == "result"]
    losses, epochs = _losses(rows)
    plain = rows.loc[rows["way"] == "float32", losses].mean()
    with style():
        figure, (left, right) = subplots(
            height=460, columns=2, caption=f"{caption} · bars: 95 % intervals (Student's t)"
        )
        for number, way in enumerate(dict.fromkeys(rows["way"])):
            values = rows.loc[rows["way"] == way, losses].mean()
            left.plot(epochs, values - plain, **_look(number), linewidth=1.2)
        left.set_xlabel("epochs")
        left.set_title("validation loss, minus that of float32")
        left.set_xticks(epochs)
        _accuracies(right, rows, table)
        figure.subplots_adjust(left=72 / WIDTH, wspace=0.78)
    return figure


def mixed_lars(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `mixed_lars`, by way: validation loss by epoch, with intervals, and test accuracy."""
    rows = table[table["use"] == "result"]
    losses, epochs = _losses(rows)
    with style():
        figure, (left, right) = subplots(
            height=460, columns=2, caption=f"{caption} · bars: 95 % intervals (Student's t)"
        )
        for number, (_, part) in enumerate(rows.groupby("way", sort=False)):
            means, halves = zip(*(statistics.mean(part[name]) for name in losses))
            at = np.array(epochs) + 0.12 * (number - 2.5)  # side by side
            left.errorbar(at, np.array(means), np.array(halves), **_look(number), linewidth=1.2, capsize=2)
        left.set_xlabel("epochs")
        left.set_title("validation loss")
        left.set_xticks(epochs)
        _accuracies(right, rows, table)
        figure.subplots_adjust(left=60 / WIDTH, wspace=0.85)
    return figure


def window(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `number_formats`: test accuracy by a static scale of the loss."""
    rows = window_means(table)
    with style():
        figure, (axis,) = subplots(height=380, caption=f"{caption} · bars: 95 % intervals (Student's t)")
        for number, (way, part) in enumerate(rows.groupby("way", sort=False)):
            part = part.sort_values("power")
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "capsize": 3}
            axis.errorbar(part["power"], part["mean"], part["half"], **look, label=way)
        axis.axvline(0, color=FAINT, linestyle=DASHED, linewidth=1.2)
        axis.set_xlabel("the loss is multiplied by 2 to the power of")
        axis.set_ylabel("test accuracy")
        figure.legend(*axis.get_legend_handles_labels(), loc="upper left", ncols=2)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure
