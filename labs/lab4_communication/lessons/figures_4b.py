"""Gradients on their way during the backward pass: sizes, a step over time, what stays exposed; and stragglers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, NullLocator

from course_lib.notebook.plots import timeline
from course_lib.notebook.plots.canvas import Canvas, Panel
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, WIDTH, Figure, style, subplots


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
        sizes.set_yscale("log")
        _bytes(sizes.yaxis, [100, 1e4, 1e6, 1e8])
        sizes.set_xlabel("tensors, the largest first")
        sizes.set_title("size of a gradient")
        shares.set_xlabel("share of the backward pass that is over (%)")
        shares.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}"))
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
            axis.set(xscale="log", yscale="log", ylim=(0.8 * bottom, top), xlabel=xlabel, title=network)
            _plain(axis.xaxis, ticks)
            _plain(axis.yaxis, [tick for tick in (0.1, 1, 10, 100, 1000, 10_000) if bottom <= tick <= top])
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
        plane.set(xscale="log", yscale="log", xlabel="measured (ms a step)", ylabel="simulated (ms a step)")
        ticks = [20, 50, 100, 200, 500, 1000, 2000]
        for axis in (plane.xaxis, plane.yaxis):
            _plain(axis, [tick for tick in ticks if ends[0] <= tick / 1e3 <= ends[1]])
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
    ticks = [(n, f"{n:,}") for n in (1, 4, 16, 64, 256, 2048)]
    height = 380
    highest = max(max(*formula, *simulated) for formula, simulated in slowest.values())
    step = next(step for step in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10) if (highest - 1) / step <= 6)
    with style():
        canvas = Canvas(height)
        box = (56, 84, 340, height - 174)
        longest = Panel(canvas, box, (0.9, 2400), (1 - 0.3 * step, max(1 + step, highest)), logx=True)
        efficiency = Panel(canvas, (470, *box[1:]), (0.9, 2400), (0, 103), logx=True)
        longest.axes(
            ticks, [(1 + i * step, f"{1 + i * step:.2f}") for i in range(int((highest - 1) / step) + 1)],
            title="the slowest rank (in mean steps)", xlabel="number of ranks",
        )  # fmt: skip
        efficiency.axes(
            ticks, [(value, str(value)) for value in range(0, 101, 20)],
            title="efficiency (%): mean / slowest", xlabel="number of ranks",
        )  # fmt: skip
        x = 14.0
        for number, (name, (formula, simulated)) in enumerate(slowest.items()):
            for panel, change in ((longest, np.asarray), (efficiency, lambda values: 100 / np.asarray(values))):
                panel.line(ranks, change(formula), color=PALETTE[number], linewidth=1.8)
                panel.marks(ranks, change(simulated), MARKERS[number], color=PALETTE[number], markersize=5)
            canvas.line([x, x + 24], [height - 22] * 2, color=PALETTE[number], linewidth=1.8)
            canvas.marks([x + 12], [height - 22], MARKERS[number], color=PALETTE[number], markersize=5)
            words = f"{name}: {100 / formula[-1]:.0f} % left on {ranks[-1]:,} ranks"
            canvas.text(x + 32, height - 22, words, va="center")
            x += 290
        if caption:
            canvas.text(14, 12, caption, size=8.5, colour=FAINT)
        return canvas.figure()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _plain(axis: object, ticks: Sequence[float]) -> None:
    """Ticks of a log axis as plain numbers."""
    axis.set_ticks(ticks, [f"{tick:,g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())


def _bytes(axis: object, ticks: Sequence[float]) -> None:
    units = {1: "B", 1e3: "kB", 1e6: "MB"}
    names = [
        next(f"{tick / unit:g} {name}" for unit, name in reversed(units.items()) if tick >= unit) for tick in ticks
    ]
    axis.set_ticks(ticks, names)
    axis.set_minor_locator(NullLocator())
