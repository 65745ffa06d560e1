"""Figures of notebook 4c: how efficient training on many GPUs is, why, and how long it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from course_lib.cost.roofline import attainable, ridge
from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    WIDTH,
    Figure,
    empty_figure,
    log_axis,
    panel,
    style,
    subplots,
)  # fmt: skip

COLOURS = {64: PALETTE[0], 32: PALETTE[1], 128: PALETTE[2]}  # the colours of runs by images per GPU


def hidden(
    communication: np.ndarray,
    efficiency: Mapping[int, np.ndarray],
    published: Mapping[int, float],
    within: float,
    caption: str = "",
) -> Figure:
    """Efficiency over the seconds of communication, a line for each number of images per GPU, with published values.

    Args:
        communication: in seconds, [n].
        efficiency: images per GPU → [n].
        within: the distance from the published value that counts as agreement; where all lines agree is shaded.
    """
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        agree = np.ones(len(communication), bool)
        for images, values in efficiency.items():
            agree &= np.abs(values - published[images]) <= within
            axis.plot(1e3 * communication, 100 * values, color=COLOURS[images], label=f"{images} images per GPU")
            axis.axhline(100 * published[images], color=COLOURS[images], linestyle="--", linewidth=1.1)
            above = images == max(published)
            axis.text(
                4, 100 * published[images] + (1.5 if above else -1.5), f"published: {100 * published[images]:.1f} %",
                color=COLOURS[images], fontsize=9.5, va="bottom" if above else "top",
            )  # fmt: skip
        axis.fill_between(
            1e3 * communication, 0, 1, agree, transform=axis.get_xaxis_transform(), color=PALETTE[2], alpha=0.18, lw=0
        )
        axis.set_xlim(0, 1e3 * communication[-1])
        axis.set_ylim(0, 112)
        figure.subplots_adjust(left=68 / WIDTH)
        axis.set_xlabel("all all-reduces of a step, ms")
        axis.set_ylabel("scaling efficiency, %")
        handles, labels = axis.get_legend_handles_labels()
        shade = Patch(color=PALETTE[2], alpha=0.18, label=f"both within {100 * within:.0f} points")
        figure.legend([*handles, shade], [*labels, shade.get_label()], loc="upper left", ncols=3)
    return figure


def efficiencies(
    ranks: Sequence[int],
    curves: Mapping[int, Mapping[str, Sequence[float]]],
    published: Mapping[int, float],
    caption: str = "",
) -> Figure:
    """Efficiency over the number of GPUs: a panel for each number of images per GPU, a line for each algorithm.

    Args:
        curves: images per GPU → algorithm → [ranks].
        published: images per GPU → efficiency on 1,024 GPUs.
    """
    with style():
        figure, axes = subplots(height=390, columns=len(curves), caption=caption)
        for axis, (images, by_name) in zip(axes, curves.items()):
            for number, (name, values) in enumerate(by_name.items()):
                look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5}
                axis.plot(ranks, 100 * np.asarray(values), label=name, **look)
            axis.plot([1024], [100 * published[images]], "*", color=INK, markersize=13, label="published", zorder=5)
            log_axis(axis, "x", [1, 4, 16, 64, 256, 1024])
            axis.set_ylim(0, 106)
            axis.set_xlabel("GPUs (log axis)")
            axis.set_title(f"{images} images per GPU")
        axes[0].set_ylabel("scaling efficiency, %")
        figure.subplots_adjust(left=68 / WIDTH)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=len(by_name) + 1)
    return figure


def thresholds(
    sizes: np.ndarray, curves: Mapping[str, np.ndarray], published: float, used: float, caption: str = ""
) -> Figure:
    """Efficiency over the fusion threshold, a line for each algorithm, with its best threshold marked.

    Args:
        sizes: thresholds in bytes, [n]; used: the one of the prediction.
        curves: algorithm → efficiency, [n].
        published: the published efficiency.
    """
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        figure.subplots_adjust(left=68 / WIDTH)
        for number, (name, values) in enumerate(curves.items()):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markevery": [int(np.argmax(values))]}
            axis.plot(sizes / 1e6, 100 * values, label=name, linewidth=2, markersize=9, zorder=3 + number, **look)
        axis.axhline(100 * published, color=INK, linestyle="--", linewidth=1.1)
        axis.text(0.011, 100 * published - 1.5, f"published: {100 * published:.1f} %", fontsize=9.5, va="top")
        axis.axvline(used / 1e6, color=FAINT, linestyle=":", linewidth=1.4)
        axis.text(used / 1.04e6, 3, "used above", fontsize=9.5, color=FAINT, ha="right")
        log_axis(axis, "x", [0.01, 0.1, 1, 10, 100])
        axis.set(xlim=(0.009, 110), ylim=(0, 106), ylabel="scaling efficiency, %")
        axis.set_xlabel("fusion threshold, MB (log axis); marks: the best threshold of each")
        figure.legend(loc="upper left", ncols=len(curves))
    return figure


def agreement(
    alphas: np.ndarray, thresholds: np.ndarray, fields: Mapping[str, np.ndarray], chosen: tuple[float, float],
    caption: str = "",
) -> Figure:  # fmt: skip
    """Which pairs of α and fusion threshold explain which published figure: a region for each.

    Args:
        alphas: seconds, [a]; thresholds: bytes, [b].
        fields: what a region says → distance from the published figure, [b, a]; the region is where it is at most 1.
        chosen: the pair (α, threshold) that is used.
    """
    with style():
        figure, (axis,) = subplots(height=430, caption=caption)
        figure.subplots_adjust(left=68 / WIDTH)
        x, y = 1e6 * alphas, thresholds / 1e6
        handles = []
        for number, (name, distance) in enumerate(fields.items()):
            # Cells, not contours: the number of messages jumps where one more gradient fits under the threshold.
            holds = np.ma.masked_where(np.asarray(distance) > 1, np.ones(np.shape(distance)))
            axis.pcolormesh(x, y, holds, shading="nearest", cmap=ListedColormap([PALETTE[number]]), alpha=0.35, lw=0)
            handles.append(Patch(facecolor=PALETTE[number], alpha=0.5, label=name))
        if len(fields) > 1:
            holds = np.ma.masked_where(np.max(list(fields.values()), 0) > 1, np.ones((len(thresholds), len(alphas))))
            axis.pcolormesh(x, y, holds, shading="nearest", cmap=ListedColormap([INK]), alpha=0.55, lw=0)
            handles.append(Patch(facecolor=INK, alpha=0.6, label="all of them"))
        axis.plot([1e6 * chosen[0]], [chosen[1] / 1e6], "*", color=INK, markersize=15, markeredgecolor=PAPER)
        axis.annotate(
            "the pair used here",
            (1e6 * chosen[0], chosen[1] / 1e6),
            (14, -16),
            textcoords="offset points",
            fontsize=9.5,
        )
        log_axis(axis, "x", [1, 2, 5, 10, 20, 50, 100])
        log_axis(axis, "y", [0.1, 0.3, 1, 3, 10, 30])
        axis.set_xlim(x[0], x[-1])
        axis.set_ylim(y[0], y[-1])
        axis.set_xlabel("α, µs for each message (log axis)")
        axis.set_ylabel("fusion threshold, MB (log axis)")
        figure.legend(handles=handles, loc="upper left", ncols=len(handles))
    return figure


def tornado(
    rows: Sequence[tuple[str, Mapping[int, tuple[float, float]]]], base: Mapping[int, float],
    published: Mapping[int, float], caption: str = "",
) -> Figure:  # fmt: skip
    """How far each parameter moves the predicted efficiency: a bar from its low value to its high one.

    Args:
        rows: (label with both values, images per GPU → (efficiency at the low value, at the high one)).
        base: images per GPU → efficiency with all parameters as used.
    """
    rows = sorted(rows, key=lambda row: sum(abs(high - low) for low, high in row[1].values()))
    with style():
        figure, axes = subplots(height=130 + 36 * len(rows), columns=len(base), caption=caption)
        figure.subplots_adjust(left=236 / WIDTH, wspace=0.1)
        for axis, images in zip(axes, base):
            for place, (_, ends) in enumerate(rows):
                low, high = (100 * value for value in ends[images])
                middle = 100 * base[images]
                axis.barh(place, low - middle, left=middle, height=0.62, color=PALETTE[5])
                axis.barh(place, high - middle, left=middle, height=0.62, color=PALETTE[4])
            axis.axvline(100 * base[images], color=INK, linewidth=1)
            axis.axvline(100 * published[images], color=PALETTE[1], linewidth=1.4, linestyle="--")
            axis.set_yticks(range(len(rows)), [label for label, _ in rows] if axis is axes[0] else [""] * len(rows))
            axis.set_xlim(55, 102)
            axis.set_xlabel("efficiency, %")
            axis.set_title(f"{images} images per GPU")
            axis.grid(axis="y", visible=False)
        handles = [
            Patch(color=PALETTE[5], label="at the low value"),
            Patch(color=PALETTE[4], label="at the high value"),
            Line2D([], [], color=INK, linewidth=1, label="as used"),
            Line2D([], [], color=PALETTE[1], linestyle="--", linewidth=1.4, label="published"),
        ]
        figure.legend(handles=handles, loc="upper left", ncols=4)
    return figure


def roofline(
    points: Sequence[tuple[str, float, Mapping[str, float]]], roofs: Mapping[str, float], peak: float, bandwidth: float,
    caption: str = "",
) -> Figure:  # fmt: skip
    """The roofline of distributed training: FLOP/s of a GPU over FLOP for each byte that it sends.

    Args:
        points: (name, FLOP per byte, roof's name → FLOP/s predicted with latency).
        roofs: name → FLOP/s that the GPU reaches alone; marks of the first are filled, of the second hollow.
        peak: FLOP/s of the data sheet.
        bandwidth: bytes/s of the wire.
    """
    with style():
        figure, (axis,) = subplots(height=450, caption=caption)
        figure.subplots_adjust(left=68 / WIDTH)
        low, high, top = 70, 20_000, max(roofs.values())
        axis.axhline(peak / 1e12, color=FAINT, linestyle=":", linewidth=1.4)
        axis.text(high / 1.05, peak / 1e12 * 0.97, f"P40, data sheet: {peak / 1e12:.0f} TFLOP/s", ha="right", va="top",
                  fontsize=9.5)  # fmt: skip
        for name, roof in roofs.items():
            first = roof == top
            reach = np.array([low, ridge(roof, bandwidth), high])
            axis.plot(
                reach, attainable(reach, roof, bandwidth) / 1e12, color=INK if first else FAINT,
                linewidth=2 if first else 1.4, linestyle="-" if first else "--", zorder=1 + first,
            )  # fmt: skip
            axis.text(
                high / 1.05, roof / 1e12 * (1.04 if first else 0.96), f"{name}: {roof / 1e12:.1f} TFLOP/s", ha="right",
                va="bottom" if first else "top", fontsize=9.5,
            )  # fmt: skip
        knee = ridge(top, bandwidth)
        axis.axvline(knee, color=FAINT, linestyle=":", linewidth=1.2, zorder=1)
        axis.text(knee * 1.04, 0.45, f"ridge: {knee:,.0f} FLOP/byte", color=FAINT, fontsize=9.5)
        for number, (name, at, reached) in enumerate(points):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 8, "linestyle": "none"}
            for place, (precision, real) in enumerate(reached.items()):
                roof = attainable(at, roofs[precision], bandwidth)
                if place == 0:
                    axis.plot([at, at], [roof / 1e12, real / 1e12], color=PALETTE[number], linewidth=1)
                hollow = {"markerfacecolor": PAPER, "zorder": 2.5} if place else {"zorder": 3}
                axis.plot([at], [real / 1e12], **look, **hollow)
            right = any(1 < at / other < 1.3 for _, other, _ in points)  # of a line that would cross the label
            below = {"xytext": (-7 if right else 0, -15), "textcoords": "offset points", "va": "top", "fontsize": 9}
            below["ha"] = "left" if right else "center"
            axis.annotate(name.replace(", ", "\n"), (at, min(reached.values()) / 1e12), color=PALETTE[number], **below)
        log_axis(axis, "x", [100, 200, 500, 1000, 2000, 5000, 10_000])
        log_axis(axis, "y", [0.5, 1, 2, 5, 10])
        axis.set_xlim(low, high)
        axis.set_ylim(0.35, 16)
        (x_0, y_0), (x_1, y_1) = axis.transData.transform([(100, 1), (1000, 10)])
        axis.text(
            low * 1.4, low * 1.4 * bandwidth / 1e12 * 1.14, f"wire: {bandwidth / 1e9:.1f} GB/s",
            rotation=np.degrees(np.arctan2(y_1 - y_0, x_1 - x_0)), rotation_mode="anchor", fontsize=9.5,
        )  # fmt: skip
        axis.set_xlabel("FLOP for each byte that a GPU sends (log axis)")
        axis.set_ylabel("TFLOP/s of a GPU (log axis)")
        mark = {"marker": "o", "linestyle": "none", "color": FAINT, "markersize": 8}
        faces = zip(roofs, (FAINT, PAPER))
        handles = [Line2D([], [], markerfacecolor=face, label=name, **mark) for name, face in faces]
        figure.legend(handles=handles, loc="upper left", ncols=4)
    return figure


def accuracy_and_time(lines: Sequence[tuple[str, str, float, float]], caption: str = "") -> Figure:
    """Accuracy over time to train, one panel for each network.

    Args:
        lines: (label, network, minutes, top-1 in percent).
    """
    names = list(dict.fromkeys(network for _, network, _, _ in lines))
    with style():
        figure, axes = subplots(height=380, columns=len(names), caption=caption)
        figure.subplots_adjust(left=66 / WIDTH, wspace=0.2)
        for number, (axis, name) in enumerate(zip(axes, names)):
            rows = [(minutes, top1, label) for label, network, minutes, top1 in lines if network == name]
            for minutes, top1, label in rows:
                axis.plot(minutes, top1, MARKERS[number], color=PALETTE[number], markersize=7)
                near = [other / minutes for other, level, _ in rows if abs(level - top1) < 0.25]
                left = minutes > 500 or (minutes > 12 and any(1 < ratio < 3 for ratio in near))
                above = any(0.25 < ratio < 1 for ratio in near) or (
                    minutes < 12 and any(1 < ratio < 3 for ratio in near)
                )
                axis.annotate(
                    label, (minutes, top1), (-6 if left else 6, 5 if above else -12), fontsize=9,
                    textcoords="offset points", ha="right" if left else "left",
                )  # fmt: skip
            log_axis(axis, "x", [4, 10, 30, 100, 300, 1000])
            axis.set(xlim=(2, 2200), xlabel="minutes to train", title=name)
            low, high = (end(top1 for _, top1, _ in rows) for end in (min, max))
            axis.set_ylim(low - 0.5, high + 0.5)
        axes[0].set_ylabel("top-1 accuracy, %")
    return figure


_TIME_TICKS = {10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36_000: "10 h"}


def minute(
    ranks: np.ndarray, seconds: np.ndarray, perfect: np.ndarray, now: tuple[float, float], notes: Sequence[str],
    caption: str = "",
) -> Figure:  # fmt: skip
    """Time to train over the number of GPUs, with the chosen place, and what it means in words. For sliders.

    Args:
        ranks: from 64 to 65,536, [n]; seconds: of the run, [n]; perfect: with perfect scaling, [n].
        now: (GPUs, seconds) at the sliders' place.
        notes: lines of text beside the axes.
    """
    height, lowest, highest = 380, 6.0, 36_000.0  # seconds, at the ends of the axis: what lies beyond is drawn there
    with style():
        figure = empty_figure(height, caption)
        axis = panel(figure, 86, 88, 490, 250)
        axis.axhline(60, color=PALETTE[1], linestyle="--", linewidth=1.4)
        axis.plot(ranks, np.clip(perfect, lowest, highest), ":", color=FAINT, linewidth=1.3)
        axis.plot(ranks, np.clip(seconds, lowest, highest), color=PALETTE[0], linewidth=2)
        axis.plot(now[0], np.clip(now[1], lowest, highest), "o", color=PALETTE[0], markersize=9, clip_on=False)
        log_axis(axis, "x", [4**power for power in range(3, 9)])
        log_axis(axis, "y", _TIME_TICKS)
        axis.set(xlim=(64, 65536), ylim=(lowest, highest), xlabel="GPUs (both axes log)")
        axis.set_title("90 epochs of ResNet-50 on ImageNet")
        for number, note in enumerate(notes):
            weight = "bold" if number == 0 else "normal"
            figure.text(606 / WIDTH, (326 - 26 * number) / height, note, fontsize=10, fontweight=weight)
    return figure


def left_out(table: pd.DataFrame, caption: str = "") -> Figure:
    """Published efficiencies and what was predicted for them, a row for each system: of systems that were left out of
    the fit, and of systems that were added later.

    Args:
        table: columns test ("left out" or "added later"), system, published, predicted (both in %), as in
            recorded/leave_one_out.csv.
    """
    with style():
        figure, axes = subplots(height=440, columns=2, caption=caption)
        figure.subplots_adjust(left=0.2, right=0.97, top=0.83, wspace=0.52)
        for axis, (test, title) in zip(axes, (("left out", "left out in turn"), ("added later", "added later"))):
            by_system = dict(list(table[table["test"] == test].groupby("system", sort=False)))
            for row, lines in enumerate(by_system.values()):
                published, predicted = lines["published"].to_numpy(), lines["predicted"].to_numpy()
                above, below = np.full(len(lines), row - 0.2), np.full(len(lines), row + 0.2)
                axis.plot([published, predicted], [above, below], color=FAINT, linewidth=0.8)
                axis.plot(published, above, "o", color=PALETTE[0], fillstyle="none", markersize=6)
                axis.plot(predicted, below, "s", color=PALETTE[1], markersize=6)
            axis.set_yticks(range(len(by_system)), by_system)
            axis.grid(axis="y", visible=False)
            axis.set(ylim=(len(by_system) - 0.5, -0.5), title=title, xlabel="efficiency, %", xlim=(50, 101))
        figure.legend(axes[0].lines[-2:], ("published", "predicted"), loc="upper left", ncols=2)
    return figure
