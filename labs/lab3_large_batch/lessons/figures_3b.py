"""Figures of notebook 3b: learning rates for large batches, warm-up, and the batch that grows in place of a decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from course_lib import statistics
from course_lib.notebook.plots.descent_paths import Ground
from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    WIDTH,
    Figure,
    powers_of_ten,
    style,
    subplots,
)
from labs.lab3_large_batch.lessons.log_axes import batch_ticks

RULE_COLOURS = {
    "linear": PALETTE[0],
    "√": PALETTE[1],
    "LEGW": PALETTE[2],
    "tuned": PALETTE[3],
    "the same rate": PALETTE[6],
}
ACCURACY_TOLERANCE = 0.01  # below the best: a rate of such an accuracy still counts as good
DASHED = (0, (4, 2))


def _look(rule: str) -> dict:
    """A rule's line: its colour, and dashes with an open mark where it warms up."""
    name, _, warm = rule.partition(", ")
    number = list(RULE_COLOURS).index(name) if name in RULE_COLOURS else 5
    look = {"color": RULE_COLOURS.get(name, PALETTE[5]), "marker": MARKERS[number]}
    return {**look, "linestyle": DASHED, "markerfacecolor": PAPER} if warm else look


def steps(one: pd.DataFrame, many: pd.DataFrame, *, caption: str = "") -> Figure:
    """The noise of one step by batch size, and one large step beside the k small ones that it stands for.

    Args:
        one: rule, batch, measured and predicted: the trace of the covariance of a step.
        many: rule, k, mean and covariance: those of a step with k times the batch, divided by those of k steps.
    """
    with style():
        figure, axes = subplots(height=390, columns=3, caption=caption)
        for axis, table, x, columns in (
            (axes[0], one, "batch", ("measured", "predicted")),
            (axes[1], many, "k", ("mean",)),
            (axes[2], many, "k", ("covariance",)),
        ):
            for rule, rows in table.groupby("rule", sort=False):
                look = _look(rule)
                axis.plot(rows[x], rows[columns[0]], label=rule, **{**look, "linestyle": ""})
                axis.plot(rows[x], rows[columns[-1]], color=look["color"], linewidth=1.2)
            if x == "k":
                axis.axhline(1, color=FAINT, linewidth=1, linestyle=":")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.yaxis.set_minor_formatter(NullFormatter())
            ticks = sorted(set(table[x]))[:: 2 if table[x].nunique() > 5 else 1]
            axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.xaxis.set_minor_locator(NullLocator())
            axis.set_xlabel("batch size B" if x == "batch" else "k")
        axes[0].set_title("one step: trace of cov(Δw)", fontsize=10)
        axes[1].set_title("1 large / k small: mean", fontsize=10)
        axes[2].set_title("1 large / k small: covariance", fontsize=10)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=3)
        figure.subplots_adjust(left=64 / WIDTH, wspace=0.28)
    return figure


def quadratic(
    scene: Ground,
    walked: np.ndarray,
    etas: np.ndarray,
    losses: Mapping[int, np.ndarray],
    *,
    eta: float,
    batch: int,
    edge: float,
    title: str = "",
    caption: str = "",
) -> Figure:
    """SGD on a noisy quadratic: one path, and the expected loss at its end over the learning rate.

    Args:
        scene: see `descent_paths.ground`.
        walked: weights [steps + 1, 2] of a run with `eta` and `batch`.
        etas: learning rates [n].
        losses: batch size → expected loss after as many examples, for each of `etas`.
        edge: 2/λ_max, from where on it diverges.
    """
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        scene.draw(left)
        diverged = np.flatnonzero(~(np.abs(walked).max(axis=1) < 1e3))
        shown = walked[: diverged[0] if len(diverged) else None][:400]
        left.plot(*shown.T, color=PALETTE[1], linewidth=1, marker="o", markersize=2.5)
        left.plot(*walked[0], "o", color=PALETTE[0], markersize=7)
        left.plot(0, 0, "+", color=INK, markersize=10, markeredgewidth=1.5)
        left.set_xlabel("w₁")
        left.set_ylabel("w₂", labelpad=0)
        left.set_title(title)
        for size, values in losses.items():
            chosen = size == batch
            right.plot(etas, values, color=PALETTE[0] if chosen else FAINT, linewidth=2.2 if chosen else 0.8)
            lowest = int(np.argmin(values))
            right.plot(etas[lowest], values[lowest], "v", color=PALETTE[0] if chosen else FAINT, markersize=7)
            right.annotate(
                f"{size:,}", (etas[lowest], values[lowest]), (0, -9), textcoords="offset points", ha="center", va="top",
                color=PALETTE[0] if chosen else FAINT, fontsize=8.5,
            )  # fmt: skip
        right.plot(eta, np.interp(eta, etas, losses[batch]), "o", color=PALETTE[1], markersize=9, zorder=4)
        right.axvline(edge, color=INK, linewidth=1, linestyle="--")
        right.set_xscale("log")
        right.xaxis.set_major_locator(FixedLocator([1e-4, 1e-3, 1e-2, 1e-1, 1]))
        right.xaxis.set_major_formatter("{x:g}")
        right.xaxis.set_minor_locator(NullLocator())
        right.set_xlim(etas[0], etas[-1])
        powers_of_ten(right)
        top = max(values[0] for values in losses.values())
        right.set_ylim(min(values.min() for values in losses.values()) / 4, 30 * top)
        right.text(edge, 12 * top, "2/λ_max ", ha="right", fontsize=9)
        right.set_xlabel("learning rate η")
        right.set_title("expected loss in the end, by B; triangle: best η")
        figure.subplots_adjust(left=60 / WIDTH, wspace=0.16)
    return figure


def optimum(best: Mapping[int, float], *, edge: float | None = None, caption: str = "") -> Figure:
    """The best learning rate by batch size, and the two rules from the smallest batch on; `edge`: 2/λ_max."""
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        _draw_best_rates(axis, list(best), list(best.values()))
        if edge:
            axis.axhline(edge, color=INK, linewidth=1, linestyle="--")
            axis.text(min(best), edge * 1.1, "2/λ_max", fontsize=9)
            axis.set_ylim(top=edge * 20)
        axis.set_title("The best learning rate by batch size")
        axis.legend(loc="lower right")
        figure.subplots_adjust(left=64 / WIDTH)
    return figure


def shapes(schedules: Mapping[str, tuple[np.ndarray, np.ndarray]], *, title: str = "", caption: str = "") -> Figure:
    """Learning rates over a run: name → (epochs [updates], rates [updates])."""
    with style():
        figure, (axis,) = subplots(height=370, caption=caption)
        for name, (epochs, rates) in schedules.items():
            look = _look(name)
            dots = look["marker"] if len(rates) <= 100 else ""
            axis.plot(epochs, rates, **{**look, "marker": dots, "markersize": 4.5}, label=name)
        axis.set_xlabel("epoch")
        axis.set_ylabel("learning rate η")
        axis.set_ylim(bottom=0)
        axis.set_xlim(left=0)
        axis.locator_params(nbins=6)
        figure.legend(*axis.get_legend_handles_labels(), loc="upper right", ncols=4)
        figure.text(14 / WIDTH, 1 - 22 / 370, title, fontsize=10.5)
        figure.subplots_adjust(left=70 / WIDTH)
    return figure


def losses(runs: Mapping[str, Sequence[float]], *, title: str = "", caption: str = "") -> Figure:
    """The training loss of each update, a line for each rule; a line ends where its run diverged."""
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        for rule, values in runs.items():
            look = _look(rule)
            axis.plot(range(len(values)), values, **{**look, "markersize": 4.5}, label=rule)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("update")
        axis.set_ylabel("training loss of the batch")
        axis.set_title(title)
        figure.legend(*axis.get_legend_handles_labels(), loc="upper left", ncols=6, columnspacing=1.4)
        figure.subplots_adjust(left=64 / WIDTH)
    return figure


def rules(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """How far each rule ends from the best rate of its batch size, and the rates behind it.

    Left, in points of test accuracy, a row for each rule at each batch size: dots are seeds minus the same seed of
    "tuned" (no warm-up), marks their medians. The axis is stretched around 0 and linear within a point of it. Right,
    the best rates; for those without warm-up also the rates that are nearly as good in the mean of the tuning seeds.

    Args:
        table: of the experiment rate_scaling: use, rule, batch, eta, epochs, seed, validation, test.
    """
    results = table[(table["use"] == "result") & (table["epochs"] == table["epochs"].min())]
    tuned = results[results["rule"] == "tuned"]
    height = 640
    with style():
        figure, (left, right) = subplots(height=height, columns=2, caption=caption)
        names, row = {}, 0.0
        apart = differences(results)
        for batch, at_batch in apart.groupby("batch"):
            names[row] = f"B = {batch:,}"
            ahead = at_batch.groupby("rule")["points"].median().sort_values(ascending=False, na_position="last")
            for rule, middle in ahead.items():
                row += 1
                names[row] = rule
                look = {**_look(rule), "linestyle": ""}
                points = at_batch.loc[at_batch["rule"] == rule, "points"]
                left.plot(points, [row] * len(points), look["marker"], color=look["color"], alpha=0.4, markersize=4)
                left.plot([middle], [row], **look, label=f"{rule}, B = {batch:,}")
            row += 1.4
        left.axvline(0, color=RULE_COLOURS["tuned"], linewidth=1.2)
        left.set_yticks(list(names), list(names.values()))
        for label, name in zip(left.get_yticklabels(), names.values()):
            label.set(color=INK, fontweight="bold") if name.startswith("B = ") else None
        left.set_ylim(row - 0.8, -0.6)
        left.set_xscale("symlog", linthresh=1, linscale=0.7)
        left.set_xlim(left=min(-1, 1.5 * apart["points"].min()))
        left.xaxis.set_major_locator(FixedLocator([-80, -20, -5, -1, 0, 1, 5]))
        left.xaxis.set_major_formatter(lambda x, _: f"{x:+g}" if x else "0")
        left.xaxis.set_minor_locator(NullLocator())
        left.set_title("test accuracy minus that of the best rate, points", fontsize=10)
        tuning = table[(table["use"] == "tuning") & (table["rule"] == "tuned")]
        spans = []
        for _, rows in tuning.groupby("batch"):
            means = rows.groupby("eta")["validation"].mean()
            good = means.index[means >= means.max() - ACCURACY_TOLERANCE]
            spans.append((good.min(), good.max()))
        best = tuned.groupby("batch")["eta"].first()
        _draw_best_rates(right, list(best.index), list(best), spans)
        warm = results[results["rule"] == "tuned, warm-up"].drop_duplicates("batch")
        if len(warm):
            right.plot(warm["batch"], warm["eta"], **_look("tuned, warm-up"), label="best, with warm-up")
        right.set_title(f"best rate; bar: within {100 * ACCURACY_TOLERANCE:g} point of it", fontsize=10)
        right.legend(loc="upper left")
        figure.subplots_adjust(left=128 / WIDTH, top=1 - 40 / height, wspace=0.16)
    return figure


def differences(results: pd.DataFrame, best: str = "tuned") -> pd.DataFrame:
    """Points of test accuracy by which each run is ahead of the best rate, batch and seed being equal.

    Args:
        results: rule, batch, seed, test.
        best: the rule that the others are compared with: "tuned", or "tuned, warm-up". Batch sizes without it are left
            out.

    Returns columns rule, batch, seed, points.
    """
    scores = results[results["rule"] == best].set_index(["batch", "seed"])["test"]
    others = results[(results["rule"] != best) & results["batch"].isin(scores.index.unique("batch"))]
    base = scores.reindex(pd.MultiIndex.from_frame(others[["batch", "seed"]])).to_numpy()
    return others[["rule", "batch", "seed"]].assign(points=100 * (others["test"] - base))


def curvature(table: pd.DataFrame, *, momentum: float, caption: str = "") -> Figure:
    """λ_max in the first updates: a panel for each peak rate, and in the last panel all batch sizes.

    Lines with marks are medians over the seeds of the measured λ_max, plain lines those at the small rate; dashed, in
    the same colour: the edge of the update's rate.

    Args:
        table: of the experiment curvature: rule, warm_up, batch, seed, after, eta, sharpness. A rule and warm-up that
            was run with several batch sizes is LEGW.
    """
    small = table["rule"] == "small"
    peaks, (batch,) = table.loc[~small, "rule"].unique(), table.loc[~small & (table["warm_up"] == 0), "batch"].unique()
    calm = table[small & (table["batch"] == batch)].groupby("after")["sharpness"].median()
    with style():
        figure, (*axes, last) = subplots(height=440, columns=len(peaks) + 1, caption=caption)
        for axis, rule in zip(axes, peaks):
            axis.plot(calm.index, calm, color=FAINT, linewidth=2, label=f"η = {table.loc[small, 'eta'].max():g}")
            runs = table[(table["rule"] == rule) & (table["batch"] == batch)]
            for number, (steps, rows) in enumerate(runs.groupby("warm_up")):
                name = f"{steps:g} updates of warm-up" if steps else "no warm-up"
                _draw_sharpness(axis, rows, number, momentum, name)
            axis.set_title(f"{rule}, B = {batch:,}: η up to {runs['eta'].max():g}", fontsize=10)
        _draw_batches(last, table, small)
        for axis in (*axes, last):
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_locator(NullLocator())
            axis.set_xlabel("updates made")
        axes[0].set_ylabel("λ_max", labelpad=0)
        axes[0].plot([], [], color=FAINT, linewidth=1.2, linestyle=DASHED, label="2(1 + m)/η")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=5, columnspacing=1.2)
        figure.subplots_adjust(left=64 / WIDTH, wspace=0.22)
    return figure


def _draw_sharpness(axis: Axes, rows: pd.DataFrame, number: int, momentum: float, name: str) -> None:
    """The measured λ_max of some runs, and the edge of their rate."""
    middle = rows.groupby("after")[["sharpness", "eta"]].median()
    look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 4}
    axis.plot(middle.index, middle["sharpness"], **look, linewidth=1.4, label=name)
    edge = 2 * (1 + momentum) / middle["eta"]
    axis.plot(middle.index, edge, color=PALETTE[number], linewidth=1.2, linestyle=DASHED)


def _draw_batches(axis: Axes, table: pd.DataFrame, small: pd.Series) -> None:
    """λ_max for each batch size: under LEGW, and at the small rate."""
    legw = table[~small].groupby(["rule", "warm_up"]).filter(lambda rows: rows["batch"].nunique() > 1)
    for number, (size, rows) in enumerate(table[small].groupby("batch")):
        look = {"color": PALETTE[-1 - number], "label": f"B = {size:,}"}
        own = legw[legw["batch"] == size].groupby("after")["sharpness"].median()
        if len(own):
            axis.plot(own.index, own, **look, marker=MARKERS[number], markersize=4, linewidth=1.4)
        middle = rows.groupby("after")["sharpness"].median()
        axis.plot(
            middle.index, middle, linewidth=2, alpha=0.5, **{**look, "label": None if len(own) else look["label"]}
        )
    axis.legend(loc="lower left", fontsize=9.5)
    axis.set_title(f"{'LEGW, and plain: ' * bool(len(legw))}η = {table.loc[small, 'eta'].max():g}", fontsize=10)


def longer(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Two ways to the same number of updates: validation accuracy by rate, and the test accuracy with the best one.

    Args:
        table: of the experiment longer: use, batch, epochs, eta, seed, validation, test.
    """
    with style():
        figure, (left, right) = subplots(height=380, columns=2, caption=caption)
        for number, ((batch, epochs), rows) in enumerate(table.groupby(["batch", "epochs"])):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            name = f"B = {batch:,}, {epochs} epochs"
            tried = rows[rows["use"] == "tuning"].sort_values("eta")
            left.plot(tried["eta"], 100 * tried["validation"], **look, label=name)
            test = 100 * rows.loc[rows["use"] == "result", "test"]
            middle, half = statistics.mean(test)
            right.plot([number] * len(test), test, look["marker"], color=look["color"], alpha=0.45, markersize=5)
            right.errorbar([number + 0.1], [middle], half, **look, capsize=5)
            right.text(number + 0.16, middle, f"{middle:.1f}", va="center", fontsize=9.5)
        names = [f"B = {b:,}\n{e} epochs" for b, e in sorted(set(zip(table["batch"], table["epochs"])))]
        left.set_xscale("log", base=2)
        rates = sorted(table["eta"].unique())
        left.set_xticks(rates, [f"{rate:.3g}" for rate in rates])
        left.xaxis.set_minor_locator(NullLocator())
        left.set_xlabel("learning rate η")
        left.set_title("validation accuracy, %: one seed")
        right.set_xticks(range(len(names)), names)
        right.set_xlim(-0.5, len(names) - 0.3)
        right.set_title("test accuracy, %: seeds; mean, 95 % (Student's t)")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=2)
        figure.subplots_adjust(left=60 / WIDTH, wspace=0.16)
    return figure


def base_warm_up(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Validation accuracy at the base of LEGW by the length of the warm-up: seeds, and their mean with 95 %.

    Args:
        table: of the experiment base_warm_up: warm_up (updates), seed, validation.
    """
    lengths = sorted(table["warm_up"].unique())
    with style():
        figure, (axis,) = subplots(height=320, caption=caption)
        for place, length in enumerate(lengths):
            accuracy = 100 * table.loc[table["warm_up"] == length, "validation"]
            axis.plot([place] * len(accuracy), accuracy, MARKERS[0], color=PALETTE[0], alpha=0.45, markersize=5)
            if len(accuracy) > 1:
                axis.errorbar([place + 0.08], *([value] for value in statistics.mean(accuracy)),
                              color=PALETTE[0], marker=MARKERS[0], capsize=5)  # fmt: skip
        axis.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
        axis.set_xlim(-0.5, len(lengths) - 0.5)
        axis.set_xlabel("updates of warm-up")
        axis.set_title("validation accuracy, %: seeds; mean, 95 % (Student's t)")
    return figure


def stages(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Validation accuracy by epochs and by updates (means over the seeds), and the accuracy of each run in the end.

    Of three runs or more the last one has 95 % intervals by Student's t.

    Args:
        table: of the experiment batch_growth: method, updates, test, and for each epoch n the validation accuracy in
            the column "after n"; without a column test the last of those stands for it. For the panel by updates,
            "updates after n".
    """
    epochs = [int(name.removeprefix("after ")) for name in table.columns if name.startswith("after ")]
    end = "test" if "test" in table.columns else f"after {epochs[-1]}"
    has_intervals = bool(table.groupby("method").size().min() > 2)
    height = 430
    with style():
        figure, axes = subplots(height=height, columns=3, caption=caption)
        for number, (method, rows) in enumerate(table.groupby("method", sort=False)):
            look = {"color": PALETTE[number % 7], "marker": MARKERS[number % 7]}
            accuracy = [100 * rows[f"after {epoch}"].mean() for epoch in epochs]
            updates = [rows[f"updates after {epoch}"].iloc[0] for epoch in epochs]
            axes[0].plot(epochs, accuracy, **look, markersize=4.5, label=method)
            axes[1].plot(updates, accuracy, **look, markersize=4.5)
            last = 100 * rows[end]
            axes[2].plot(rows["updates"], last, look["marker"], color=look["color"], alpha=0.45, markersize=5)
            half_width = statistics.mean(last)[1] if len(rows) > 2 else 0
            axes[2].errorbar(rows["updates"].iloc[0], last.mean(), half_width, **look, capsize=5)
        for axis, title, label in zip(
            axes,
            (
                "validation accuracy, %",
                "the same, by updates",
                f"{'test' if end == 'test' else 'last'} accuracy, %: mean{', 95 %' * has_intervals}",
            ),
            ("epoch", "updates", "updates in all"),
        ):
            axis.set_title(title)
            axis.set_xlabel(label)
            if axis is not axes[0]:
                axis.set_xlim(left=0)
                axis.locator_params(axis="x", nbins=5)
        axes[1].set_ylim(axes[0].get_ylim())
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=5, columnspacing=1.2)
        figure.subplots_adjust(left=60 / WIDTH, wspace=0.24)
    return figure


def _draw_best_rates(
    axis: Axes, sizes: Sequence[int], best: Sequence[float], spans: Sequence[tuple[float, float]] = ()
) -> None:  # fmt: skip
    """The best rates by batch size, with spans of rates that are as good, and where the rules lead from the first."""
    ratio = np.array(sizes) / sizes[0]
    for rule, power in (("linear", 1.0), ("√", 0.5)):
        axis.plot(sizes, best[0] * ratio**power, color=RULE_COLOURS[rule], linewidth=1.4, label=rule)
    for size, span in zip(sizes, spans):
        axis.plot([size, size], span, color=RULE_COLOURS["tuned"], linewidth=7, alpha=0.35, solid_capstyle="butt")
    axis.plot(sizes, best, label="best", **{**_look("tuned"), "linewidth": 1.2})
    batch_ticks(axis, sizes)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())
