"""Gradients on their way during the backward pass: sizes, a step over time, what stays exposed; and stragglers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from course_lib.notebook.plots import timeline
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, log_axis, style, subplots


def gradients(networks: Mapping[str, tuple[Sequence[float], Sequence[float]]], caption: str = "") -> Figure:
    """The bytes of each gradient, and what share of all bytes is ready when.

    Args:
        networks: name → (bytes [T] in forward order, when each is ready [T] as a share of the backward pass).
    """
    with style():
        figure, (sizes, shares) = subplots(height=380, columns=2, caption=caption)
        for number, (name, (nbytes, ready)) in enumerate(networks.items()):
            nbytes, order = np.asarray(nbytes, float), np.argsort(ready, kind="stable")
            look = {"color": PALETTE[number], "label": name}
            sizes.plot(np.sort(nbytes)[::-1], MARKERS[number], markersize=3.5, **look)
            done = np.concatenate([[0], np.cumsum(nbytes[order]) / nbytes.sum()])
            shares.step(np.concatenate([[0], np.asarray(ready)[order]]), 100 * done, where="post", **look)
        log_axis(sizes, "y", {100: "100 B", 1e4: "10 kB", 1e6: "1 MB", 1e8: "100 MB"})
        sizes.set_xlabel("tensors, the largest first")
        sizes.set_title("size of a gradient")
        shares.set_xlabel("share of the backward pass that is over (%)")
        shares.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
        shares.set_ylabel("ready (% of the bytes)")
        shares.set_title("when it is ready")
        figure.legend(*sizes.get_legend_handles_labels(), loc="upper left", ncols=2)
        figure.subplots_adjust(left=76 / WIDTH, wspace=0.2)
    return figure


def step(forward: float, backward: float, messages: np.ndarray, caption: str = "") -> Figure:
    """One step over time: forward and backward pass, all-reduces, and where computing stands still.

    Args:
        forward, backward: seconds.
        messages: start and end of each all-reduce, [M, 2], in seconds from the start of the backward pass.
    """
    messages = np.asarray(messages, float).reshape(-1, 2)
    seconds = max(backward, messages[:, 1].max(initial=0))
    busy = np.diff(messages).sum()
    hidden = np.maximum(np.minimum(messages[:, 1], backward) - messages[:, 0], 0).sum()
    rows = [
        ("computation", "forward", 0.0, forward),
        ("computation", "backward", forward, backward),
        ("computation", "waits", forward + backward, seconds - backward),
        # In turns, so that the eye can tell one message from the next.
        *(
            ("communication", "all-reduce" if number % 2 == 0 else "next all-reduce", forward + start, end - start)
            for number, (start, end) in enumerate(messages)
        ),
    ]
    table = pd.DataFrame(rows, columns=["row", "activity", "start", "seconds"])
    share = f"{hidden / busy:.0%}" if busy else "nothing"
    title = (
        f"{_count(len(messages), 'message')}: {1000 * busy:,.0f} ms of communication, {share} of it hidden; "
        f"the step takes {1000 * (forward + seconds):,.0f} ms, {1000 * (seconds - backward):,.1f} of them waiting"
    )
    return timeline.rows(table, title=title, caption=caption)


def waiting(
    xs: Sequence[float], curves: Mapping[str, Mapping[str, Sequence[float]]], xlabel: str, *,
    ticks: Sequence[float], compute: Mapping[str, float] | None = None, caption: str = "",
) -> Figure:  # fmt: skip
    """For each network a panel: how long ranks wait at the end of a step, a line for each way to communicate.

    Args:
        xs: what is varied, drawn on a log axis with `ticks`.
        curves: network → name → seconds for each of `xs`; below a tenth of a millisecond is drawn as that.
        compute: network → seconds of a step's computation, drawn for comparison.
    """
    values = 1e3 * np.array([seconds for lines in curves.values() for seconds in lines.values()])
    top = 1.5 * max(values.max(), *(1e3 * np.array(list((compute or {"": 0}).values()))))
    bottom = max(0.1, 0.6 * values.min())
    with style():
        figure, axes = subplots(height=380, columns=len(curves), caption=caption)
        for axis, (network, lines) in zip(axes, curves.items()):
            for number, (name, seconds) in enumerate(lines.items()):
                look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 4, "label": name}
                axis.plot(xs, np.maximum(1e3 * np.asarray(seconds), bottom), **look)
            if compute:
                axis.axhline(1e3 * compute[network], color=INK, linestyle="--", linewidth=1, label="computation")
            log_axis(axis, "x", ticks)
            log_axis(axis, "y", [tick for tick in (0.1, 1, 10, 100, 1000, 10_000) if bottom <= tick <= top])
            axis.set(ylim=(0.8 * bottom, top), xlabel=xlabel, title=network)
        axes[0].set_ylabel("waiting at the end of a step (ms)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=5)
        figure.subplots_adjust(left=84 / WIDTH)
    return figure


def breakdown(layers: pd.DataFrame, steps: pd.DataFrame, title: str, caption: str = "") -> Figure:
    """Where the time of a step goes: by layer, and over the number of ranks.

    Args:
        layers: seconds, a row for each layer, columns forward, backward, all-reduce; title: of this panel.
        steps: seconds, a row for each number of ranks, columns forward, backward, waiting.
    """
    colours = dict(zip(("forward", "backward", "waiting", "all-reduce"), PALETTE))  # as in the timeline of a step
    with style():
        figure, (by_layer, by_ranks) = subplots(height=420, columns=2, caption=caption)
        left = np.zeros(len(layers))
        for part in layers:
            by_layer.barh(layers.index, 1e3 * layers[part], left=left, color=colours[part], label=part)
            left += 1e3 * layers[part].to_numpy()
        by_layer.invert_yaxis()
        by_layer.tick_params(axis="y", labelsize=8.5)
        by_layer.set(title=title, xlabel="ms, one after the other")
        places, bottom = np.arange(len(steps)), np.zeros(len(steps))
        for part in steps:
            by_ranks.bar(places, 1e3 * steps[part], bottom=bottom, color=colours[part], label=part)
            bottom += 1e3 * steps[part].to_numpy()
        for place, height in zip(places, bottom):
            by_ranks.text(place, height, f"{height:.0f}", ha="center", va="bottom", fontsize=9)
        by_ranks.set_xticks(places, [str(ranks) for ranks in steps.index])
        by_ranks.set(title="a step (ms)", xlabel="number of ranks")
        for axis in (by_layer, by_ranks):
            axis.grid(axis="y" if axis is by_layer else "x", visible=False)
        handles = {h.get_label(): h for axis in (by_layer, by_ranks) for h in axis.containers}
        figure.legend(handles.values(), handles, loc="upper left", ncols=4)
        figure.subplots_adjust(left=76 / WIDTH, wspace=0.2)
    return figure


def predictions(table: pd.DataFrame, caption: str = "") -> Figure:
    """Predicted against measured steps, and how far each prediction is off.

    Args:
        table: columns setting, measured, low and high (quartiles), predicted (all four in seconds), used ("fit" or
            "test").
    """
    settings = list(pd.unique(table["setting"]))
    height = max(380, 170 + 24 * len(settings))
    with style():
        figure, (plane, errors) = subplots(height=height, columns=2, caption=caption)
        ends = np.array([0.75 * table[["measured", "predicted"]].min().min(), 1.33 * table["measured"].max()])
        plane.fill_between(1e3 * ends, 0.75e3 * ends, 1.25e3 * ends, color=FAINT, alpha=0.15, lw=0, label="± 25 %")
        plane.plot(1e3 * ends, 1e3 * ends, color=FAINT, linewidth=1)
        errors.axvspan(-25, 25, color=FAINT, alpha=0.15, lw=0)
        errors.axvline(0, color=FAINT, linewidth=1)
        for number, (used, rows) in enumerate(table.groupby("used", sort=True)):
            look = {"color": PALETTE[number], "linestyle": "", "markersize": 5.5, "marker": MARKERS[number]}
            spread = 1e3 * np.stack([rows["measured"] - rows["low"], rows["high"] - rows["measured"]])
            label = "fitted on" if used == "fit" else "predicted"
            plane.errorbar(
                1e3 * rows["measured"], 1e3 * rows["predicted"], xerr=spread, elinewidth=0.8, label=label, **look
            )
            off = 100 * (rows["predicted"] / rows["measured"] - 1)
            errors.plot(off, [settings.index(name) for name in rows["setting"]], **look)
        for which in "xy":
            ticks = (20, 50, 100, 200, 500, 1000, 2000)
            log_axis(plane, which, [tick for tick in ticks if ends[0] <= tick / 1e3 <= ends[1]])
        plane.set(xlabel="measured (ms a step)", ylabel="simulated (ms a step)")
        plane.set(xlim=1e3 * ends, ylim=1e3 * ends, title="time of a step")
        errors.set_yticks(range(len(settings)), settings)
        errors.set_ylim(len(settings) - 0.5, -0.5)
        reach = max(40, 1.1 * 100 * (table["predicted"] / table["measured"] - 1).abs().max())
        errors.set(xlim=(-reach, reach), xlabel="simulated − measured (% of the measured)", title="how far it is off")
        figure.legend(*plane.get_legend_handles_labels(), loc="upper left", ncols=4)
        figure.subplots_adjust(left=64 / WIDTH, wspace=0.5)
    return figure


def stragglers(
    ranks: Sequence[int], slowest: Mapping[str, tuple[Sequence[float], Sequence[float]]], caption: str = ""
) -> Figure:
    """The slowest of N ranks in units of the mean step, and the efficiency that is left.

    Args:
        ranks: numbers of ranks.
        slowest: distribution → (expected maximum by the formula, by simulation), for each number of ranks.
    """
    with style():
        figure, (longest, efficiency) = subplots(380, columns=2, caption=caption)
        figure.subplots_adjust(top=1 - 90 / 380)
        handles = []
        for number, (name, (formula, simulated)) in enumerate(slowest.items()):
            ink, marker = PALETTE[number], MARKERS[number]
            for axis, change in ((longest, np.asarray), (efficiency, lambda values: 100 / np.asarray(values))):
                axis.plot(ranks, change(formula), color=ink)
                axis.plot(ranks, change(simulated), marker, color=ink, markersize=5)
            label = f"{name}: {100 / formula[-1]:.0f} % left on {ranks[-1]:,} ranks"
            handles.append(Line2D([], [], color=ink, marker=marker, markersize=5, label=label))
        for axis in (longest, efficiency):
            log_axis(axis, "x", [1, 4, 16, 64, 256, 2048])
            axis.set(xlim=(0.9, 2400), xlabel="number of ranks")
        longest.set(ylim=(0.95, None), title="the slowest rank (in mean steps)")
        efficiency.set(ylim=(0, 103), title="efficiency (%): mean / slowest")
        figure.legend(handles=handles, loc="upper left", ncols=len(handles), columnspacing=4)
    return figure


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
