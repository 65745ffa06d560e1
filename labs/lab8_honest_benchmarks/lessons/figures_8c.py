"""Figures of notebook 8c: what evaluation takes of an epoch, three ways to evaluate, a family by its cost, averages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from course_lib import statistics
from course_lib.cost.networks import Tensor
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, style, subplots

LEFT = 78 / WIDTH
MANY = 2 ** np.arange(11)
DASHED = (0, (4, 3))
IMAGENET = 1_281_167 / 50_000  # training images for each one that is evaluated


def share(training: float, evaluation: float, ranks: np.ndarray) -> np.ndarray:
    """Of an epoch that rank 0's evaluation takes, in %, where all ranks share the training and wait for it."""
    return 100 * evaluation / (training / ranks + evaluation)


def measured_shares(times: pd.DataFrame) -> pd.DataFrame:
    """By way and ranks: mean share of evaluation in an epoch in %, and half the width of its 95 % interval.

    Args:
        times: rows with way, ranks, trained and judged (images), training_s and evaluation_s, one for each epoch.
    """
    percent = 100 * times["evaluation_s"] / (times["training_s"] + times["evaluation_s"])
    grouped = percent.groupby([times["way"], times["ranks"]])
    return grouped.apply(lambda values: pd.Series(statistics.mean(values), ["share, %", "±"])).unstack()


def shares(times: pd.DataFrame, *, caption: str = "") -> Figure:
    """Share of evaluation in an epoch by number of ranks: measured, and predicted from one rank to 1,024."""
    alone = times[times["ranks"] == 1][["training_s", "evaluation_s"]].median()
    found = measured_shares(times)
    with style():
        figure, (axes,) = subplots(height=390, caption=caption)
        for number, way in enumerate(("rank 0", "all ranks")):
            rows = found.loc[way]
            axes.errorbar(
                rows.index, rows["share, %"], rows["±"], fmt=MARKERS[number], color=PALETTE[number], capsize=3,
                label=f"measured: {way} evaluate{'s' * (way == 'rank 0')}",
            )  # fmt: skip
        grid = np.geomspace(1, 1024, 200)
        axes.plot(grid, share(*alone, grid), color=PALETTE[0], label="predicted: rank 0, training shared by all")
        longer = IMAGENET / (times["trained"] / times["judged"]).iloc[0]
        axes.plot(grid, share(longer * alone["training_s"], alone["evaluation_s"], grid), color=PALETTE[0],
                  linestyle=DASHED, label="the same in ImageNet's proportion")  # fmt: skip
        axes.axhline(share(*alone, np.array(1.0)), color=PALETTE[1], label="predicted: all ranks")
        _ranks(axes)
        axes.set(ylim=(0, 100), ylabel="share of an epoch, %")
        axes.set_title("Evaluation")
        axes.legend(loc="upper left")
        figure.subplots_adjust(left=LEFT)
    return figure


def counts(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Of each rank: images of its share that it named rightly and wrongly, and those that fill its batches.

    Args:
        table: columns rank, images, right, filled, filled_right.
    """
    with style():
        figure, (axes,) = subplots(height=300, caption=caption)
        pieces = {
            "right": table["right"],
            "wrong": table["images"] - table["right"],
            "filling, right": table["filled_right"],
            "filling, wrong": table["filled"] - table["filled_right"],
        }
        start = 0 * table["images"]
        for (name, width), colour, alpha in zip(pieces.items(), 2 * PALETTE[:2], (1, 1, 0.35, 0.35)):
            axes.barh(table["rank"], width, left=start, color=colour, alpha=alpha, height=0.6, label=name)
            start = start + width
        axes.set_yticks(table["rank"], [f"rank {rank}" for rank in table["rank"]])
        axes.set(ylim=(len(table) - 0.5, -0.5), xlabel="images that it judged")
        figure.legend(loc="upper left", ncols=len(pieces))
        figure.subplots_adjust(left=LEFT)
    return figure


def three_ways(epoch_seconds: Callable, training: float, evaluation: float, *, caption: str = "") -> Figure:
    """Seconds from epoch to epoch by number of ranks, for each way to evaluate, by the learner's function."""
    with style():
        figure, (axes,) = subplots(height=390, caption=caption)
        for number, way in enumerate(("rank 0", "aside", "all ranks")):
            ranks = MANY[1:] if way == "aside" else MANY
            seconds = [epoch_seconds(training, evaluation, int(some), way) for some in ranks]
            axes.plot(ranks, seconds, marker=MARKERS[number], color=PALETTE[number], label=way)
        axes.set_yscale("log")
        _ranks(axes)
        axes.set(ylabel="seconds from epoch to epoch (logarithmic)")
        axes.set_title("Who evaluates?")
        axes.legend(loc="upper right")
        figure.subplots_adjust(left=LEFT)
    return figure


def _ranks(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(MANY, [f"{ranks:,}" for ranks in MANY])
    axes.minorticks_off()
    axes.set(xlabel="ranks")


def costs(tensors: list[Tensor]) -> tuple[float, float]:
    """Millions of multiply-adds an image, and thousands of weights."""
    return sum(tensor.flops for tensor in tensors) / 2e6, sum(tensor.elements for tensor in tensors) / 1e3


def step_ms(table: pd.DataFrame) -> pd.Series:
    """CPU milliseconds of an image in a training step, by size: the median of the rounds."""
    return table[table["use"] == "step"].groupby("size")["cpu_ms"].median()


def family(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Test accuracy by multiply-adds, by weights and by CPU time: each run, the mean and its interval."""
    from labs.lab8_honest_benchmarks.lessons.family import SIZES

    runs, milliseconds = table[table["use"] == "result"], step_ms(table)
    with style():
        figure, panels = subplots(height=350, columns=3, caption=caption)
        for number, (size, member) in enumerate(SIZES.items()):
            accuracy = runs[runs["size"] == size]["plain_test"].dropna()
            middle, half = statistics.mean(accuracy)
            for axes, cost in zip(panels, (*costs(member.tensors), milliseconds[size])):
                axes.plot([cost] * len(accuracy), accuracy, ".", color=FAINT, markersize=4)
                axes.errorbar(cost, middle, half, fmt=MARKERS[number], color=PALETTE[number], capsize=4)
                axes.annotate(size, (cost, middle), (9, 6), textcoords="offset points", color=PALETTE[number])
        labels = ("million multiply-adds an image", "thousand weights", "CPU ms for an image in training")
        for axes, label in zip(panels, labels):
            axes.set(xlabel=label, xlim=(0, 1.15 * axes.get_xlim()[1]), ylim=panels[0].get_ylim())
        panels[0].set(ylabel="test accuracy, %")
        panels[0].set_title("Three sizes: runs, mean, 95 % interval")
        figure.subplots_adjust(left=LEFT)
    return figure


def averages(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Validation accuracy of size S after each epoch, plain and averaged weights, by where the statistics come from."""
    runs = table[(table["use"] == "result") & (table["size"] == "S")]
    with style():
        figure, panels = subplots(height=350, columns=2, caption=caption)
        for axes, kind, title in zip(panels, ("", "_anew"), ("of the run, averaged likewise", "estimated anew")):
            for number, name in enumerate(("plain", "averaged")):
                found = runs.groupby("epoch")[name + kind].apply(lambda v: pd.Series(statistics.mean(v), ["mean", "±"]))
                found = found.unstack()
                axes.errorbar(
                    found.index + 0.03 * (2 * number - 1), found["mean"], found["±"], marker=MARKERS[number],
                    color=PALETTE[number], capsize=3, markersize=5, label=name,
                )  # fmt: skip
            axes.set_title(f"Statistics of batch norm: {title}")
            axes.set(xlabel="epoch", xticks=sorted(runs["epoch"].unique()), ylim=(0, 60))
        panels[0].set(ylabel="validation accuracy, %")
        panels[0].legend(loc="upper left")
        figure.subplots_adjust(left=LEFT)
    return figure


def clocks(parts: Mapping[str, Mapping[str, float]], published: float, *, caption: str = "") -> Figure:
    """Minutes of training and of waiting for evaluation, for each way, beside the published time.

    Args:
        parts: way → what it consists of → minutes.
    """
    names = list(next(iter(parts.values())))
    with style():
        figure, (axes,) = subplots(height=90 + 60 * len(parts), caption=caption)
        for place, pieces in enumerate(parts.values()):
            start = 0.0
            for number, name in enumerate(names):
                axes.barh(place, pieces[name], left=start, color=PALETTE[number], height=0.55,
                          label=name if place == 0 else None)  # fmt: skip
                start += pieces[name]
            axes.annotate(f"{start:.0f}", (start, place), (6, -4), textcoords="offset points", color=INK)
        axes.axvline(published, color=INK, linewidth=1, linestyle=DASHED, label=f"published: {published:g} min")
        axes.set_yticks(range(len(parts)), list(parts))
        axes.set(ylim=(len(parts) - 0.5, -0.5), xlabel="minutes")
        figure.legend(loc="upper left", ncols=len(names) + 1)
        figure.subplots_adjust(left=200 / WIDTH)
    return figure
