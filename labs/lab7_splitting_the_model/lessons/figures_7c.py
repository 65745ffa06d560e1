"""Figures of notebook 7c: energy, the memory hierarchy, words by order and by batch, products, systolic arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from course_lib.cost.roofline import attainable, ridge
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, style, subplots

DASHED = (0, (4, 3))
SOURCES = ("arithmetic", "registers", "SRAM", "DRAM")


def energy(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `layer_energy`: picojoules for each multiply-add by batch, a panel for each order.

    Args:
        table: columns order, batch, and SOURCES.
    """
    with style():
        figure, axes = subplots(height=380, columns=2, caption=caption)
        for axis, (order, rows) in zip(axes, table.groupby("order", sort=False)):
            for number, source in enumerate(SOURCES):
                look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "label": source}
                axis.plot(rows["batch"], rows[source], **look)
            axis.set_title(order)
            _powers(axis, rows["batch"], "batch")
            axis.set_yscale("log")
            axis.set_ylim(1, 5_000)
            _plain(axis, (1, 10, 100, 1_000))
        axes[0].set_ylabel("pJ for each multiply-add")
        axes[1].tick_params(labelleft=False)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=4)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def hierarchy(table: pd.DataFrame, caches: Mapping[str, int], caption: str = "") -> Figure:
    """Nanoseconds of a read that waits, and gigabytes a second, by the bytes that are read.

    Args:
        table: as `machine.hierarchy` returns it; of several runs the median is drawn.
        caches: level → bytes, marked by vertical lines.
    """
    rows = table.groupby("bytes", as_index=False)[["nanoseconds", "gigabytes"]].median()
    with style():
        figure, axes = subplots(height=390, columns=2, caption=caption)
        for number, (axis, column, title) in enumerate(
            zip(
                axes, ("nanoseconds", "gigabytes"), ("nanoseconds of a read that waits", "gigabytes a second, in order")
            )
        ):
            axis.plot(rows["bytes"], rows[column], color=PALETTE[number], marker=MARKERS[number], markersize=4)
            axis.set_xscale("log", base=2)
            ticks = {2**12: "4 KiB", 2**16: "64 KiB", 2**20: "1 MiB", 2**24: "16 MiB", 2**28: "256 MiB"}
            shown = {size: name for size, name in ticks.items() if size <= rows["bytes"].max()}
            axis.set_xticks(list(shown), list(shown.values()))
            axis.set_xlabel("size of what is read")
            axis.set_title(title, pad=18)
            for level, size in caches.items():
                axis.axvline(size, color=FAINT, linestyle=DASHED, linewidth=1)
                axis.text(size, 1.01, level, transform=axis.get_xaxis_transform(), ha="center", color=FAINT, fontsize=9)
        axes[0].set_yscale("log")
        _plain(axes[0], (1, 2, 5, 10, 20, 50, 100, 200))
        axes[1].set_ylim(bottom=0)
    return figure


def products(table: pd.DataFrame, caption: str = "") -> Figure:
    """Products in C++ by the rows of a block, and NumPy's by lanes; medians, bars from least to most.

    Args:
        table: columns what ("C++", "NumPy", perhaps "registers alone"), rows, depth, number, lanes, gigaflops; as
            `machine.race` returns it.
    """
    with style():
        figure, (left, right) = subplots(height=390, columns=2, caption=f"{caption} · medians, least to most")
        blocks = table[(table["what"] == "C++") & (table["rows"] > 0)]
        for number, (depth, rows) in enumerate(blocks.groupby("depth")):
            _bars(left, rows, "rows", number, f"{depth:,.0f} products at a time")
        naive = table.loc[(table["what"] == "C++") & (table["rows"] == 0), "gigaflops"].median()
        left.axhline(naive, color=INK, linestyle=DASHED, linewidth=1.2, label="row times column")
        if len(alone := table.loc[table["what"] == "registers alone", "gigaflops"]):
            look = {"color": FAINT, "linestyle": DASHED, "linewidth": 1.2}
            left.axhline(alone.median(), label="multiply-adds in registers alone", **look)
        left.legend(loc="upper left")
        _powers(left, blocks["rows"], "rows of the block of C in registers")
        left.set_title("C++, float32")
        left.set_ylabel("GFLOP/s")
        lanes = table[table["what"] == "NumPy"]
        for number, (name, rows) in enumerate(lanes.groupby("number"), start=2):
            _bars(right, rows, "lanes", number, name)
        if len(lanes):
            _powers(right, lanes["lanes"], "lanes: numbers in a register")
            right.legend(loc="upper left")
        right.set_title("NumPy, by the registers of its kernels")
        for axis in (left, right):
            axis.set_ylim(0, 1.75 * table["gigaflops"].max())
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def orders(words: Mapping[str, float], bound: float, caption: str = "") -> Figure:
    """Words that some orders of the same loops move, and the lower bound.

    Args:
        words: name → words.
    """
    with style():
        figure, (axis,) = subplots(height=150 + 38 * len(words), caption=caption)
        places = np.arange(len(words))
        axis.barh(places, list(words.values()), color=PALETTE[0], height=0.6)
        for place, count in zip(places, words.values()):
            axis.text(count, place, f" {count:,.0f}", va="center", color=INK, fontsize=9.5)
        axis.axvline(bound, color=PALETTE[1], linestyle=DASHED)
        axis.text(bound, -0.62, f" no order moves fewer than {bound:,.0f}", color=PALETTE[1], fontsize=9.5, va="bottom")
        axis.set_yticks(places, list(words))
        axis.set_ylim(len(words) - 0.5, -1.0)
        axis.set_xlim(0, 1.12 * max(words.values()))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axis.set_xlabel("words moved")
        figure.subplots_adjust(left=190 / WIDTH, top=1 - 20 / (150 + 38 * len(words)))
    return figure


def short_loops(table: pd.DataFrame, words: int, caption: str = "") -> Figure:
    """Words for each multiply-add of a dense layer by batch: counted, the bound, and what that tends to for long loops.

    Args:
        table: columns batch, iterations, bound, and one for each counted order.
        words: of the cache.
    """
    names = [name for name in table if name not in ("batch", "iterations", "bound")]
    with style():
        figure, (axis,) = subplots(height=400, caption=caption)
        for number, name in enumerate(names):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "label": name}
            axis.plot(table["batch"], table[name] / table["iterations"], **look)
        axis.plot(table["batch"], table["bound"] / table["iterations"], color=INK, label="lower bound")
        axis.axhline(2 / words**0.5, color=FAINT, linestyle=DASHED, label="2 / √M", linewidth=1.2)
        _powers(axis, table["batch"], "batch")
        axis.set_yscale("log")
        axis.set_ylim(0.08, 1.5)
        _plain(axis, (0.1, 0.2, 0.5, 1))
        axis.set_ylabel("words for each multiply-add")
        figure.legend(loc="upper left", ncols=len(names) + 2)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def wave(busy: np.ndarray, caption: str = "") -> Figure:
    """Which units of a small array multiply, one picture for each cycle.

    Args:
        busy: [cycles, side, side], as in `systolic.Record`.
    """
    columns = min(len(busy), 14)
    rows = -(-len(busy) // columns)
    with style():
        figure, axes = subplots(height=70 + 96 * rows, caption=caption)
        axes[0].remove()
        for cycle, now in enumerate(busy):
            axis = figure.add_subplot(rows, columns, cycle + 1)
            axis.imshow(now, cmap=_two_colours(), vmin=0, vmax=1)
            axis.set_title(str(cycle), fontsize=9)
            axis.set_xticks(np.arange(-0.5, busy.shape[2]), [])
            axis.set_yticks(np.arange(-0.5, busy.shape[1]), [])
            axis.tick_params(length=0)
        figure.subplots_adjust(left=0.02, right=0.98, top=1 - 26 / (70 + 96 * rows), bottom=44 / (70 + 96 * rows))
    return figure


def utilisation(table: pd.DataFrame, caption: str = "") -> Figure:
    """The share of the units that multiply, by batch.

    Args:
        table: column batch, and one for each way.
    """
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        for number, name in enumerate(column for column in table if column != "batch"):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "label": name}
            axis.plot(table["batch"], table[name], **look)
        _powers(axis, table["batch"], "batch")
        axis.set_ylim(0, 1)
        axis.set_ylabel("share of the units that multiply")
        figure.legend(loc="upper left", ncols=4)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def roof(teraflops: float, gigabytes: float, itemsize: int) -> Figure:
    """What a chip can do of a dense layer, by batch, if it reads every weight once for a batch; TPU2 beside it.

    Args:
        teraflops: 10¹² FLOP/s. gigabytes: 10⁹ bytes/s from memory. itemsize: bytes of a weight.
    """
    chips = {"TPU2": (45, 600, {"color": FAINT, "linestyle": DASHED}), "this chip": (teraflops, gigabytes, {})}
    batch = np.geomspace(1, 4**7, 200)
    with style():
        figure, (axis,) = subplots(
            height=360, caption=f"a dense layer whose weights, of {itemsize} bytes, are what moves"
        )
        for name, (peak, speed, look) in chips.items():
            reached = attainable(2 * batch / itemsize, 1e12 * peak, 1e9 * speed) / 1e12
            axis.plot(batch, reached, label=name, **{"color": PALETTE[0], **look})
        enough = ridge(1e12 * teraflops, 1e9 * gigabytes) * itemsize / 2
        axis.axvline(enough, color=PALETTE[1], linewidth=1.2)
        side = "right" if enough > 1_000 else "left"  # where there is room
        axis.text(enough, 0.3, f" batch {enough:,.0f} ", color=PALETTE[1], ha=side, va="bottom", fontsize=9.5)
        axis.set_xscale("log", base=2)
        axis.set_xticks([4**power for power in range(8)], [f"{4**power:,}" for power in range(8)])
        axis.minorticks_off()
        axis.set_xlim(1, 4**7)
        axis.set_xlabel("batch")
        axis.set_yscale("log")
        axis.set_ylim(0.04, 1_500)
        _plain(axis, (0.1, 1, 10, 100, 1_000))
        axis.set_ylabel("TFLOPS")
        figure.legend(loc="upper left", ncols=2)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def _two_colours() -> object:
    from matplotlib.colors import ListedColormap

    return ListedColormap(["#e6e6e2", PALETTE[0]])


def _bars(axis: Axes, rows: pd.DataFrame, x: str, number: int, name: str) -> None:
    found = rows.groupby(x)["gigaflops"].agg(["median", "min", "max"])
    reach = np.array([found["median"] - found["min"], found["max"] - found["median"]])
    look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "capsize": 3}
    axis.errorbar(
        found.index.to_numpy(), found["median"].to_numpy(), reach, **look, **({"label": name} if name else {})
    )


def _powers(axis: Axes, values: pd.Series, label: str, names: list[str] | None = None) -> None:
    ticks = sorted(set(values))
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, names or [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel(label)


def _plain(axis: Axes, ticks: tuple[float, ...]) -> None:
    axis.set_yticks(ticks, [f"{tick:,g}" for tick in ticks])
    axis.minorticks_off()
