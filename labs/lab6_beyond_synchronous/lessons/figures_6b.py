"""Figures of notebook 6b: updates to the target, seconds of an update, and the distance to consensus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from course_lib import statistics
from course_lib.notebook.plots.style import FAINT, MARKERS, PALETTE, WIDTH, Card, card, style

BY = ["way", "period", "own classes"]
DASHED = (0, (4, 3))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Of each way over the result seeds: BY, rate, runs that reached the target, and of their updates mean and half
    of the 95 % interval; missing where a run never reached it. And the mean accuracy at the end, and distance."""
    found = []
    for key, part in table[table["use"] == "result"].groupby(BY, sort=False):
        reached = int(part["updates"].notna().sum())
        mean, half = statistics.mean(part["updates"]) if reached == len(part) else (np.nan, np.nan)
        rest = {"accuracy": part["validation accuracy"].mean(), "distance": part["distance"].mean()}
        told = {"rate": part["rate"].iloc[0], "runs": len(part), "reached": reached, "mean": mean, "half": half}
        found.append({**dict(zip(BY, key)), **told, **rest})
    return pd.DataFrame(found)


def seconds_to_target(table: pd.DataFrame, wire: pd.DataFrame) -> pd.DataFrame:
    """Local SGD on all classes: seconds to the target, index period, a column for each link."""
    rows = summary(table)
    updates = rows[(rows["way"] == "local") & ~rows["own classes"].astype(bool)].set_index("period")["mean"]
    return wire.pivot(index="period", columns="link", values="seconds").mul(updates, axis=0)


def updates_to_target(table: pd.DataFrame, *, caption: str = "") -> Card:
    """The recorded experiment `fewer_meetings`: local SGD by period, on both ways to deal out the images."""
    rows = summary(table)
    rows = rows[rows["way"] == "local"]
    with style():
        figure, (axis,) = card(height=380, caption=f"{caption} · bars: 95 % intervals (Student's t)")
        for number, (own, name) in enumerate({False: "every rank has all classes", True: "classes of its own"}.items()):
            part = rows[rows["own classes"].astype(bool) == own].dropna(subset=["mean"]).sort_values("period")
            if part.empty:
                continue
            look = {"color": PALETTE[number], "marker": MARKERS[number], "capsize": 3}
            axis.errorbar(part["period"], part["mean"], part["half"], **look)
            place = part.iloc[-1]
            axis.annotate(
                name, (place["period"], place["mean"]), (10, 0), textcoords="offset points", color=PALETTE[number],
                fontsize=9.5, va="center",
            )  # fmt: skip
        axis.set_xscale("log", base=4)
        periods = sorted(rows["period"].unique())
        axis.set_xticks(periods, [str(period) for period in periods])
        axis.set_xlim(0.85, periods[-1] * 5)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("updates between meetings, H")
        axis.set_ylabel("updates to the target")
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 24 / 380)
    return figure


def seconds(table: pd.DataFrame, *, caption: str = "") -> Card:
    """The recorded experiment `meetings_wire`: milliseconds an update by period, a line for each link."""
    with style():
        figure, (axis,) = card(height=360, caption=f"{caption} · median; bars: fastest and slowest tenth")
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


def consensus(runs: Mapping[str, Sequence[float]], foretold: Mapping[str, float], *, caption: str = "") -> Card:
    """The distance to consensus after each round of gossip, and the slope that was foretold (dashed).

    Args:
        runs: name → distances, of which the first is before any round.
        foretold: name → the factor by which each round should shrink the distance.
    """
    with style():
        figure, (axis,) = card(height=360, caption=caption)
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
