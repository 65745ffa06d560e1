"""Figures of notebook 2d: a resumed training beside the straight one, checkpoints and lost time, an elastic run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.lines import Line2D

from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    WIDTH,
    Figure,
    colour,
    log_axis,
    style,
    subplots,
)
from labs.lab2_horovod.lessons import failures
from labs.lab2_horovod.lessons.elastic_run import ElasticRun

ZERO_POSITION = 1e-9  # where a difference of exactly 0 is drawn on a logarithmic axis


def resumed(
    straight: Sequence[float],
    variants: Mapping[str, Mapping[str, object]],
    *,
    caption: str = "",
) -> Figure:
    """What is left out of a checkpoint and what it does: the loss after resuming, and how far the weights end apart.

    Args:
        straight: the loss after each step of the uninterrupted run.
        variants: what was left out → `losses` after each step since resuming, `from_straight` and `between_ranks`,
            the largest difference of a weight at the end.
    """
    with style():
        figure, axes = subplots(height=140 + 34 * max(6, len(variants)), columns=2, caption=caption)
        left, right = axes
        steps = np.arange(1, len(straight) + 1)
        left.plot(steps, straight, color=FAINT, linewidth=5, alpha=0.35, solid_capstyle="round")
        begin = len(straight) - max(len(run["losses"]) for run in variants.values())
        left.axvline(begin + 0.5, color=INK, linewidth=1, linestyle=(0, (3, 3)))
        for place, run in enumerate(variants.values()):
            ink = PALETTE[place % len(PALETTE)]
            left.plot(begin + 1 + np.arange(len(run["losses"])), run["losses"], color=ink, linewidth=1.2)
            for key, face in (("from_straight", ink), ("between_ranks", "none")):
                value = max(float(run[key]), ZERO_POSITION)
                right.plot(value, place, MARKERS[place % len(MARKERS)], color=ink, markerfacecolor=face, markersize=8)
        left.set_title("Loss over all images; broad: the straight run")
        left.set(xlabel="step", xlim=(max(0, begin - 12), len(straight) + 1))
        shown = [value for run in variants.values() for value in run["losses"]] + list(straight[begin - 12 :])
        left.set_ylim(0, 1.05 * max(shown))
        left.text(begin + 1, 1.0 * max(shown), "resumed", fontsize=9.5)
        right.set_title("Left out, and how much the weights differ at the end", x=-0.55)
        log_axis(right, "x", {ZERO_POSITION: "exactly 0", 1e-6: "10⁻⁶", 1e-4: "10⁻⁴", 1e-2: "10⁻²", 1: "1"})
        right.set_xlim(ZERO_POSITION / 3, 10)
        right.set_yticks(range(len(variants)), list(variants))
        right.set_ylim(len(variants) - 0.5, -0.5)
        right.set_xlabel("full: from the straight run\nopen: between the ranks")
        left.set_position([46 / WIDTH, left.get_position().y0, 0.42, left.get_position().height])
        right.set_position([0.675, right.get_position().y0, 0.295, right.get_position().height])
    return figure


_INTERVALS = np.geomspace(10, 1e6, 121)
_TIME_TICKS = {10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36_000: "10 h", 360_000: "100 h"}
_SHARE_TICKS = {1e-4: "0.01 %", 1e-3: "0.1 %", 1e-2: "1 %", 1e-1: "10 %", 1: "100 %"}


def lost_time(
    lost_share: Callable, ranks: int, write: float, mtbf: float, restart: float, *, caption: str = ""
) -> Figure:
    """The share of the time that is lost by the interval between checkpoints: formula, simulation, Young's interval.

    Args:
        lost_share: (interval, write, restart, mtbf, ranks) → the share; seconds.
        ranks, write, mtbf, restart: see `failures`; mtbf of one rank.
    """
    height = 390
    best = float(failures.young(write, mtbf, ranks))
    least = float(lost_share(best, write, restart, mtbf, ranks))
    outcome = f"{least:.1%} of the time lost" if least < 1 else "no time is left for work"
    lines = {
        "in all": np.asarray(lost_share(_INTERVALS, write, restart, mtbf, ranks), float),
        "writing δ/(T + δ)": write / (_INTERVALS + write),
        "done again T/2 · N/M": _INTERVALS / 2 * ranks / mtbf,
        "restart R · N/M": np.full_like(_INTERVALS, restart * ranks / mtbf),
    }
    dots = _INTERVALS[::6]
    with style():
        figure, (axis,) = subplots(height, caption=caption)
        figure.subplots_adjust(left=92 / WIDTH, top=1 - 78 / height)
        for number, (name, values) in enumerate(lines.items()):
            axis.plot(_INTERVALS, values, color=PALETTE[number], linewidth=1.3 if number else 2.4, label=name)
        simulated = failures.simulate(dots, write, restart, mtbf, ranks)
        axis.plot(dots, simulated, "o", color=INK, markersize=4.5, label="simulated")
        axis.axvline(best, color=INK, linewidth=1, linestyle=(0, (3, 3)))
        log_axis(axis, "x", _TIME_TICKS)
        log_axis(axis, "y", _SHARE_TICKS)
        axis.set(xlim=_INTERVALS[[0, -1]], ylim=(1e-4, 1.2))
        axis.set(xlabel="interval T between two checkpoints", ylabel="share of the time that is lost")
        facts = f"{ranks:,} ranks: a failure every {_duration(mtbf / ranks)}, Young's interval {_duration(best)}"
        figure.text(92 / WIDTH, 1 - 30 / height, f"{facts}, {outcome}", fontsize=11)
        figure.legend(loc="upper left", ncols=5, bbox_to_anchor=(80 / WIDTH, 1 - 36 / height))
    return figure


def _duration(seconds: float) -> str:
    for unit, length in (("years", 365.25 * 86_400), ("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def elastic(run: ElasticRun, *, caption: str = "") -> Figure:
    """Steps over time, a line for each rank of an elastic run, with its commits and the kill."""
    steps, commits = run.steps, run.commits
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        ranks = sorted(steps["rank"].unique())
        for place, rank in enumerate(ranks):
            rows = steps[steps["rank"] == rank]
            # A break where the count goes back, so that nothing seems to be undone slowly.
            times, counts = rows["time"].to_numpy(float), rows["step"].to_numpy(float)
            breaks = np.flatnonzero(np.diff(counts) < 0) + 1
            axis.plot(
                np.insert(times, breaks, np.nan), np.insert(counts, breaks, np.nan),
                color=colour(rank), linewidth=1.5 + 2.5 * (len(ranks) - 1 - place),
            )  # fmt: skip
        committed = commits[commits["rank"] == ranks[-1]]
        axis.plot(committed["time"], committed["step"], "|", color=INK, markersize=13, markeredgewidth=1.4)
        if run.killed is not None:
            before = steps[steps["time"] <= run.killed]
            ended = [rank for rank in ranks if steps[steps["rank"] == rank]["time"].max() <= run.killed]
            dead = ended[0] if len(ended) == 1 else None
            reached = before["step"].max()
            axis.plot(run.killed, reached, "X", color=colour(dead or 0), markeredgecolor=INK, markersize=13, zorder=5)
            name = f"rank {dead} is killed" if dead is not None else "a kill"
            # To the left of the point there is only what lies below it.
            axis.annotate(name, (run.killed, reached), (-10, 6), textcoords="offset points", fontsize=10, ha="right")
            if run.went_on is not None:
                again = run.killed + run.went_on
                axis.axvspan(run.killed, again, color=FAINT, alpha=0.15, linewidth=0)
                words = f"{run.went_on:.1f} s\n{run.lost} steps lost"
                axis.annotate(words, (again, 2), (6, 0), textcoords="offset points", fontsize=10, color=FAINT)
        axis.set(xlabel="seconds since the start of the run", ylabel="step", ylim=(0, None))
        axis.margins(x=0.03)
        handles = [Line2D([], [], color=colour(rank), linewidth=3, label=f"rank {rank}") for rank in ranks]
        handles.append(Line2D([], [], color=INK, marker="|", linestyle="", markersize=11, label="commit"))
        figure.legend(handles=handles, loc="upper left", ncols=len(handles))
    return figure
