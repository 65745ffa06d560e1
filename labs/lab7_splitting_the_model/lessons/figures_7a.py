"""Figures of notebook 7a: busy experts, and the words that each cut moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from course_lib import statistics
from course_lib.notebook.plots.style import FAINT, MARKERS, PALETTE, WIDTH, Figure, powers_of_ten, style, subplots
from labs.lab7_splitting_the_model.lessons.wire_words import PLANS, SIZES

NAMES = {"data": "data, 4 × 1", "tensor": "tensor, 1 × 4", "both": "both, 2 × 2"}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Of the result seeds: mean and half the interval (Student's t) of three measurements, in per cent, by setting."""
    rows = table[table["use"] == "result"]
    found = {
        setting: {
            (what, part): 100 * value
            for what in ("test accuracy", "dropped", "fullest")
            for part, value in zip(("mean", "half"), statistics.mean(some[what]))
        }
        for setting, some in rows.groupby("setting", sort=False)
    }
    return pd.DataFrame(found).T


def gains(table: pd.DataFrame) -> pd.DataFrame:
    """How many hundredths of test accuracy each setting with a gate gains on one expert, seed by seed: mean, half."""
    rows = table[table["use"] == "result"].sort_values("seed", kind="stable")
    scores = {setting: 100 * some["test accuracy"].to_numpy() for setting, some in rows.groupby("setting", sort=False)}
    alone = scores.pop("one expert")
    found = {setting: statistics.paired(score, alone) for setting, score in scores.items()}
    return pd.DataFrame(found, index=["mean", "half"]).T


def balance(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `experts`: dropped images, the fullest expert's share, and the test accuracy."""
    found = summary(table)
    gated = found.drop("one expert").sort_index(key=lambda names: names.str.split().str[1].astype(float))
    places = np.arange(len(gated))
    with style():
        figure, axes = subplots(height=360, columns=3, caption=f"{caption} · bars: 95 % (Student's t)")
        titles = {
            "dropped": "dropped in the last epoch, %", "fullest": "share of the fullest expert, %",
            "test accuracy": "test accuracy, %",
        }  # fmt: skip
        for number, (axis, (what, title)) in enumerate(zip(axes, titles.items())):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "capsize": 3}
            axis.errorbar(places, gated[what, "mean"], gated[what, "half"], **look)
            axis.set_title(title)
            axis.set_xticks(places, [setting.split()[1].removeprefix("0") or "0" for setting in gated.index])
            axis.set_xlim(-0.4, len(gated) - 0.6)
            axis.set_xlabel("factor α of the balance loss")
        axes[0].set_ylim(bottom=0)
        axes[1].axhline(25, color=FAINT, linestyle=(0, (4, 3)), linewidth=1.2)
        axes[1].text(-0.3, 24.7, "even", color=FAINT, va="top", fontsize=9.5)
        axes[1].set_ylim(20)
        alone = found.loc["one expert"]
        mean, half = alone["test accuracy", "mean"], alone["test accuracy", "half"]
        axes[2].axhspan(mean - half, mean + half, color=FAINT, alpha=0.15, linewidth=0)
        axes[2].text(-0.3, mean - half, "one expert", color=FAINT, va="top", fontsize=9.5)
    return figure


def plans(words: Callable, counted: pd.DataFrame, caption: str = "") -> Figure:
    """Numbers that a rank sends by tokens of a step: the learner's function as lines, what was counted as dots.

    Args:
        words: the exercise's. counted: columns plan, tokens, counted, for each rank.
    """
    tokens = np.geomspace(16, 4096, 100)
    with style():
        figure, (axis,) = subplots(height=420, caption=caption)
        figure.subplots_adjust(right=1 - 150 / WIDTH, left=76 / WIDTH)
        for number, (plan, ranks) in enumerate(PLANS.items()):
            line = [words(some, SIZES, *ranks) for some in tokens]
            axis.plot(tokens, line, color=PALETTE[number])
            dots = counted[counted["plan"] == plan].groupby("tokens")["counted"].mean()
            axis.plot(dots.index, dots, MARKERS[number], color=PALETTE[number])
            axis.text(4400, line[-1], NAMES[plan], color=PALETTE[number], va="center", clip_on=False)
        axis.set_xscale("log", base=2)
        powers_of_ten(axis)
        axis.set_xticks([16, 64, 256, 1024, 4096], ["16", "64", "256", "1,024", "4,096"])
        axis.minorticks_off()
        axis.set_xlim(16, 4096)
        axis.set_xlabel("tokens in a step, over all ranks")
        axis.set_title("numbers that each rank sends in a step; dots: counted at its sockets")
    return figure
