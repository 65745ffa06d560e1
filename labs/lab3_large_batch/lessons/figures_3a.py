"""Figures of notebook 3a: updates to a target and the noise scale by batch size, the gap, and the minima.

Recorded runs are drawn as dots, lines go through their medians.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from course_lib.notebook.plots.style import CARD, FAINT, INK, MARKERS, PALETTE, WIDTH, Card, card, style
from labs.lab3_large_batch.lessons import critical_batch

Fit = Callable[[Sequence[float], Sequence[float]], "tuple[float, float]"]

RUNS = {"color": PALETTE[0], "marker": "o", "linestyle": "", "alpha": 0.45, "markersize": 5, "markeredgewidth": 0}
OWN = {"color": PALETTE[1], "marker": "*", "linestyle": "", "markersize": 13, "markeredgecolor": CARD, "zorder": 5}
FIT_FROM_UPDATE = 24  # before that, momentum 0.9 is still gathering speed: 10 updates are its memory


def noise_scales(squares: pd.DataFrame) -> pd.DataFrame:
    """The noise scale of each row as a column `noise scale`; missing where the noise hides the gradient.

    Args:
        squares: with two columns `|g|² of m`: the mean squared norm of gradients of m examples, for a small and a
            large m.
    """
    from course_lib.optimizers.noise import noise_scale  # and TensorFlow with it

    columns = [name for name in squares if name.startswith("|g|² of ")]
    sizes = [int(name.split()[-1]) for name in columns]

    def of(row: pd.Series) -> float:
        try:
            return noise_scale([row[name] for name in columns], sizes)
        except ValueError:
            return float("nan")

    return squares.assign(**{"noise scale": squares.apply(of, axis=1)})


def to_target(runs: pd.DataFrame, own: pd.DataFrame | None = None, *, target: float, caption: str = "") -> Card:
    """Updates and images to a target by batch size.

    Args:
        runs: one row for each run: batch, updates (missing where it did not arrive).
        own: the reader's runs, drawn as stars, with the same columns.
        target: the accuracy.
        caption: see `provenance`.
    """
    with style():
        figure, (left, right) = card(height=400, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.2, left=62 / WIDTH)
        _draw_updates(left, runs, target)
        images = runs.assign(updates=runs["updates"] * runs["batch"] / 1000)
        medians = images.groupby("batch")["updates"].median()
        right.plot(images["batch"], images["updates"], **RUNS)
        right.plot(medians.index, medians, color=PALETTE[0], marker="o", markersize=4)
        right.set_ylim(0, 1.15 * images["updates"].max())
        right.yaxis.set_major_formatter("{x:,.0f}")
        right.set_title("thousands of images that this takes")
        _batch_ticks(right, runs["batch"])
        if own is not None:
            left.plot(own["batch"], own["updates"], label="your run", **OWN)
            right.plot(own["batch"], own["updates"] * own["batch"] / 1000, **OWN)
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure


def scales(squares: pd.DataFrame, own: pd.DataFrame | None = None, *, caption: str = "") -> Card:
    """The gradient noise scale on the way to the target.

    Args:
        squares: one row for each place: batch (that trained), part (of the way to the target), and see `noise_scales`.
        own: what the reader measured, drawn as stars: part, noise scale.
        caption: see `provenance`.
    """
    with style():
        figure, (axis,) = card(height=380, caption=caption)
        _draw_scales(axis, squares)
        if own is not None:
            axis.plot(own["part"], own["noise scale"], label="yours", **OWN)
        figure.legend(*axis.get_legend_handles_labels(), loc="upper left", ncols=4)
    return figure


def bend(
    runs: pd.DataFrame, squares: pd.DataFrame, *, target: float, fit: Fit = critical_batch.fit, caption: str = ""
) -> Card:
    """Updates to a target by batch size, with perfect scaling, floor and bend; beside it the noise scale on the way.

    Args:
        runs: see `to_target`.
        squares: see `scales`.
        target: the accuracy.
        fit: (batches, medians of the updates) → floor and bend, as `critical_batch.fit`.
        caption: see `provenance`.
    """
    medians = runs.groupby("batch")["updates"].median().dropna()
    floor, critical = fit(medians.index.to_numpy(float), medians.to_numpy(float))
    with style():
        figure, (left, right) = card(height=420, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.2, left=62 / WIDTH)
        _draw_updates(left, runs, target)
        sizes = np.geomspace(medians.index.min(), medians.index.max(), 60)
        fitted = critical_batch.updates(sizes, floor, critical)
        left.plot(sizes, fitted, color=PALETTE[1], linewidth=1.5, label="fit: floor · (1 + bend / B)")
        left.axhline(floor, color=FAINT, linestyle=":", linewidth=1.2)
        left.text(sizes[0], floor * 0.92, f"floor {floor:.0f}", color=FAINT, fontsize=9, va="top")
        left.axvline(critical, color=PALETTE[1], linestyle=":", linewidth=1.4)
        left.text(
            critical * 1.12, left.get_ylim()[1] * 0.9, f"bend {critical:.0f}", color=PALETTE[1], fontsize=9.5, va="top"
        )
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
        _draw_scales(right, squares)
        right.axhline(critical, color=PALETTE[1], linestyle=":", linewidth=1.4)
        right.text(0, critical * 1.06, "bend", color=PALETTE[1], fontsize=9.5)
        right.legend(loc="upper left", fontsize=9)
    return figure


def gap(runs: pd.DataFrame, *, caption: str = "") -> Card:
    """Test accuracy by epochs, and by the loss on training images: a dot for each run, lines through the medians.

    Args:
        runs: columns method ("naive" or another word), batch, epochs, updates, training loss, test accuracy. Naive
            runs are crosses.
        caption: see `provenance`.
    """
    naive = runs[runs["method"] == "naive"]
    tuned = runs[runs["method"] != "naive"]
    with style():
        figure, (left, right) = card(height=400, columns=2, caption=caption)
        for number, (batch, rows) in enumerate(tuned.groupby("batch")):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            medians = rows.groupby("epochs")[["test accuracy", "updates"]].median()
            left.plot(medians.index, 100 * medians["test accuracy"], color=PALETTE[number])
            left.plot(rows["epochs"], 100 * rows["test accuracy"], **look, linestyle="", alpha=0.6, mew=0)
            right.plot(
                rows["training loss"], 100 * rows["test accuracy"], **look, linestyle="", alpha=0.7, mew=0,
                label=f"B = {batch:,}",
            )  # fmt: skip
            for epochs, row in medians.iterrows():
                left.annotate(
                    f"{row['updates']:,.0f} updates", (epochs, 100 * row["test accuracy"]),
                    xytext=(0, 12) if number == 0 else (10, -14), textcoords="offset points",
                    ha="center" if number == 0 else "left",
                    color=PALETTE[number], fontsize=9,
                )  # fmt: skip
        cross = {"color": INK, "marker": "x", "linestyle": "", "markersize": 6}
        left.plot(naive["epochs"], 100 * naive["test accuracy"], **cross)
        if len(naive):
            right.plot(
                naive["training loss"], 100 * naive["test accuracy"], **cross,
                label=f"B = {naive['batch'].iloc[0]:,} with the small batch's η",
            )  # fmt: skip
        left.set_xscale("log")
        ticks = sorted(runs["epochs"].unique())
        left.xaxis.set_major_locator(FixedLocator(ticks))
        left.xaxis.set_minor_locator(NullLocator())
        left.set_xticklabels([f"{tick:g}" for tick in ticks])
        left.set_xlim(ticks[0] / 2, ticks[-1] * 3)
        left.margins(y=0.15)
        left.set_xlabel("epochs")
        left.set_title("test accuracy in %")
        right.set_xlabel("loss on the training images")
        right.set_title("test accuracy in %")
        figure.legend(loc="upper left", ncols=3)
    return figure


def at_equal_loss(small: pd.DataFrame, large: pd.DataFrame) -> pd.DataFrame:
    """Each large-batch run beside the same seed's small-batch runs, at the large one's own training loss.

    The small batch's test loss and accuracy are interpolated in the logarithm of the training loss.

    Args:
        small: seed, training loss, test loss, test accuracy; of each seed, training losses on both sides of the large
            run's. large: the same, and epochs.

    Returns epochs, seed, training loss, and large less small: test loss, and points of test accuracy. A run whose
    training loss no small-batch run surrounds is left out.
    """
    rows = []
    for run in large.to_dict("records"):
        known = small[small["seed"] == run["seed"]].sort_values("training loss")
        x, at = np.log(known["training loss"].to_numpy()), np.log(run["training loss"])
        if len(x) and x[0] <= at <= x[-1]:
            loss, accuracy = (np.interp(at, x, known[name]) for name in ("test loss", "test accuracy"))
            rows.append(
                {
                    **{name: run[name] for name in ("epochs", "seed", "training loss")},
                    "test loss": run["test loss"] - loss,
                    "points": 100 * (run["test accuracy"] - accuracy),
                }
            )
    return pd.DataFrame(rows)


def equal_loss(small: pd.DataFrame, large: pd.DataFrame, *, caption: str = "") -> Card:
    """Test loss and accuracy by training loss: the small batch's runs as a curve, the large batch's as dots.

    Args:
        small: of the experiment equal_loss: batch, epochs, seed, training loss, test loss, test accuracy.
        large: of the experiment generalisation_gap; its large batch's tuned runs of 20 epochs and more are drawn.
    """
    tuned = large[(large["use"] == "result") & (large["method"] != "naive")]
    tuned = tuned[(tuned["batch"] == tuned["batch"].max()) & (tuned["epochs"] > tuned["epochs"].min())]
    with style():
        figure, axes = card(height=400, columns=2, caption=caption)
        for axis, column, factor, title in (
            (axes[0], "test loss", 1, "test loss"),
            (axes[1], "test accuracy", 100, "test accuracy, %"),
        ):
            middle = small.groupby("epochs")[["training loss", column]].mean()
            axis.plot(middle["training loss"], factor * middle[column], color=PALETTE[0], linewidth=1.4)
            axis.plot(
                small["training loss"], factor * small[column], MARKERS[0], color=PALETTE[0], alpha=0.5, mew=0,
                label=f"B = {small['batch'].iloc[0]:,}, {small['epochs'].min()} to {small['epochs'].max()} epochs",
            )  # fmt: skip
            for number, (epochs, rows) in enumerate(tuned.groupby("epochs"), 1):
                axis.plot(
                    rows["training loss"], factor * rows[column], MARKERS[number], color=PALETTE[number], alpha=0.8,
                    mew=0, label=f"B = {rows['batch'].iloc[0]:,}, {epochs} epochs",
                )  # fmt: skip
            axis.set_xscale("log")
            _log_ticks(axis.xaxis)
            axis.set_xlabel("loss on the training images")
            axis.set_title(title)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure


def sharpness(runs: pd.DataFrame, *, floor: float = 0.0, caption: str = "") -> Card:
    """The largest eigenvalue λ of the Hessian by learning rate, λ ‖w‖², and test accuracy by λ: a dot for each run.

    Args:
        runs: columns batch, epochs, rate, sharpness, length of w, test accuracy.
        floor: runs with a lower test accuracy are left out on the right.
        caption: see `provenance`.
    """
    runs = runs.assign(scaled=runs["sharpness"] * runs["length of w"] ** 2)
    with style():
        figure, (left, middle, right) = card(height=400, columns=3, caption=caption)
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
            _log_ticks(axis.yaxis)
            _ticks_at(axis, rates)
            axis.tick_params(axis="x", labelsize=8.5)
            axis.set_xlabel("learning rate η")
            axis.set_title(title)
        right.set_xscale("log")
        _log_ticks(right.xaxis)
        right.set_xlabel("λ")
        right.set_title(f"test accuracy in %{f', if over {100 * floor:g}' if floor else ''}")
        figure.subplots_adjust(wspace=0.26)
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure


def between(lines: pd.DataFrame, *, caption: str = "") -> Card:
    """Loss and accuracy along the straight line from a small-batch solution to other solutions.

    Lines through the medians over the starts, bands from the lowest to the highest.

    Args:
        lines: columns start, to ("large" or "small"), alpha, training loss, test loss, test accuracy.
        caption: see `provenance`.
    """
    kinds = [kind for kind in ("large", "small") if kind in set(lines["to"])]
    names = {"large": "to a large-batch solution", "small": "to another small-batch solution"}
    with style():
        figure, (left, right) = card(height=400, columns=2, caption=caption)
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


def distance(walks: pd.DataFrame, *, caption: str = "") -> Card:
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
        figure, axes = card(height=400, columns=len(panels), caption=caption)
        for axis, (title, rows) in zip(axes, panels.items()):
            for batch, some in rows.groupby("batch"):
                number = batches.index(batch)
                name = f"B = {batch:,}" + (": all images, no noise" if batch == batches[-1] else "")
                _draw_walk(axis, some, PALETTE[number], MARKERS[number], name)
            axis.set_title(title)
            axis.set_ylim(bottom=0)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=4)
    return figure


def _draw_updates(axis: Axes, runs: pd.DataFrame, target: float) -> None:
    """Draw each run as a dot, a line through their medians, and perfect scaling from the smallest batch on."""
    medians = runs.groupby("batch")["updates"].median().dropna()
    sizes = medians.index.to_numpy(float)
    axis.plot(
        sizes, medians.iloc[0] * sizes[0] / sizes, color=FAINT, linestyle=(0, (4, 3)), linewidth=1.2,
        label="twice the batch, half the updates",
    )  # fmt: skip
    axis.plot(runs["batch"], runs["updates"], **RUNS)
    axis.plot(sizes, medians, color=PALETTE[0], marker="o", markersize=4, label="runs and their median")
    axis.set_yscale("log")
    axis.set_ylim(runs["updates"].min() / 3, runs["updates"].max() * 1.6)
    _log_ticks(axis.yaxis)
    axis.set_title(f"updates to {100 * target:g} % validation accuracy")
    _batch_ticks(axis, runs["batch"])


def _draw_scales(axis: Axes, squares: pd.DataFrame) -> None:
    for number, (size, rows) in enumerate(noise_scales(squares).groupby("batch")):
        look = {"color": PALETTE[(0, 2, 3)[number % 3]], "marker": MARKERS[number % 7]}
        axis.plot(rows["part"], rows["noise scale"], linestyle="", alpha=0.45, **look, markeredgewidth=0)
        middle = rows.groupby("part")["noise scale"].median()
        axis.plot(middle.index, middle, **look, markersize=4, label=f"training with B = {size:,}")
    axis.set_yscale("log")
    _log_ticks(axis.yaxis)
    axis.set_xlabel("part of the updates to the target")
    axis.set_title("gradient noise scale, in examples")


def _batch_ticks(axis: Axes, sizes: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    shown = sorted(set(sizes))
    shown = shown[:: 2 if len(shown) > 7 else 1]
    axis.set_xticks(shown, [f"{size:,}" for size in shown])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("batch size B")


def _draw_walk(axis: Axes, rows: pd.DataFrame, colour: str, marker: str, label: str) -> None:
    mean = rows.groupby("updates")["distance"].mean()
    axis.plot(mean.index, mean, color=colour, marker=marker, markersize=4, linewidth=1.2, label=label)
    late = mean[mean.index >= FIT_FROM_UPDATE]
    line = np.polyfit(np.log(late.index.to_numpy(float)), late, 1)
    axis.plot(late.index, np.polyval(line, np.log(late.index.to_numpy(float))), color=colour, linestyle=":", lw=1.2)
    axis.set_xscale("log")
    _ticks_at(axis, [t for t in (1, 4, 16, 64, 256, 1024) if t <= rows["updates"].max()])
    axis.set_xlabel("updates t")


def _ticks_at(axis: Axes, ticks: Sequence[float]) -> None:
    """A horizontal log axis that shows these numbers only."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")


def _log_ticks(axis: Axis) -> None:
    """A log axis with 1, 2 and 5 times the powers of ten as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,g}")
