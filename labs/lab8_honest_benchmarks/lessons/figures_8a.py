"""Figures of notebook 8a: times that scatter, runs and power, latency against throughput, looks at a noisy curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.ticker import NullFormatter

from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, colour, style, subplots
from labs.lab8_honest_benchmarks.lessons import noisy_curve
from labs.lab8_honest_benchmarks.lessons.checks_8a import power

LEFT = 72 / WIDTH


def step_times(runs: Mapping[str, np.ndarray], *, caption: str = "") -> Figure:
    """Seconds of each step, one after the other and by their share; `runs`: name → seconds [steps]."""
    with style():
        figure, (left, right) = subplots(height=380, columns=2, caption=caption)
        most = max(np.quantile(seconds, 0.995) for seconds in runs.values()) * 1000
        for number, (name, seconds) in enumerate(runs.items()):
            ms = 1000 * np.asarray(seconds)
            shown = np.where(ms > most, np.nan, ms)
            left.plot(1 + np.arange(len(ms)), shown, ".", color=PALETTE[number], markersize=3)
            right.plot(np.sort(ms), np.linspace(0, 100, len(ms)), color=PALETTE[number], label=name)
            for share in (50, 99):
                right.plot(np.percentile(ms, share), share, MARKERS[number], color=PALETTE[number])
        left.set(title="Each step (a few are above the edge)", xlabel="step", ylabel="milliseconds", ylim=(0, most))
        right.set(
            title="At most so long; marks: half of the steps, 99 %", xlabel="milliseconds", ylabel="% of the steps"
        )
        right.set_xscale("log")
        right.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        right.xaxis.set_minor_formatter(lambda value, _: "")
        left.legend(*right.get_legend_handles_labels(), loc="upper left")
    return figure


def powers(
    spread: float, claims: Sequence[float], needed: Callable[[float, float], int], *, caption: str = ""
) -> Figure:
    """How often a claim is found by the number of runs on each side; rings: what `needed` asks for.

    Args:
        spread: standard deviation of a run's time, relative to its mean.
        claims: true differences, relative too.
        needed: (spread, difference) → runs.
    """
    with style():
        figure, (axes,) = subplots(height=350, columns=1, caption=caption)
        runs = np.unique(np.geomspace(2, 320, 60).astype(int))
        for number, claim in enumerate(claims):
            found = [100 * power(int(n), spread, claim) for n in runs]
            axes.plot(runs, found, color=PALETTE[number])
            asked = int(needed(spread, claim))
            axes.plot(asked, 100 * power(asked, spread, claim), "o", color=PALETTE[number], mfc="none", ms=11)
            ring = (asked, 100 * power(asked, spread, claim))
            told = {"color": PALETTE[number], "fontsize": 9.5, "textcoords": "offset points"}
            axes.annotate(f"{100 * claim:g} % difference", ring, (9, -16), **told)
        axes.axhline(80, color=INK, linewidth=1, linestyle=(0, (3, 3)))
        axes.set_xscale("log")
        ticks = [2, 5, 10, 20, 50, 100, 200]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set(xlabel="runs on each side", ylabel="% of the times that it is found", ylim=(0, 103), xlim=(1.9, 330))
        axes.set_title(f"A run scatters by {100 * spread:g} %; ring: your runs_needed")
        figure.subplots_adjust(left=LEFT, right=0.95)
    return figure


def serving(table: Mapping[int, np.ndarray], *, caption: str = "") -> Figure:
    """Images a second against the wait for an answer; `table`: batch → seconds [calls]."""
    with style():
        figure, (axes,) = subplots(height=360, columns=1, caption=caption)
        batches = sorted(table)
        rate = [batch / np.mean(table[batch]) for batch in batches]
        for number, share in enumerate((50, 99)):
            wait = [1000 * np.percentile(table[batch], share) for batch in batches]
            axes.plot(wait, rate, marker=MARKERS[number], color=colour(number), label=f"{share}th percentile")
            if share == 50:
                for x, y, batch in zip(wait, rate, batches):
                    axes.annotate(f"{batch}", (x, y), (-7, 6), textcoords="offset points", ha="right", fontsize=9.5)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
            axis.set_minor_formatter(NullFormatter())
        axes.set(xlabel="milliseconds until the answer is there", ylabel="images a second")
        axes.set_title("Answers in batches (numbers: images in a batch)")
        axes.legend(loc="lower right")
        figure.subplots_adjust(left=0.11)  # 100,000 is a long number
    return figure


def looks(time_to_target: Callable, target: float, every: Sequence[float], *, caption: str = "") -> Figure:
    """One run looked at seldom and often, and when 150 runs reach `target` by two ways of telling.

    Args:
        time_to_target: (seconds, accuracies, target) → seconds, the learner's.
        every: seconds between two looks; the first and the last are drawn on the left.
    """

    def first(seconds: np.ndarray, accuracy: np.ndarray, target: float) -> float:
        return float(seconds[np.argmax(accuracy >= target)])

    true = noisy_curve.reached(target)
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        for number, step in ((0, every[0]), (1, every[-1])):
            shape = {"marker": MARKERS[number], "markersize": (2.5, 7)[number], "linestyle": ""}
            left.plot(
                *noisy_curve.looks(step, seed=3), color=PALETTE[number], label=f"a look every {step:g} s", **shape
            )
        line = np.linspace(0, 70, 200)
        left.plot(line, noisy_curve.accuracy(line), color=INK, linewidth=1)
        left.axhline(target, color=FAINT, linewidth=1, linestyle=(0, (3, 3)))
        left.axvline(true, color=FAINT, linewidth=1, linestyle=(0, (3, 3)))
        left.set(xlim=(0, 70), ylim=(0.55, 0.92), xlabel="seconds", ylabel="accuracy on 1,000 images")
        left.set_title("One run, looked at often and seldom")
        left.legend(loc="lower right")
        for row, (name, way) in enumerate(
            {"first look at the target": first, "your time_to_target": time_to_target}.items()
        ):
            for number, step in enumerate(every):
                found = np.array([way(*noisy_curve.looks(step, seed), target) for seed in range(150)])
                place = row * (len(every) + 1) + number
                right.plot(np.percentile(found, [5, 95]), [place, place], color=PALETTE[number], linewidth=2)
                right.plot(found.mean(), place, "o", color=PALETTE[number])
                right.text(
                    1.02, place, f"every {step:g} s", transform=right.get_yaxis_transform(), va="center", fontsize=9.5
                )
            right.text(0.0, row * (len(every) + 1) - 0.62, name, transform=right.get_yaxis_transform(), fontsize=9.5)
        right.axvline(true, color=FAINT, linewidth=1, linestyle=(0, (3, 3)))
        right.set_ylim(2 * len(every) + 0.6, -1.2)
        right.set_yticks([])
        right.set_xlabel("seconds to the target; bar: 90 % of the runs")
        right.set_title("150 runs; dashed: the truth")
        figure.subplots_adjust(left=LEFT, right=0.9)
    return figure


def recorded_spread(table: Sequence[Mapping[str, object]], *, caption: str = "") -> Figure:
    """Runs of one training: start, step and time to target, alone and beside another program.

    Args:
        table: rows with `beside` (yes or no), `start_s`, `step_ms`, `to_target_s` (None: never).
    """
    panels = (("start_s", "Until the first step is done", "seconds"), ("step_ms", "A step (median)", "milliseconds"),
              ("to_target_s", "To the target, start not counted", "seconds"))  # fmt: skip
    with style():
        figure, axes = subplots(height=300, columns=3, caption=caption)
        for axis, (column, title, unit) in zip(axes, panels):
            for place, beside in enumerate(("no", "yes")):
                found = [row[column] for row in table if row["beside"] == beside]
                values = [float(value) for value in found if value is not None and np.isfinite(value)]
                if len(values) < len(found):
                    never = f"{len(found) - len(values)} never"
                    axis.text(1.0, place - 0.42, never, transform=axis.get_yaxis_transform(), ha="right", fontsize=9.5)
                shift = np.linspace(-0.25, 0.25, len(values))
                axis.plot(values, place + shift, MARKERS[place], color=PALETTE[place], markersize=4)
                axis.plot([np.median(values)] * 2, [place - 0.36, place + 0.36], color=INK, linewidth=1.5)
            axis.set(xlabel=unit, xlim=(0, None), ylim=(1.6, -0.6))
            axis.set_title(title)
            axis.set_yticks([0, 1], ["alone", "beside\nanother"] if axis is axes[0] else ["", ""])
        figure.subplots_adjust(left=LEFT)
    return figure
