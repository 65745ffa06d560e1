"""Figures of notebook 5d: zeros by layer, sparse products, schedules of pruning, and the recorded experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from course_lib import statistics
from course_lib.notebook import sweep
from course_lib.notebook.plots.style import FAINT, MARKERS, PALETTE, WIDTH, Figure, powers_of_ten, style, subplots
from labs.lab5_precision_and_memory.lessons import activations, sparse_regression

DASHED = (0, (4, 3))
VALUE, INDEX = 4, 2  # bytes of a weight, and of an index
GROUP_SIZES = {"weights": 1, "rows": 3}  # single weights in a group that has an index of its own
PRUNABLE = 23_040  # weights of the two kernels
CHANNELS = (16, 32, 64)  # into the first of them, between them, and out of the second
LABELS = {
    "not retrained": "not retrained",
    "at once": "at once, retrained",
    "gradual": "gradually, retrained",
}
GRAIN_WAYS = {"at once": "single weights", "rows": "rows of three", "filters": "filters"}


def zeros(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The share of zeros along a training, a panel for each kind and a line for each block.

    Args:
        table: columns updates, block, kind, zeros.
    """
    with style():
        figure, axes = subplots(height=360, columns=3, caption=caption)
        for axis, kind in zip(axes, activations.KINDS):
            for block, rows in table[table["kind"] == kind].groupby("block"):
                look = {"color": PALETTE[block - 1], "marker": MARKERS[block - 1], "markersize": 5}
                axis.plot(rows["updates"], rows["zeros"], **look, label=f"block {block}")
            axis.set_title(kind)
            axis.set_ylim(0, 1)
            axis.set_xlabel("updates")
        axes[0].set_ylabel("share of zeros")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=3)
        figure.subplots_adjust(left=62 / WIDTH)
    return figure


def race(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Milliseconds of a product by the density of its left factor.

    Args:
        table: as `activations.race` returns it.
    """
    names = {
        "dense": "dense",
        "compressed": "compressed beforehand",
        "compressing": "compressed each time",
        "rows": "whole rows left out",
    }
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        for number, (way, name) in enumerate(names.items()):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5}
            axis.plot(table["density"], 1_000 * table[way], **look, label=name)
        axis.set_xscale("log")
        axis.set_xticks(list(table["density"]), [f"{density:g}" for density in table["density"]])
        axis.minorticks_off()
        powers_of_ten(axis)
        axis.set_xlabel("density: share of weights or activations that are not 0")
        axis.set_ylabel("milliseconds")
        figure.legend(loc="upper left", ncols=4)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def schedules(ways: Mapping[str, Callable], *, caption: str = "") -> Figure:
    """The share that is pruned by update, and the error on each of the small problems, by schedule.

    Args:
        ways: name → (update, updates, final) → share.
    """
    updates, final = sparse_regression.UPDATES, sparse_regression.FINAL
    with style():
        figure, (left, right) = subplots(height=380, columns=2, caption=caption)
        for number, (name, share) in enumerate(ways.items()):
            look = {"color": PALETTE[number], "label": name}
            left.plot([share(update, updates, final) for update in range(updates)], **look)
            found = np.maximum(sparse_regression.errors(share), 1e-6)
            right.plot(found, [number] * len(found), ".", color=PALETTE[number], alpha=0.6)
            right.plot(found.mean(), number, MARKERS[number], color=PALETTE[number], markersize=9)
        left.set_title("share that is pruned")
        left.set_xlabel("updates")
        right.set_title("error on each problem, and their mean")
        right.set_xscale("log")
        right.axvline(0.01, color=FAINT, linestyle=DASHED, linewidth=1.2)
        right.set_yticks(range(len(ways)), list(ways))
        right.set_ylim(len(ways) - 0.5, -0.5)
        right.set_xlabel("squared error over the answers' mean square")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=len(ways))
        figure.subplots_adjust(wspace=0.36)
    return figure


def summary(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean test accuracy of the result seeds and half the width of its interval: columns `by`, mean, half."""
    return sweep.summary(table, by, "test accuracy")


def losses(table: pd.DataFrame) -> pd.DataFrame:
    """What each way loses of the dense network's test accuracy, seed by seed: columns way, density, mean, half."""
    rows = table[table["use"] == "result"].sort_values("seed")
    dense = rows.loc[rows["way"] == "dense", "test accuracy"].to_numpy()
    found = [
        {"way": way, "density": density, **dict(zip(("mean", "half"), statistics.paired(dense, part["test accuracy"])))}
        for (way, density), part in rows[rows["way"] != "dense"].groupby(["way", "density"], sort=False)
    ]
    return pd.DataFrame(found)


def matching_bytes(table: pd.DataFrame, way: str, density: float) -> float:
    """The fewest bytes of single weights, pruned at once, that are not worse than `way` at `density`.

    Not worse: in pairs with the same seed `way` is not ahead by more than the half width of the 95 % interval.
    """
    rows = table[table["use"] == "result"].sort_values("seed")
    scores = {key: part["test accuracy"].to_numpy() for key, part in rows.groupby(["way", "density"])}
    sizes = []
    for (other, stays), found in scores.items():
        if other == "at once":
            ahead, half = statistics.paired(scores[way, density], found)
            sizes += [kept_bytes(other, stays)] if ahead <= half else []
    return min(sizes)


def pruned(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `pruning`: test accuracy by the share that stays, single weights."""
    rows = summary(table, ["way", "density"])
    with style():
        figure, (axis,) = subplots(height=400, caption=f"{caption} · bars: 95 % intervals (Student's t)")
        _dense(axis, rows)
        for number, (way, name) in enumerate(LABELS.items()):
            _curve(axis, rows[rows["way"] == way], "density", number, name)
        _random(axis, rows)
        _density_axis(axis, rows)
        figure.legend(loc="upper left", ncols=5)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def grains(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `pruning`: accuracy of three grains, by density and by bytes with indices."""
    rows = summary(table, ["way", "density"])
    rows["kilobytes"] = [kept_bytes(way, density) / 1_000 for way, density in zip(rows["way"], rows["density"])]
    with style():
        figure, (left, right) = subplots(
            height=400, columns=2, caption=f"{caption} · bars: 95 % intervals (Student's t)"
        )
        for axis, x in ((left, "density"), (right, "kilobytes")):
            _dense(axis, rows)
            for number, (way, name) in enumerate(GRAIN_WAYS.items()):
                _curve(axis, rows[rows["way"] == way], x, number, name if axis is left else "")
        _density_axis(left, rows)
        right.set_xscale("log")
        right.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        right.minorticks_off()
        right.set_xlabel("kilobytes of the two kernels, with indices")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=4)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def kept_bytes(way: str, density: float) -> float:
    """Bytes of the pruned kernels: their values, and the positions as a bitmap or as indices, whichever is smaller.

    A filter that goes takes its row of the matrix with it, and its channel from the next kernel. What stays is a
    smaller dense matrix, without positions.
    """
    if way == "filters":
        return VALUE * live_weights(density)
    values = PRUNABLE * density * VALUE
    groups = PRUNABLE / GROUP_SIZES["rows" if way == "rows" else "weights"]
    return values + min(groups / 8, groups * density * INDEX)


def live_weights(density: float) -> int:
    """Weights of the kernels, pruned by filters, that read a channel that is not constant."""
    inputs, between, outputs = CHANNELS
    first, second = (max(1, round(density * filters)) for filters in (between, outputs))
    return 9 * (first * inputs + second * first)


def recurrent(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `recurrent`: a dot for each seed and the interval of the mean, by network."""
    rows = summary(table, ["network"])
    results = table[table["use"] == "result"]
    with style():
        figure, (axis,) = subplots(height=340, caption=f"{caption} · bars: 95 % intervals (Student's t)")
        for number, (name, mean, half) in enumerate(rows.itertuples(index=False)):
            values = results.loc[results["network"] == name, "test accuracy"]
            axis.plot(values, [number - 0.16] * len(values), ".", color=PALETTE[number], alpha=0.6)
            look = {"color": PALETTE[number], "marker": MARKERS[number], "capsize": 3}
            axis.errorbar([mean], [number], xerr=[half], **look)
        axis.set_yticks(range(len(rows)), list(rows["network"]))
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_xlabel("test accuracy")
        figure.subplots_adjust(left=210 / WIDTH)
    return figure


def better(table: pd.DataFrame, ours: str, theirs: str, names: tuple[str, str]) -> str:
    """Which of two recorded networks has the higher test accuracy, by `names`; "neither" where it may be chance."""
    scores = table[table["use"] == "result"].pivot(index="seed", columns="network", values="test accuracy")
    difference, half = statistics.paired(scores[ours], scores[theirs])
    return "neither" if abs(difference) <= half else names[difference < 0]


def _dense(axis: Axes, rows: pd.DataFrame) -> None:
    dense = rows[rows["way"] == "dense"].iloc[0]
    axis.axhspan(dense["mean"] - dense["half"], dense["mean"] + dense["half"], color=FAINT, alpha=0.15, linewidth=0)
    axis.axhline(dense["mean"], color=FAINT, linestyle=DASHED, linewidth=1.2, label="dense")


def _random(axis: Axes, rows: pd.DataFrame) -> None:
    for row in rows[rows["way"] == "random"].itertuples():
        look = {"color": PALETTE[3], "marker": MARKERS[3], "capsize": 3, "linestyle": "none"}
        axis.errorbar([row.density], [row.mean], [row.half], **look, label="at random, retrained")


def _curve(axis: Axes, rows: pd.DataFrame, x: str, number: int, name: str) -> None:
    rows = rows.sort_values(x)
    look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "capsize": 3}
    axis.errorbar(rows[x], rows["mean"], rows["half"], **look, **({"label": name} if name else {}))


def _density_axis(axis: Axes, rows: pd.DataFrame) -> None:
    densities = sorted(set(rows["density"]) - {1.0})
    axis.set_xscale("log")
    axis.set_xticks(densities, [f"{density:g}" for density in densities])
    axis.minorticks_off()
    axis.set_xlim(densities[0] / 1.15, math.sqrt(densities[-1]))
    axis.set_xlabel("density: share that stays")
    axis.set_ylabel("test accuracy")
