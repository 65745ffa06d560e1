"""Figures of notebook 6a: the server's timeline, the mean of asynchronous paths, and the recorded experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from course_lib import statistics
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, powers_of_ten, style, subplots
from course_lib.notebook.sweep import summary
from labs.lab6_beyond_synchronous.lessons.staleness import explicit

DASHED = (0, (4, 3))
WAITING = "#c9c9c4"
WAYS = {  # of the experiment `staleness`: way, momentum → what the figure calls it
    ("asynchronous", 0.0): "asynchronous",
    ("asynchronous", 0.9): "… with β = .9",
    ("even", 0.0): "… even workers",
    ("synchronous", 0.9): "synchronous, β = .9",
}
LENGTHS = {"asynchronous": "4,000 batches", "long": "16,000 batches"}


def timeline(logs: Mapping[str, pd.DataFrame], seconds: float = 0.5, *, caption: str = "") -> Figure:
    """What the workers do in the first `seconds`, a panel for each log: a bar from reading to handing in, then waiting.

    In each bar stands the gradient's staleness.

    Args:
        logs: title → as `parameter_server.Outcome.log`.
    """
    with style():
        figure, axes = subplots(height=150 + 110 * len(logs), caption=caption)
        axes[0].remove()
        axes = figure.subplots(len(logs), 1, sharex=True, squeeze=False)[:, 0]
        for axis, (title, log) in zip(axes, logs.items()):
            if log.empty:
                axis.set_title(f"{title}: nobody was answered")
                continue
            shown = log[log["read"] < seconds]
            for row in shown.itertuples():
                place, worked = row.worker, row.handed_in - row.read
                axis.barh(place, worked, left=row.read, height=0.7, color=PALETTE[row.worker], edgecolor="white")
                axis.barh(place, row.answered - row.handed_in, left=row.handed_in, height=0.7, color=WAITING)
                middle = (row.read + min(row.handed_in, seconds)) / 2
                axis.text(middle, place, str(row.update - row.version), ha="center", va="center", color="white")
            axis.set_title(title)
            axis.set_yticks(sorted(log["worker"].unique()), [f"worker {n}" for n in sorted(log["worker"].unique())])
            axis.set_ylim(log["worker"].max() + 0.5, -0.5)
            axis.set_xlim(0, seconds)
            axis.grid(axis="y", visible=False)
        axes[-1].set_xlabel("seconds · number: staleness · grey: waiting for the others")
        figure.subplots_adjust(left=84 / WIDTH, hspace=0.45)
    return figure


def paths(simulated: np.ndarray, yours: np.ndarray, title: str, *, caption: str = "") -> Figure:
    """Paths of w by update: some runs, their mean, and what the learner's momentum and rate give.

    Args:
        simulated: [runs, updates + 1]; yours: [updates + 1].
    """
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        for run in simulated[:20]:
            axis.plot(run, color=FAINT, linewidth=0.5, alpha=0.5)
        axis.plot(simulated.mean(0), color=PALETTE[0], linewidth=3, label=f"mean of {len(simulated):,} runs")
        axis.plot(yours, color=PALETTE[1], linestyle=DASHED, label="one worker with your momentum and rate")
        low, high = np.quantile(simulated, (0.005, 0.995))
        axis.set_ylim(min(low, yours.min()) - 0.1, high + 0.1)
        axis.set_title(title)
        axis.set_xlabel("updates")
        axis.set_ylabel("w")
        figure.legend(loc="upper right", ncols=2)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def untuned(workers: Sequence[int], losses: Mapping[str, Sequence[float]], *, caption: str = "") -> Figure:
    """The loss by number of workers, a line for each rate's name; what diverged is drawn at the upper edge."""
    with style():
        figure, (axis,) = subplots(height=340, caption=caption)
        for number, (name, found) in enumerate(losses.items()):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            axis.plot(workers, np.minimum(found, 10), **look, label=name)
        _workers(axis, workers)
        powers_of_ten(axis)
        axis.set_ylabel("loss (at 10: ten or more)")
        figure.legend(loc="upper left", ncols=len(losses))
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def lost(table: pd.DataFrame, way: str, momentum: float = 0.0, base: str = "asynchronous") -> pd.DataFrame:
    """What N workers lose of one's test accuracy, seed by seed: columns workers, mean, half, with N > 1.

    Args:
        base: the way of the one worker, with the same momentum.
    """
    rows = table[(table["use"] == "result") & (table["momentum"] == momentum)].sort_values("seed")
    one = rows[(rows["way"] == base) & (rows["workers"] == 1)]["test accuracy"].to_numpy()
    found = [
        {"workers": workers, **dict(zip(("mean", "half"), statistics.paired(one, part["test accuracy"])))}
        for workers, part in rows[(rows["way"] == way) & (rows["workers"] > 1)].groupby("workers")
    ]
    return pd.DataFrame(found)


def better(table: pd.DataFrame, workers: int, names: tuple[str, str]) -> str:
    """Whether N workers are better with rates by staleness or with one for all, by `names`; "neither": maybe chance.

    Each with its best η, without momentum, in pairs with the same seed.
    """
    scores = [scores_of(table, way, workers) for way in ("aware", "asynchronous")]
    difference, half = statistics.paired(*scores)
    return "neither" if abs(difference) <= half else names[difference < 0]


def scores_of(table: pd.DataFrame, way: str, workers: int, momentum: float = 0.0) -> np.ndarray:
    """Test accuracies in the order of the seeds."""
    rows = table[(table["use"] == "result") & (table["way"] == way) & (table["momentum"] == momentum)]
    return rows[rows["workers"] == workers].sort_values("seed")["test accuracy"].to_numpy()


def best_rates(table: pd.DataFrame, way: str, momentum: float = 0.0) -> pd.Series:
    """The rate that was chosen, by workers."""
    rows = table[(table["use"] == "result") & (table["way"] == way) & (table["momentum"] == momentum)]
    return rows.groupby("workers")["rate"].first()


def staleness(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `staleness`: test accuracy by workers, and what a longer training makes of the loss."""
    rows = summary(table, ["way", "workers", "momentum"], "test accuracy")
    with style():
        figure, (left, right) = subplots(
            height=420, columns=2, caption=f"{caption} · bars: 95 % intervals (Student's t)"
        )
        for number, ((way, momentum), name) in enumerate(WAYS.items()):
            part = rows[(rows["way"] == way) & (rows["momentum"] == momentum)]
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "capsize": 3}
            left.errorbar(part["workers"], part["mean"], part["half"], **look, label=name)
        left.set_ylabel("test accuracy")
        _workers(left, sorted(rows["workers"].unique()))
        for number, (way, name) in enumerate(LENGTHS.items()):
            part = lost(table, way, base=way)
            look = {"color": PALETTE[(0, 5)[number]], "marker": MARKERS[number], "markersize": 5, "capsize": 3}
            right.errorbar(part["workers"], 100 * part["mean"], 100 * part["half"], **look)
            last, below = part.iloc[-1], -68 * number
            where = (last["workers"], 100 * last["mean"])
            right.annotate(name, where, (-8, 4 + below), textcoords="offset points", ha="right")
        right.axhline(0, color=FAINT, linestyle=DASHED, linewidth=1.2)
        right.set_title("lost against one worker, no momentum")
        right.set_ylabel("hundredths of test accuracy")
        _workers(right, sorted(rows["workers"].unique()))
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=5, columnspacing=1.2)
        figure.subplots_adjust(left=72 / WIDTH, wspace=0.24)
    return figure


def by_staleness(table: pd.DataFrame, caption: str = "") -> Figure:
    """Test accuracy and the chosen rate by workers: the same rate for all gradients, and rates by staleness."""
    rows = summary(table[table["momentum"] == 0], ["way", "workers"], "test accuracy")
    with style():
        figure, (left, right) = subplots(height=380, columns=2, caption=caption)
        for number, (way, name) in enumerate({"asynchronous": "the same for all", "aware": "by staleness"}.items()):
            part = rows[(rows["way"] == way) & (rows["workers"] > 1)]
            look = {"color": PALETTE[(0, 3)[number]], "marker": MARKERS[number], "markersize": 5}
            left.errorbar(part["workers"], part["mean"], part["half"], **look, capsize=3, label=name)
            rates = best_rates(table, way).loc[2:]
            right.plot(rates.index, rates, **look)
        for axis in (left, right):
            _workers(axis, sorted(part["workers"]))
        left.set_ylabel("test accuracy")
        right.set_ylabel("best η")
        right.set_ylim(0, None)
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=2)
        figure.subplots_adjust(left=72 / WIDTH, wspace=0.24)
    return figure


def best_momenta(table: pd.DataFrame) -> pd.DataFrame:
    """By workers the momentum with the lowest mean test loss, and those that may be as good: best, low, high.

    As good: in pairs with the same seed the best is not ahead by more than half its 95 % interval.
    """
    rows = table[table["use"] == "result"].sort_values("seed")
    found = []
    for workers, part in rows.groupby("workers"):
        losses = {momentum: seeds["test loss"].to_numpy() for momentum, seeds in part.groupby("momentum")}
        best = min(losses, key=lambda momentum: losses[momentum].mean())
        behind = {momentum: statistics.paired(loss, losses[best]) for momentum, loss in losses.items()}
        good = [momentum for momentum, (mean, half) in behind.items() if momentum == best or mean <= half]
        found.append({"workers": workers, "best": best, "low": min(good), "high": max(good)})
    return pd.DataFrame(found)


def momenta(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `implicit_momentum`: the loss by momentum, and the best momentum beside the theory's."""
    rows = summary(table, ["workers", "momentum"], "test loss")
    best = best_momenta(table)
    with style():
        figure, (left, right) = subplots(
            height=420, columns=2, caption=f"{caption} · bars: 95 % intervals (Student's t)"
        )
        for number, (workers, part) in enumerate(rows.groupby("workers")):
            part = part.sort_values("momentum")
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "capsize": 3}
            left.errorbar(part["momentum"], part["mean"], part["half"], **look)
            where = (part["momentum"].iloc[-1], part["mean"].iloc[-1])
            name = f"{workers} worker{'s' * (workers > 1)}"
            left.annotate(name, where, (8, -3), textcoords="offset points", color=PALETTE[number], fontsize=9)
        left.set_xlim(-0.9, 1.6)
        left.set_xticks([-0.8, -0.5, 0, 0.5, 0.8], labels=["−.8", "−.5", "0", ".5", ".8"])
        left.set_title("each momentum with its own best rate")
        left.set_xlabel("explicit momentum β")
        left.set_ylabel("test loss")
        errors = [best["best"] - best["low"], best["high"] - best["best"]]
        look = {"color": PALETTE[0], "marker": "o", "linestyle": "none", "capsize": 4}
        right.errorbar(best["workers"], best["best"], errors, **look, label="measured")
        alone = float(best.loc[best["workers"] == 1, "best"].iloc[0])
        grid = np.geomspace(1, best["workers"].max(), 400)
        theory = np.array([explicit(workers, alone) for workers in grid])
        right.plot(grid, theory, color=PALETTE[1], linestyle=DASHED, label="theory: the ages add up")
        right.axhline(0, color=FAINT, linewidth=0.8)
        right.set_ylim(-1.05, 1.05)
        right.set_ylabel("best explicit momentum")
        right.set_title("the best momentum, and what may be as good")
        right.legend(loc="lower left")
        _workers(right, best["workers"])
        figure.subplots_adjust(left=72 / WIDTH, wspace=0.24)
    return figure


def speeds(table: pd.DataFrame) -> pd.DataFrame:
    """Updates a second of two processes over those of one, by repeat: columns problem, way, mean, half."""
    rows = table[table["part"] == "speed"].sort_values("repeat")
    found = []
    for problem, part in rows.groupby("problem", sort=False):
        by_way = {way: runs["updates per second"].to_numpy() for way, runs in part.groupby("way")}
        for way in ("locked", "lock-free"):
            mean, half = statistics.mean(by_way[way] / by_way["alone"])
            found.append({"problem": problem, "way": way, "mean": mean, "half": half})
    return pd.DataFrame(found)


def hogwild(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `hogwild`: speeds by problem and way, and the share that is lost by overlap."""
    ratios = speeds(table)
    overlap = table[table["part"] == "overlap"]
    with style():
        figure, (left, right) = subplots(
            height=400, columns=2, caption=f"{caption} · bars: 95 % intervals (Student's t)"
        )
        problems = list(pd.unique(ratios["problem"]))
        for number, (way, part) in enumerate(ratios.groupby("way", sort=False)):
            places = np.arange(len(problems)) + (number - 0.5) * 0.36
            look = {"color": PALETTE[(1, 2)[number]], "height": 0.32, "label": way}
            left.barh(places, part["mean"], xerr=part["half"], capsize=3, ecolor=INK, **look)
        left.axvline(1, color=FAINT, linestyle=DASHED, linewidth=1.2)
        left.set_yticks(range(len(problems)), problems)
        left.set_ylim(len(problems) - 0.4, -0.6)
        left.set_xlabel("updates a second, over those of one process")
        for number, (uneven, part) in enumerate(overlap.groupby(overlap["problem"].str.contains("uneven"))):
            name = "100 values, few frequent" if uneven else "10 to 1,000 values, all as frequent"
            look = {"color": PALETTE[(2, 3)[number]], "marker": MARKERS[number], "linestyle": "none", "alpha": 0.7}
            right.plot(part["common"], 100 * part["lost"], **look, label=name)
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xlabel("weights that two examples both touch, on average")
        right.set_ylabel("lost updates (%)")
        right.legend(loc="upper left")
        left.legend(loc="lower right")
        figure.subplots_adjust(left=72 / WIDTH, wspace=0.24)
    return figure


def _workers(axis: Axes, workers: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(workers), [str(number) for number in workers])
    axis.minorticks_off()
    axis.set_xlabel("workers N")
