"""Figures of notebook 6c: sparse positions by ranks, costs, sick trainings, and the recorded experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from course_lib import statistics
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

DASHED = (0, (4, 3))
FAMILIES = {  # ways that a line joins → name, colour, marker, which end it stands at, and how far off in points
    "nothing kept": ("largest, nothing kept", 0, 0, 0, (12, -4)),
    "memory": ("largest, memory", 0, 1, 0, (12, -6)),
    "warm-up": ("deep gradient compression", 2, 2, 0, (-152, 12)),
    "low rank, nothing kept": ("low rank 1, nothing kept", 3, 4, 0, (12, -4)),
    "low rank": ("low rank 1, 2, 4, memory", 3, 3, 1, (2, -54)),
    "signs, momentum before, nothing kept": ("signs, momentum before, nothing kept", 1, 0, 0, (-8, 12)),
    "signs": ("signs, momentum after, memory", 1, 1, 0, (10, -24)),
}
LADDER = {  # one change after the other
    "nothing kept": "nothing kept",
    "memory": "+ memory",
    "momentum before": "+ momentum before",
    "masking": "+ masking",
    "clipping": "+ clipping",
    "warm-up": "+ warm-up",
}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Test accuracy of the result seeds: columns way, amount, rate, bytes, mean, half (of the 95 % interval)."""
    rows = table[table["use"] == "result"]
    found = []
    for (way, amount), part in rows.groupby(["way", "amount"], sort=False):
        mean, half = statistics.mean(part["test accuracy"])
        first = part.iloc[0]
        told = {"way": way, "amount": amount, "rate": first["rate"], "bytes": part["bytes"].mean()}
        found.append({**told, "mean": mean, "half": half})
    return pd.DataFrame(found)


def ahead(table: pd.DataFrame, ours: tuple[str, float], theirs: tuple[str, float]) -> tuple[float, float]:
    """By how many points of test accuracy `ours` (way, amount) is better, seed by seed, and half of its interval."""
    rows = table[table["use"] == "result"].sort_values("seed")
    scores = [
        rows.loc[(rows["way"] == way) & (rows["amount"] == amount), "test accuracy"] for way, amount in (ours, theirs)
    ]
    mean, half = statistics.paired(*(part.to_numpy() for part in scores))
    return 100 * mean, 100 * half


def by_bytes(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The recorded experiment `send_less`: accuracy by the bytes that a rank sends in an update."""
    rows = summary(table)
    with style():
        figure, (axis,) = subplots(height=440, caption=f"{caption} · bars: 95 % intervals (Student's t)")
        dense = rows[rows["way"] == "dense"].iloc[0]
        axis.axhspan(dense["mean"] - dense["half"], dense["mean"] + dense["half"], color=FAINT, alpha=0.15, linewidth=0)
        axis.axhline(dense["mean"], color=FAINT, linestyle=DASHED, linewidth=1.2)
        axis.text(130, dense["mean"] + 0.004, "dense", color=FAINT, fontsize=9.5, va="bottom")
        for way, (name, colour, marker, end, aside) in FAMILIES.items():
            part = rows[rows["way"] == way].sort_values("bytes")
            look = {"color": PALETTE[colour], "marker": MARKERS[marker], "markersize": 7, "capsize": 3}
            face = {"markerfacecolor": PAPER} if way.endswith("nothing kept") else {}
            axis.errorbar(part["bytes"], part["mean"], part["half"], **look, **face)
            place = part.iloc[-1 if end else 0]
            axis.annotate(
                name, (place["bytes"], place["mean"]), aside, textcoords="offset points", color=PALETTE[colour],
                fontsize=9.5,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.set_xticks([100, 1_000, 10_000], ["100", "1,000", "10,000"])
        axis.set_xlim(100, 25_000)
        axis.set_xlabel("bytes that a rank sends in an update (mean of the training)")
        axis.set_ylabel("test accuracy")
        axis.margins(y=0.08)
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 24 / 440)
    return figure


def ladder(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The recorded experiment `send_less`: from no memory to deep gradient compression, a panel for each ratio."""
    rows = summary(table)
    dense = rows[rows["way"] == "dense"].iloc[0]
    ratios = sorted(rows.loc[rows["way"].isin(LADDER), "amount"].unique(), reverse=True)
    with style():
        figure, axes = subplots(
            height=360, columns=len(ratios), caption=f"{caption} · bars: 95 % intervals (Student's t)"
        )
        for axis, ratio in zip(axes, ratios):
            part = rows[rows["amount"] == ratio].set_index("way").loc[list(LADDER)]
            places = np.arange(len(part))
            axis.axvline(dense["mean"], color=FAINT, linestyle=DASHED, linewidth=1.2)
            axis.errorbar(part["mean"], places, xerr=part["half"], fmt="o", color=PALETTE[0], capsize=3)
            axis.set_yticks(places, list(LADDER.values()) if axis is axes[0] else [])
            axis.set_ylim(len(part) - 0.4, -0.6)
            axis.grid(False, axis="y")
            axis.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            axis.set_title(f"1 of {1 / ratio:,.0f} sent")
            axis.set_xlabel("test accuracy")
        axes[0].text(dense["mean"], -0.55, "dense ", ha="right", va="top", color=FAINT, fontsize=9)
        figure.subplots_adjust(left=164 / WIDTH, top=1 - 40 / 360, wspace=0.14)
    return figure


def losses(runs: Mapping[str, Sequence[float]], *, caption: str = "", every: int = 10) -> Figure:
    """The loss of each update, smoothed over `every`, of some trainings."""
    with style():
        figure, (axis,) = subplots(height=360, caption=f"{caption} · mean of {every} updates" if caption else "")
        for number, (name, values) in enumerate(runs.items()):
            values = np.asarray(values)[: len(values) // every * every].reshape(-1, every).mean(1)
            look = {"color": PALETTE[number % len(PALETTE)], "label": name}
            axis.plot(every * (np.arange(len(values)) + 0.5), values, **look)
        powers_of_ten(axis)
        axis.set_ylim(0.3, 4)
        axis.set_yticks([0.3, 0.5, 1, 2, 4], ["0.3", "0.5", "1", "2", "4"])
        axis.set_xlabel("updates")
        axis.set_ylabel("loss")
        figure.legend(loc="upper left", ncols=6)
    return figure


def union(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The share of positions that at least one rank sends, by the number of ranks, a line for each ratio.

    Args:
        table: columns ranks, ratio, union.
    """
    with style():
        figure, (axis,) = subplots(height=340, caption=caption)
        for number, (ratio, rows) in enumerate(table.groupby("ratio", sort=False)):
            axis.plot(rows["ranks"], rows["union"], color=PALETTE[number], marker=MARKERS[number])
            told = f"each sends 1 of {1 / ratio:,.0f}"
            axis.annotate(
                told, (rows["ranks"].iloc[-1], rows["union"].iloc[-1]), (8, 0), textcoords="offset points", color=INK,
                fontsize=9.5, va="center",
            )  # fmt: skip
        axis.set_xscale("log", base=2)
        ranks = sorted(table["ranks"].unique())
        axis.set_xticks(ranks, [str(n) for n in ranks])
        axis.set_xlim(ranks[0] * 0.9, ranks[-1] * 3)
        powers_of_ten(axis)
        axis.set_xlabel("ranks")
        axis.set_ylabel("share that somebody sends")
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 24 / 340)
    return figure


def costs(
    curves: Mapping[str, Sequence[float]], ranks: Sequence[int], dense: Sequence[float], *, caption: str = ""
) -> Figure:
    """Seconds of all-gathers by the number of ranks, beside the dense all-reduce.

    Args:
        curves: name → seconds, one for each of `ranks`.
    """
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        axis.plot(ranks, dense, color=INK, linestyle=DASHED)
        axis.annotate("dense, ring", (ranks[0], dense[0]), (0, 16), textcoords="offset points", color=INK, fontsize=9.5)
        for number, (name, seconds) in enumerate(curves.items()):
            axis.plot(ranks, seconds, color=PALETTE[number])
            axis.annotate(
                name, (ranks[-1], seconds[-1]), (6, 0), textcoords="offset points", color=PALETTE[number], fontsize=9.5,
                va="center",
            )  # fmt: skip
        axis.set_xscale("log", base=2)
        powers_of_ten(axis)
        axis.set_xticks(ranks[::2], [f"{n:,}" for n in ranks[::2]])
        axis.set_xlim(ranks[0] * 0.9, ranks[-1] * 3.2)
        axis.set_xlabel("ranks")
        axis.set_ylabel("seconds of an exchange")
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 24 / 360)
    return figure


def seconds(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """The recorded experiment `send_less_seconds`: milliseconds a step by way, a panel for each link."""
    caption = " · ".join(part for part in ("median; whiskers: fastest and slowest tenth", caption) if part)
    links = list(dict.fromkeys(table["link"]))
    with style():
        figure, axes = subplots(height=400, columns=len(links), caption=caption)
        for axis, link in zip(axes, links):
            rows = table[table["link"] == link]
            places = np.arange(len(rows))
            step, computing, own = (1e3 * rows[name] for name in ("seconds per step", "computing", "compressing"))
            axis.barh(places, computing, color=PALETTE[5], label="gradient")
            axis.barh(places, own, left=computing, color=PALETTE[4], label="compressing")
            rest = np.maximum(step - computing - own, 0)
            axis.barh(places, rest, left=computing + own, color=PALETTE[1], label="exchanging, waiting")
            spread = 1e3 * np.stack([rows["seconds per step"] - rows["fastest tenth"],
                                     rows["slowest tenth"] - rows["seconds per step"]])  # fmt: skip
            axis.errorbar(step, places, xerr=spread, fmt="none", color=INK, capsize=3, linewidth=1.2)
            axis.set_yticks(places, rows["name"] if axis is axes[0] else [])
            axis.set_ylim(len(rows) - 0.5, -0.5)
            axis.grid(False, axis="y")
            axis.set_title(link)
            axis.set_xlabel("ms a step")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=3)
        figure.subplots_adjust(left=170 / WIDTH, wspace=0.1)
    return figure
