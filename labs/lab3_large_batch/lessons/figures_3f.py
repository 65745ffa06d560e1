"""Figures of notebook 3f: sharpness, lines between minima, attacked images, and the distance from the start.

Recorded runs are drawn as dots, lines go through their medians.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from course_lib import statistics
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, Figure, empty_figure, style, subplots
from labs.lab3_large_batch.lessons import matched
from labs.lab3_large_batch.lessons.log_axes import log_ticks, ticks_at

FIT_FROM_UPDATE = 24  # before that, momentum 0.9 is still gathering speed: 10 updates are its memory


def sharpness(runs: pd.DataFrame, *, floor: float = 0.0, caption: str = "") -> Figure:
    """The largest eigenvalue λ of the Hessian by learning rate, λ ‖w‖², and test accuracy by λ: a dot for each run.

    Args:
        runs: columns batch, epochs, rate, sharpness, length of w, test accuracy.
        floor: runs with a lower test accuracy are left out on the right.
        caption: see `provenance`.
    """
    runs = runs.assign(scaled=runs["sharpness"] * runs["length of w"] ** 2)
    with style():
        figure, (left, middle, right) = subplots(height=400, columns=3, caption=caption)
        rates = np.array(sorted(runs["rate"].unique()))
        for number, ((batch, epochs), rows) in enumerate(runs.groupby(["batch", "epochs"])):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "linestyle": "", "alpha": 0.7, "mew": 0}
            for axis, column in ((left, "sharpness"), (middle, "scaled")):
                medians = rows.groupby("rate")[column].median()
                axis.plot(medians.index, medians, color=PALETTE[number])
                axis.plot(rows["rate"], rows[column], **look)
            good = rows[rows["test accuracy"] >= floor]
            right.plot(good["sharpness"], 100 * good["test accuracy"], **look)
            left.plot([], [], **look, label=f"B = {batch:,}, {epochs} epochs")
        guide = runs["sharpness"].min() / 2.5 * rates[-1] / rates
        left.plot(rates, guide, color=FAINT, linestyle=(0, (4, 3)), linewidth=1.2)
        left.text(rates[0], guide[0] / 1.6, "∝ 1/η", color=FAINT, fontsize=9, va="top")
        for axis, title in ((left, "λ, largest eigenvalue"), (middle, "λ ‖w‖²")):
            axis.set_yscale("log")
            log_ticks(axis.yaxis)
            ticks_at(axis, rates)
            axis.tick_params(axis="x", labelsize=8.5)
            axis.set_xlabel("learning rate η")
            axis.set_title(title)
        right.set_xscale("log")
        log_ticks(right.xaxis)
        right.set_xlabel("λ")
        right.set_title(f"test accuracy in %{f', if over {100 * floor:g}' if floor else ''}")
        figure.subplots_adjust(wspace=0.26)
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure


def between(lines: pd.DataFrame, *, caption: str = "") -> Figure:
    """Loss and accuracy along the straight line from a small-batch solution to other solutions.

    Lines through the medians over the starts, bands from the lowest to the highest.

    Args:
        lines: columns start, to ("large" or "small"), alpha, training loss, test loss, test accuracy.
        caption: see `provenance`.
    """
    kinds = [kind for kind in ("large", "small") if kind in set(lines["to"])]
    names = {"large": "to a large-batch solution", "small": "to another small-batch solution"}
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        for number, kind in enumerate(kinds):
            values = lines[lines["to"] == kind].groupby("alpha")
            for axis, column, factor, dashes in (
                (left, "training loss", 1, "-"),
                (left, "test loss", 1, (0, (4, 2))),
                (right, "test accuracy", 100, "-"),
            ):
                middle, low, high = (factor * getattr(values[column], how)() for how in ("median", "min", "max"))
                colour = PALETTE[(1, 0)[number]]
                axis.fill_between(middle.index, low, high, color=colour, alpha=0.15, linewidth=0)
                axis.plot(middle.index, middle, color=colour, linestyle=dashes)
            right.plot([], [], color=PALETTE[(1, 0)[number]], label=names[kind])
        left.plot([], [], color=INK, label="training images")
        left.plot([], [], color=INK, linestyle=(0, (4, 2)), label="test images")
        left.legend(loc="upper center")
        for axis, title in ((left, "loss"), (right, "test accuracy in %")):
            for alpha in (0, 1):
                axis.axvline(alpha, color=FAINT, linewidth=1, linestyle=(0, (1, 2)))
            axis.set_title(title)
            axis.set_xlabel("α: 0 is the small-batch solution, 1 the other one")
            axis.set_xticks(np.arange(-0.5, 2, 0.5))
        figure.legend(*right.get_legend_handles_labels(), loc="upper left", ncols=2)
    return figure


def attacked(
    images: np.ndarray, moved: np.ndarray, before: Sequence[str], after: Sequence[str], *, caption: str = ""
) -> Figure:
    """Images over what an attack made of them, each under the class that a network sees in it.

    Args:
        images, moved: [n, h, w, 1], 0 to 255. before, after: n classes.
    """
    with style():
        figure = empty_figure(300, caption)
        for row, (pictures, seen) in enumerate(((images, before), (moved, after))):
            for column, (picture, name) in enumerate(zip(pictures, seen)):
                axis = figure.add_subplot(2, len(images), row * len(images) + column + 1)
                axis.imshow(picture.squeeze(), cmap="gray_r", vmin=0, vmax=255)
                axis.set_axis_off()
                axis.set_title(name, fontsize=9.5, loc="center", color=PALETTE[row])
        figure.subplots_adjust(left=0.02, right=0.98, top=0.9, bottom=0.12, hspace=0.3, wspace=0.1)
    return figure


def epsilons(table: pd.DataFrame) -> list[int]:
    """The strengths ε of the attacks in the table of the experiment adversarial."""
    return [int(name.rpartition(" ")[2]) for name in table if name.startswith("attacked")]


def against_small(table: pd.DataFrame, at: str) -> pd.DataFrame:
    """By how many points each large-batch run under attack is ahead of the same seed's small-batch runs.

    At equal accuracy the small-batch runs are those up to the length with the best mean accuracy: longer ones come back
    to an accuracy that shorter ones have passed.

    Args:
        table: of the experiment adversarial. at: what is equal, "test accuracy" or "training loss".

    Returns one row for each of the large batch's settings and each ε: rate, epochs, epsilon, points, half (of the 95 %
    interval), seeds. Settings of which fewer than two runs are surrounded are left out.
    """
    small = table[table["batch"] == table["batch"].min()]
    large = table[table["batch"] == table["batch"].max()]
    if at == "test accuracy":
        small = small[small["epochs"] <= small.groupby("epochs")["test accuracy"].mean().idxmax()]
    columns = [f"attacked, ε = {epsilon}" for epsilon in epsilons(table)]
    rows = []
    for (rate, epochs), runs in matched.differences(large, small, at, columns).groupby(["rate", "epochs"]):
        for epsilon, column in zip(epsilons(table), columns):
            if len(runs) > 1:
                points, half = statistics.mean(100 * runs[column])
                rows.append((rate, epochs, epsilon, points, half, len(runs)))
    return pd.DataFrame(rows, columns=["rate", "epochs", "epsilon", "points", "half", "seeds"])


def adversarial(table: pd.DataFrame, *, epsilon: int | None = None, caption: str = "") -> Figure:
    """Accuracy under attack by accuracy without; and what the large batch loses at equal accuracy, by ε.

    Args:
        table: of the experiment adversarial.
        epsilon: that of the left panel; the middle one of the table's unless given.
    """
    epsilon = epsilon or epsilons(table)[len(epsilons(table)) // 2]
    kinds = table.groupby(["batch", "rate", "epochs"], sort=True)
    small = table["batch"].min()
    large = [key for key in kinds.groups if key[0] != small]
    with style():
        figure, (left, right) = subplots(height=420, columns=2, caption=caption)
        column = f"attacked, ε = {epsilon}"
        rows = table[table["batch"] == small]
        means = 100 * rows.groupby("epochs")[["test accuracy", column]].mean()
        left.plot(means["test accuracy"], means[column], color=PALETTE[0], linewidth=1.4)
        left.plot(
            100 * rows["test accuracy"], 100 * rows[column], MARKERS[0], color=PALETTE[0], alpha=0.5, mew=0,
            label=f"B = {small}, {rows['epochs'].min()} to {rows['epochs'].max()} epochs",
        )  # fmt: skip
        apart = against_small(table, "test accuracy")
        right.axhline(0, color=PALETTE[0], linewidth=1.2)
        for number, key in enumerate(large, 1):
            batch, rate, epochs = key
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            rows = kinds.get_group(key)
            left.plot(
                100 * rows["test accuracy"], 100 * rows[column], **look, linestyle="", alpha=0.8, mew=0,
                label=f"B = {batch:,}, η = {rate:g}, {epochs} epochs",
            )  # fmt: skip
            found = apart[(apart["rate"] == rate) & (apart["epochs"] == epochs)]
            right.errorbar(
                found["epsilon"] * 1.05 ** (number - 2),
                found["points"],
                found["half"],
                **look,
                capsize=4,
                linewidth=1.2,
            )
        left.set_xlabel("test accuracy without attack, %")
        left.set_title(f"test accuracy in % after an attack with ε = {epsilon}")
        ticks_at(right, epsilons(table))
        right.set_xlabel("ε, of 255")
        right.set_title(f"points ahead of B = {small} at equal accuracy, 95 %")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=2, columnspacing=1.2)
        figure.subplots_adjust(top=1 - 88 / 420)
    return figure


def fits(updates: Sequence[float], distances: Sequence[float], first: int = FIT_FROM_UPDATE) -> dict[str, float]:
    """How well c + s log t and c tᵖ follow a distance, by least squares from update `first` on.

    Returns slope s and power p, and of both laws the share of the variance that they explain, "log" and "by power".
    """
    t, d = np.asarray(updates, float), np.asarray(distances, float)
    t, d = np.log(t[t >= first]), d[t >= first]
    line = np.polyfit(t, d, 1)
    powers = np.linspace(0.02, 1, 99)
    errors = []
    for p in powers:
        grown = np.exp(p * t)
        errors.append(np.sum((d - grown * (grown @ d) / (grown @ grown)) ** 2))
    total = np.sum((d - d.mean()) ** 2)
    return {
        "slope": float(line[0]),
        "power": float(powers[np.argmin(errors)]),
        "log": float(1 - np.sum((d - np.polyval(line, t)) ** 2) / total),
        "by power": float(1 - min(errors) / total),
    }


def distance(walks: pd.DataFrame, *, caption: str = "") -> Figure:
    """How far the weights are from their start, against log t: one rate for all batches, η ∝ √B, and a convex loss.

    Lines through the means over the seeds; dotted: the straight line that fits best from update 24 on.

    Args:
        walks: columns network ("quick" or "convex"), rule ("same" or "sqrt"), batch, rate, seed, updates, distance.
        caption: see `provenance`.
    """
    quick, convex = (walks[walks["network"] == network] for network in ("quick", "convex"))
    panels = {
        "‖w − w₀‖, the same η for all": quick[quick["rule"] == "same"],
        "η ∝ √B": quick[quick["rule"] == "sqrt"],
        "no barriers: softmax regression": convex,
    }
    panels = {title: rows for title, rows in panels.items() if len(rows)}
    batches = sorted(walks["batch"].unique())
    with style():
        figure, axes = subplots(height=400, columns=len(panels), caption=caption)
        for axis, (title, rows) in zip(axes, panels.items()):
            for batch, some in rows.groupby("batch"):
                number = batches.index(batch)
                name = f"B = {batch:,}" + (": all images, no noise" if batch == batches[-1] else "")
                _draw_walk(axis, some, PALETTE[number], MARKERS[number], name)
            axis.set_title(title)
            axis.set_ylim(bottom=0)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=4)
    return figure


def _draw_walk(axis: Axes, rows: pd.DataFrame, colour: str, marker: str, label: str) -> None:
    mean = rows.groupby("updates")["distance"].mean()
    axis.plot(mean.index, mean, color=colour, marker=marker, markersize=4, linewidth=1.2, label=label)
    late = mean[mean.index >= FIT_FROM_UPDATE]
    line = np.polyfit(np.log(late.index.to_numpy(float)), late, 1)
    axis.plot(late.index, np.polyval(line, np.log(late.index.to_numpy(float))), color=colour, linestyle=":", lw=1.2)
    axis.set_xscale("log")
    ticks_at(axis, [t for t in (1, 4, 16, 64, 256, 1024) if t <= rows["updates"].max()])
    axis.set_xlabel("updates t")
