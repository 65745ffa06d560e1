"""Figures of notebook 6b: updates to the target, seconds of an update, and the distance to consensus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from course_lib import statistics
from course_lib.notebook.plots.style import FAINT, MARKERS, PALETTE, WIDTH, Figure, style, subplots
from labs.lab6_beyond_synchronous.lessons.local_sgd import RANKS, TARGET

BY = ["way", "period", "ranks", "momentum", "pull", "own classes"]
GOSSIP = {"local": "all together", "random pairs": "random pairs", "ring": "ring", "fixed pairs": "fixed pairs"}
DASHED = (0, (4, 3))


def setting(
    way: str, period: int = 1, *, ranks: int = RANKS, momentum: float = 0.0, pull: float = 0.0, own: bool = False
) -> tuple:
    """One of `fewer_meetings`, by the columns BY; own: every rank has classes of its own."""
    return way, period, ranks, momentum, pull, own


def updates(table: pd.DataFrame, which: tuple) -> np.ndarray:
    """Of a setting's result runs, by seed; missing where one never reached the target."""
    rows = table[(table["use"] == "result") & (table[BY] == list(which)).all(axis=1)]
    return rows.sort_values("seed")["updates"].to_numpy(float)


def more(table: pd.DataFrame, ours: tuple, theirs: tuple) -> tuple[float, float]:
    """Updates that one setting needs more than another, over pairs with the same seed: mean, half of the interval."""
    return statistics.paired(updates(table, ours), updates(table, theirs))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Of each way over the result seeds: BY, rate, runs that reached the target, and of their updates mean and half
    of the 95 % interval; missing where a run never reached it. And the accuracy at the end, and the mean distance."""
    found = []
    for key, part in table[table["use"] == "result"].groupby(BY, sort=False):
        reached = int(part["updates"].notna().sum())
        mean, half = statistics.mean(part["updates"]) if reached == len(part) else (np.nan, np.nan)
        accuracy, spread = statistics.mean(part["validation accuracy"])
        rest = {"accuracy": accuracy, "accuracy half": spread, "distance": part["distance"].mean()}
        told = {"rate": part["rate"].iloc[0], "runs": len(part), "reached": reached, "mean": mean, "half": half}
        found.append({**dict(zip(BY, key)), **told, **rest})
    return pd.DataFrame(found)


def seconds_to_target(table: pd.DataFrame, wire: pd.DataFrame) -> pd.DataFrame:
    """Of local SGD on two ranks: link, period, and of the seconds to the target mean and half of the 95 % interval.

    The seconds are the updates of `fewer_meetings`, by seed, times those of an update of `meetings_wire`.
    """
    found = []
    for _, row in wire.iterrows():
        mean, half = statistics.mean(row["seconds"] * updates(table, setting("local", row["period"], ranks=2)))
        found.append({"link": row["link"], "period": row["period"], "mean": mean, "half": half})
    return pd.DataFrame(found)


def updates_to_target(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The recorded experiment `fewer_meetings` on 16 ranks: updates by period, and accuracies with own classes."""
    rows = summary(table)
    rows = rows[(rows["way"] == "local") & (rows["ranks"] == RANKS) & (rows["momentum"] == 0)]
    own = rows["own classes"].astype(bool)
    with style():
        figure, (left, right) = subplots(
            height=400, columns=2, caption=f"{caption} · {RANKS} ranks · bars: 95 % intervals (Student's t)"
        )
        part = rows[~own].sort_values("period")
        left.errorbar(part["period"], part["mean"], part["half"], color=PALETTE[0], marker="o", capsize=3)
        left.set_title("every rank has all classes")
        left.set_ylim(bottom=0)
        left.set_ylabel("updates to the target")
        runs = table[table["use"] == "result"].merge(rows[own][BY], on=BY)
        right.axhline(TARGET, color=FAINT, linestyle=DASHED, linewidth=1.2)
        right.scatter(runs["period"], runs["validation accuracy"], color=PALETTE[1], marker=MARKERS[1], alpha=0.6)
        right.text(90, TARGET, "target", color=FAINT, fontsize=9.5, ha="right", va="bottom")
        right.set_title("classes of its own: every run")
        right.set_ylabel("accuracy when a run ends")
        for axis in (left, right):
            axis.set_xscale("log", base=4)
            axis.set_xticks(part["period"], [str(period) for period in part["period"]])
            axis.minorticks_off()
            axis.set_xlabel("updates between meetings, H")
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 44 / 400, wspace=0.26)
    return figure


def by_ranks(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The recorded experiment `fewer_meetings`: gossip and the mean of all after every update, by number of ranks."""
    rows = summary(table)
    rows = rows[(rows["period"] == 1) & rows["way"].isin(GOSSIP) & (rows["ranks"] > 2)].sort_values("ranks")
    with style():
        figure, axes = subplots(height=400, columns=2, caption=f"{caption} · bars: 95 % intervals (Student's t)")
        for axis, own in zip(axes, (False, True)):
            for number, (way, name) in enumerate(GOSSIP.items()):
                part = rows[(rows["way"] == way) & (rows["own classes"].astype(bool) == own)]
                values = ("accuracy", "accuracy half") if own else ("mean", "half")
                look = {"color": PALETTE[number], "marker": MARKERS[number], "capsize": 3, "label": name}
                axis.errorbar(part["ranks"], part[values[0]], part[values[1]], **look)
            axis.set_xscale("log", base=2)
            ranks = sorted(rows["ranks"].unique())
            axis.set_xticks(ranks, [str(count) for count in ranks])
            axis.minorticks_off()
            axis.set_xlabel("ranks")
        axes[0].set_title("every rank has all classes")
        axes[0].set_ylabel("updates to the target")
        axes[0].set_ylim(bottom=0)
        axes[1].set_title("classes of its own")
        axes[1].set_ylabel("accuracy when a run ends")
        axes[1].axhline(TARGET, color=FAINT, linestyle=DASHED, linewidth=1.2)
        axes[0].legend(loc="lower left")
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 44 / 400, wspace=0.26)
    return figure


def seconds(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The recorded experiment `meetings_wire`: milliseconds an update by period, a line for each link."""
    with style():
        figure, (axis,) = subplots(height=360, caption=f"{caption} · median; bars: fastest and slowest tenth")
        computing = 1e3 * table["computing"].median()
        axis.axhline(computing, color=FAINT, linestyle=DASHED, linewidth=1.2)
        axis.text(0.9, computing, "computing alone", color=FAINT, fontsize=9.5, va="bottom")
        for number, (link, part) in enumerate(table.groupby("link", sort=False)):
            spread = np.stack([part["seconds"] - part["fastest tenth"], part["slowest tenth"] - part["seconds"]])
            look = {"color": PALETTE[number], "marker": MARKERS[number], "capsize": 3}
            axis.errorbar(part["period"], 1e3 * part["seconds"], 1e3 * spread, **look)
            axis.annotate(
                link, (part["period"].iloc[0], 1e3 * part["seconds"].iloc[0]), (10, 4), textcoords="offset points",
                color=PALETTE[number], fontsize=9.5,
            )  # fmt: skip
        axis.set_xscale("log", base=4)
        axis.set_yscale("log")
        axis.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
        axis.minorticks_off()
        axis.set_xticks(table["period"].unique(), [str(period) for period in table["period"].unique()])
        axis.set_xlabel("updates between meetings, H")
        axis.set_ylabel("ms an update")
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 24 / 360)
    return figure


def consensus(runs: Mapping[str, Sequence[float]], foretold: Mapping[str, float], *, caption: str = "") -> Figure:
    """The distance to consensus after each round of gossip, and the slope that was foretold (dashed).

    Args:
        runs: name → distances, of which the first is before any round.
        foretold: name → the factor by which each round should shrink the distance.
    """
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        for number, (name, values) in enumerate(runs.items()):
            rounds, colour = np.arange(len(values)), PALETTE[number]
            axis.plot(rounds, values, color=colour)
            axis.annotate(
                name, (rounds[-1], values[-1]), (6, 0), textcoords="offset points", color=colour, fontsize=9.5,
                va="center",
            )  # fmt: skip
            if name in foretold:
                axis.plot(rounds, values[0] * foretold[name] ** rounds, color=colour, linestyle=DASHED, linewidth=1.2)
        axis.set_yscale("log")
        axis.set_xlim(0, 1.3 * max(len(values) for values in runs.values()))
        axis.set_xlabel("rounds")
        axis.set_ylabel("distance to consensus")
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 24 / 360)
    return figure
