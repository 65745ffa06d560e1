"""Figures of notebook 2c on single steps: their parts, who comes late, and which sizes make the ranks unequal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from course_lib.notebook.plots.style import FAINT, MARKERS, PALETTE, WIDTH, Figure, colour, style, subplots
from course_lib.notebook.plots.timeline import rows  # noqa: F401  (used by the notebook)


def steps(runs: Mapping[str, pd.DataFrame], caption: str = "") -> Figure:
    """How long each step takes and of what that is made up: stacked bars, a panel for each run.

    Args:
        runs: title → table of milliseconds, a row for each step and a column for each part.
    """
    with style():
        figure, axes = subplots(height=340, columns=len(runs), caption=caption)
        for axis, (title, parts) in zip(axes, runs.items()):
            bottom = np.zeros(len(parts))
            for number, (name, values) in enumerate(parts.items()):
                axis.bar(parts.index, values, bottom=bottom, width=0.85, color=PALETTE[number], label=name)
                bottom += values.to_numpy()
            axis.set_title(title)
            axis.set_xlabel("step")
            axis.set_ylim(0, 1.05 * max(table.sum(axis=1).max() for table in runs.values()))
            axis.grid(False, axis="x")
            axis.locator_params(axis="x", integer=True)
        axes[0].set_ylabel("ms")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=len(axes[0].containers))
        figure.subplots_adjust(top=1 - 84 / 340)
    return figure


def lateness(milliseconds: pd.DataFrame, asleep: float, caption: str = "") -> Figure:
    """By how much each rank comes after the first one, step by step.

    Args:
        milliseconds: a row for each step, a column for each rank.
        asleep: a dashed line, the milliseconds that a rank sleeps.
    """
    with style():
        figure, (axis,) = subplots(height=300, caption=caption)
        for rank, values in milliseconds.items():
            look = {"color": colour(rank), "marker": MARKERS[rank % len(MARKERS)], "label": f"rank {rank}"}
            axis.plot(milliseconds.index, values, **look)
        axis.axhline(asleep, color=FAINT, linestyle="--", linewidth=1, label=f"{asleep:g} ms of sleep")
        axis.set_ylim(bottom=-0.04 * axis.get_ylim()[1])
        axis.set_xlabel("step")
        axis.set_ylabel("ms after the first rank")
        axis.locator_params(axis="x", integer=True)
        figure.legend(loc="upper left", ncols=milliseconds.shape[1] + 1)
    return figure


def uneven(sizes: Sequence[int], differ: Mapping[int, Sequence[bool]], caption: str = "") -> Figure:
    """For which numbers of examples the ranks have different numbers of batches: a row for each number of ranks.

    Args:
        sizes: numbers of examples, ascending and without gaps.
        differ: number of ranks → whether their numbers of batches differ, for each of `sizes`.
    """
    height = 130 + 30 * len(differ)
    with style():
        figure, (axis,) = subplots(height=height, caption=caption)
        for place, flags in enumerate(differ.values()):
            axis.broken_barh([(sizes[0] - 0.5, len(sizes))], (place - 0.32, 0.64), color="#e4e4df")
            bars = [(size - 0.5, 1) for size, flag in zip(sizes, flags) if flag]
            axis.broken_barh(bars, (place - 0.32, 0.64), color=PALETTE[1], linewidth=0.6)
        axis.set_yticks(range(len(differ)), [f"{ranks} ranks" for ranks in differ])
        axis.set_xlim(sizes[0] - 0.5, sizes[-1] + 0.5)
        axis.invert_yaxis()
        axis.grid(False)
        axis.set_xlabel("number of examples")
        axis.set_title("sizes at which the ranks have different numbers of batches")
        figure.subplots_adjust(left=84 / WIDTH, top=1 - 40 / height)
    return figure


def parts(runs: Mapping[str, pd.DataFrame], caption: str = "") -> Figure:
    """What each rank does in a step: a bar for each rank and run, with its parts one after the other.

    Args:
        runs: title → table of milliseconds, a row for each part and a column for each rank. Parts that are small in all
            runs are drawn together, as "the rest".
    """
    widest = max(table.sum().max() for table in runs.values())
    named = [part for part in next(iter(runs.values())).index if _largest(runs, part) > 0.06 * widest]
    bars = {f"{title}, rank {rank}": table[rank] for title, table in runs.items() for rank in table}
    height = 110 + 42 * len(bars)
    with style():
        figure, (axis,) = subplots(height=height, caption=caption)
        left = np.zeros(len(bars))
        for number, part in enumerate([*named, "the rest"]):
            widths = np.array([bar.drop(named).sum() if part == "the rest" else bar[part] for bar in bars.values()])
            axis.barh(
                range(len(bars)),
                widths,
                left=left,
                height=0.7,
                color=PALETTE[number % len(PALETTE)],
                alpha=0.5,
                label=part,
            )
            for place in np.flatnonzero(widths > 0.09 * widest):
                axis.text(left[place] + widths[place] / 2, place, part, ha="center", va="center", fontsize=9.5)
            left += widths
        axis.set_yticks(range(len(bars)), list(bars))
        axis.invert_yaxis()
        axis.grid(False, axis="y")
        axis.set_xlabel("milliseconds of a step")
        figure.legend(loc="upper left", ncols=len(named) + 1)
        figure.subplots_adjust(left=170 / WIDTH)
    return figure


def _largest(runs: Mapping[str, pd.DataFrame], part: str) -> float:
    return max(table.loc[part].max() for table in runs.values())
