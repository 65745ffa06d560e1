"""Figures of notebook 7b: schedules over time, the bubble, plans, and the recorded experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

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
from course_lib.parallel import schedules

DASHED = (0, (4, 3))
FORWARD, BACKWARD = PALETTE[5], PALETTE[4]
WAYS = {
    "current": "never flushed, weights of the moment",
    "longer": "the same, 8 epochs, at half its best rate",
    "stashed": "never flushed, weights stashed",
}
STAGES = (1, 2, 4, 8)


def timelines(runs: Mapping[str, schedules.Run], *, caption: str = "", unit: str = "forward passes") -> Figure:
    """What each stage does when, a panel for each run, on one axis of time.

    Args:
        runs: title → run. unit: of its times.
    """
    with style():
        rows = [run.stages for run in runs.values()]
        height = 118 + sum(24 * count + 44 for count in rows)
        figure = empty_figure(height, caption)
        axes = np.atleast_1d(figure.subplots(len(runs), 1, sharex=True, gridspec_kw={"height_ratios": rows}))
        bottom = 76 if caption else 48
        figure.subplots_adjust(
            left=74 / WIDTH, right=1 - 24 / WIDTH, top=1 - 62 / height, bottom=bottom / height, hspace=0.42
        )
        for axis, (title, run) in zip(axes, runs.items()):
            axis.set_title(title)
            for span in run.spans:
                width = span.end - span.start
                colour = FORWARD if span.kind == "F" else BACKWARD
                box = Rectangle(
                    (span.start, span.stage - 0.42), width, 0.84, facecolor=colour, edgecolor=PAPER, linewidth=0.6
                )
                axis.add_patch(box)
                if width > max(r.seconds for r in runs.values()) / 45:
                    middle = span.start + width / 2, span.stage
                    axis.text(*middle, str(span.micro), ha="center", va="center", fontsize=8, color=INK)
            axis.set_yticks(range(run.stages), [f"stage {stage}" for stage in range(run.stages)])
            axis.set_ylim(run.stages - 0.5, -0.5)
            axis.grid(visible=False)
        axes[-1].set_xlim(0, max(run.seconds for run in runs.values()) * 1.005)
        axes[-1].set_xlabel(f"time, {unit}")
        handles = [Rectangle((0, 0), 1, 1, facecolor=colour) for colour in (FORWARD, BACKWARD)]
        labels = ["forward pass, with its micro-batch", "backward pass"]
        figure.legend(handles, labels, loc="upper left", ncols=2)
    return figure


def plan(seconds: Sequence[float], ways: Mapping[str, Sequence[int]], *, caption: str = "") -> Figure:
    """How plans cut a list of layers: a bar for each stage, of its layers.

    Args:
        seconds: of each layer. ways: name → the cuts, see the exercise `cuts`.
    """
    with style():
        figure, axes = subplots(height=330, columns=len(ways), caption=caption)
        highest = 0.0
        for axis, (name, cuts) in zip(axes, ways.items()):
            ends = [0, *cuts, len(seconds)]
            sums = []
            for stage, (first, last) in enumerate(zip(ends, ends[1:])):
                base = 0.0
                for layer in range(first, last):
                    axis.bar(stage, seconds[layer], 0.8, base, color=FORWARD, edgecolor=PAPER, linewidth=1.5)
                    base += seconds[layer]
                sums.append(base)
            highest = max(highest, *sums)
            axis.axhline(max(sums), color=PALETTE[1], linestyle=DASHED, linewidth=1.2)
            axis.set_title(f"{name}: the slowest takes {max(sums):.3g}")
            axis.set_xticks(range(len(sums)))
            axis.set_xlabel("stage")
        for axis in axes:
            axis.set_ylim(0, 1.08 * highest)
        axes[0].set_ylabel("milliseconds of its layers")
    return figure


def bubbles(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `bubble`, or a live one: idle share and speed-up by number of micro-batches.

    Args:
        table: columns what, micro, seconds, idle, predicted, from its tasks; a row whose `what` is "serial".
    """
    serial = table.loc[table["what"] == "serial", "seconds"].iloc[0]
    names = [name for name in table["what"].unique() if name != "serial" and not name.startswith("message")]
    with style():
        figure, (left, right) = subplots(height=380, columns=2, caption=caption)
        micro = sorted(table.loc[table["what"] == names[0], "micro"])
        predicted = np.array([1 / (count + 1) for count in micro])
        look = {"color": FAINT, "linestyle": DASHED, "linewidth": 1.2}
        left.plot(micro, predicted, label="(k − 1) / (m + k − 1)", **look)
        right.plot(micro, 2 * (1 - predicted), **look)
        for number, name in enumerate(names):
            rows = table[table["what"] == name].sort_values("micro")
            shown = {"color": PALETTE[number], "marker": MARKERS[number], "label": f"measured, {name}"}
            left.plot(rows["micro"], rows["idle"], **shown)
            right.plot(rows["micro"], serial / rows["seconds"], **shown)
        for axis in (left, right):
            axis.set_xscale("log", base=2)
            axis.set_xticks(micro, [str(count) for count in micro])
            axis.minorticks_off()
            axis.set_xlabel("micro-batches m")
            axis.set_ylim(bottom=0)
        left.set_title("idle share of both ranks' time")
        right.set_title("speed-up over one rank")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure


def summary(table: pd.DataFrame, use: str = "result") -> pd.DataFrame:
    """Mean test accuracy and half the width of its interval: columns way, stages, rate, mean, half."""
    rows = table[table["use"] == use]
    found = [
        (*key, *statistics.mean(part["test accuracy"]))
        for key, part in rows.groupby(["way", "stages", "rate"], sort=False)
    ]
    return pd.DataFrame(found, columns=["way", "stages", "rate", "mean", "half"])


def losses(table: pd.DataFrame, use: str = "result") -> pd.DataFrame:
    """What each way loses of the flush's test accuracy, seed by seed: columns way, stages, mean, half."""
    table = table.sort_values("seed", kind="stable")
    flush = table.loc[(table["way"] == "flush") & (table["use"] == "result"), "test accuracy"].to_numpy()
    rows = table[(table["use"] == use) & (table["way"] != "flush")]
    found = [
        (*key, *statistics.paired(flush, part["test accuracy"]))
        for key, part in rows.groupby(["way", "stages"], sort=False)
    ]
    return pd.DataFrame(found, columns=["way", "stages", "mean", "half"])


def stale(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `stale_pipeline`: accuracy by rate for each number of stages, and each way's best."""
    with style():
        figure, (left, right) = subplots(
            height=430, columns=2, caption=f"{caption} · bars: 95 % (Student's t), 5 seeds"
        )
        rows = pd.concat([summary(table).query("way != 'longer'"), summary(table, "half rate")])
        tuning = table[(table["use"] == "tuning") & table["way"].isin(["flush", "current"])]
        means = tuning.groupby(["stages", "rate"])["validation accuracy"].mean()
        for number, stages in enumerate(STAGES):
            by_rate = means[stages]
            name = "flush" if stages == 1 else f"{stages} stages"
            left.plot(by_rate.index, by_rate, color=PALETTE[number], marker=MARKERS[number], markersize=5, label=name)
        left.set_xscale("log")
        rates = sorted(tuning["rate"].unique())
        left.set_xticks(rates, [f"{rate:.2g}"[1:] for rate in rates])
        left.minorticks_off()
        left.set_xlabel("learning rate η")
        left.set_title("validation accuracy, weights of the moment")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=4)
        flush = rows[rows["way"] == "flush"].iloc[0]
        low, high = flush["mean"] - flush["half"], flush["mean"] + flush["half"]
        right.axhspan(low, high, color=FAINT, alpha=0.15, linewidth=0)
        right.axhline(flush["mean"], color=FAINT, linestyle=DASHED, linewidth=1.2)
        right.text(2.9, flush["mean"], "flush", color=FAINT, ha="center", va="bottom", fontsize=9.5)
        for number, (way, name) in enumerate(WAYS.items()):
            part = rows[rows["way"] == way]
            places = part["stages"] * (1.03, 1.0, 0.97)[number]
            look = {"color": PALETTE[(1, 2, 5)[number]], "marker": MARKERS[number], "capsize": 3}
            right.errorbar(places, part["mean"], part["half"], label=name, **look)
        right.set_xscale("log", base=2)
        right.set_xticks(STAGES[1:], [str(stages) for stages in STAGES[1:]])
        right.minorticks_off()
        right.set_xlabel("stages k")
        right.set_title("test accuracy, each with its own best rate")
        right.set_ylim(rows["mean"].min() - 0.03, rows["mean"].max() + 0.015)
        right.legend(loc="lower left")
    return figure


def ticks(stages: int, delays: Sequence[int], *, caption: str = "") -> Figure:
    """Which batch each stage has in each tick of a pipeline that never stops, and one batch's way through it.

    Args:
        delays: of each stage, written beside it: updates between a forward pass and its backward pass.
    """
    marked = 2 * (stages - 1)  # the first batch that enters when every stage is busy
    shown = range(marked, 2 * marked + 2)
    with style():
        figure, (axis,) = subplots(height=110 + 52 * stages, caption=caption)
        for stage in range(stages):
            for tick in shown:
                both = (("F", tick - stage, stage - 0.22), ("B", tick - 2 * (stages - 1) + stage, stage + 0.22))
                for kind, batch, place in both:
                    colour = FORWARD if kind == "F" else BACKWARD
                    faint = {} if batch == marked else {"alpha": 0.3}
                    axis.add_patch(Rectangle((tick - 0.46, place - 0.2), 0.92, 0.4, facecolor=colour, **faint))
                    axis.text(tick, place, str(batch), ha="center", va="center", fontsize=9, color=INK)
        axis.set_yticks(range(stages), [f"stage {stage}: delay {delays[stage]}" for stage in range(stages)])
        axis.set_ylim(stages - 0.5, -0.5)
        axis.set_xlim(shown[0] - 0.6, shown[-1] + 0.6)
        axis.set_xticks(shown)
        axis.set_xlabel("tick")
        axis.grid(visible=False)
        figure.subplots_adjust(left=130 / WIDTH, top=1 - 40 / (110 + 52 * stages))
        handles = [Rectangle((0, 0), 1, 1, facecolor=colour) for colour in (FORWARD, BACKWARD)]
        figure.legend(handles, ["forward pass", f"backward pass and update (batch {marked} stands out)"],
                      loc="upper left", ncols=2)  # fmt: skip
    return figure
