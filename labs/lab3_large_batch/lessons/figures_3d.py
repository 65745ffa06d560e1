"""Figures of notebook 3d: norms of weights and gradients by layer, trust ratios over a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from course_lib.notebook.plots.style import INK, MARKERS, PALETTE, PAPER, WIDTH, Figure, powers_of_ten, style, subplots


def ratios(
    moments: Mapping[str, Mapping[int, np.ndarray]], layers: Sequence[str], *, spread: float, caption: str = ""
) -> Figure:
    """‖w‖/‖∇L‖ by layer: a panel for each moment of a run, a colour for each batch size, the medians joined.

    Args:
        moments: title → batch size → ratios [batches drawn, layers].
        layers: their names.
        spread: how far the batch sizes of a layer are drawn apart; 0 on top of each other.
    """
    with style():
        figure, axes = subplots(height=390, columns=len(moments), caption=caption)
        figure.subplots_adjust(wspace=0.14, left=74 / WIDTH)
        everything = np.concatenate([np.ravel(drawn) for sizes in moments.values() for drawn in sizes.values()])
        for axis, (title, sizes) in zip(axes, moments.items()):
            for number, (size, drawn) in enumerate(sizes.items()):
                drawn = np.asarray(drawn)
                place = np.arange(len(layers)) + spread * (number - (len(sizes) - 1) / 2)
                look = {"color": PALETTE[number], "marker": MARKERS[number]}
                axis.plot(np.tile(place, len(drawn)), drawn.ravel(), linestyle="", alpha=0.5, markersize=5, **look)
                axis.plot(place, np.median(drawn, axis=0), linewidth=1.2, label=f"B = {size:,}", **look)
            axis.set_title(title)
            axis.set_yscale("log")
            axis.set_ylim(everything.min() / 1.6, everything.max() * 1.6)
            axis.yaxis.set_major_formatter("{x:g}")
            axis.set_xlim(-0.5, len(layers) - 0.5)
            axis.set_xticks(range(len(layers)), layers)
        axes[0].set_ylabel("‖w‖ / ‖∇L‖")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=len(moments) * 3)
    return figure


def over_time(
    layers: Sequence[str],
    trust: np.ndarray,
    relative: np.ndarray,
    update: int,
    *,
    title: str,
    caption: str = "",
) -> Figure:
    """A run up to `update`: the trust ratio of each layer, and its relative change in a step.

    Args:
        layers: their names.
        trust: [updates, layers].
        relative: ‖Δw‖/‖w‖ [updates, layers].
        update: from 0; what comes behind it is drawn faintly.
        title: of the trust ratio.
    """
    with style():
        figure, (left, right) = subplots(height=390, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.2, left=66 / WIDTH)
        for axis, values in ((left, np.asarray(trust)), (right, np.asarray(relative))):
            _lines(axis, layers, values, update)
        left.set_title(title)
        right.set_title("relative change of each layer in a step, ‖Δw‖/‖w‖")
        handles, names = left.get_legend_handles_labels()
        figure.legend(handles, names, loc="upper left", ncols=len(layers), columnspacing=1.6, handletextpad=0.4)
    return figure


def _lines(axis: Axes, layers: Sequence[str], values: np.ndarray, update: int) -> None:
    updates, values = np.arange(1, len(values) + 1), np.where(values > 0, values, np.nan)
    for number, name in enumerate(layers):
        line, colour = values[:, number], PALETTE[number]
        axis.plot(updates[update:], line[update:], color=colour, linewidth=1, alpha=0.25)
        axis.plot(
            updates[: update + 1], line[: update + 1], color=colour, marker=MARKERS[number], markevery=[update],
            label=f"{name}: {line[update]:.3g}",
        )  # fmt: skip
    powers_of_ten(axis)
    low, high = (1, 1) if np.isnan(values).all() else (np.nanmin(values), np.nanmax(values))
    axis.set_ylim(10 ** np.floor(np.log10(low / 1.05)), 10 ** np.ceil(np.log10(high * 1.05)))
    axis.set_xlim(0, len(values) + 1)
    axis.set_xticks(np.linspace(0, len(values), 5).round().astype(int))  # each tick costs a millisecond
    axis.set_xlabel("updates")


def cost(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The time of an update in times of the rival's: a bar for each optimizer that has one, without and with decay.

    Args:
        table: columns optimizer, decay, against (None where there is no rival), ratio.
    """
    rows = table.dropna(subset=["against"])
    names = list(dict.fromkeys(zip(rows["optimizer"], rows["against"])))
    with style():
        figure, (axis,) = subplots(height=300, caption=caption)
        figure.subplots_adjust(left=190 / WIDTH)
        for number, (decay, bars) in enumerate(rows.groupby("decay")):
            ratios = bars.set_index("optimizer")["ratio"]
            place = np.arange(len(names)) + 0.4 * (number - 0.5)
            label = f"weight decay {decay:g}" if decay else "no weight decay"
            axis.barh(place, [ratios[name] for name, _ in names], 0.36, color=PALETTE[number], label=label)
            for at, (name, _) in zip(place, names):
                axis.annotate(
                    f"{ratios[name]:.2f}", (ratios[name], at), (5, 0), textcoords="offset points", va="center",
                    bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
                )  # fmt: skip
        axis.axvline(1, color=INK, linewidth=1)
        axis.set_yticks(range(len(names)), [f"{name} ÷ {rival}" for name, rival in names])
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.set_xlim(0, 1.1 * max(1, rows["ratio"].max()))
        axis.set_xlabel("time of an update, in times of Keras's own optimizer")
        figure.legend(*axis.get_legend_handles_labels(), loc="upper left", ncols=2)
    return figure
