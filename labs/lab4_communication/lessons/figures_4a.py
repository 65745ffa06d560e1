"""Figures of notebook 4a: an all-reduce round by round, which algorithm is cheapest where, measured against fitted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_hex, to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from course_lib.collectives import Round
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    WIDTH,
    Figure,
    colour,
    diagram,
    empty_figure,
    log_axis,
    panel,
    style,
    subplots,
)  # fmt: skip

LETTERS = "ABCDEFGHIJKLMNOP"
COLOURS = {
    "ring": PALETTE[0],
    "hierarchical": PALETTE[1],
    "sharded": PALETTE[4],
    "halving": PALETTE[2],
    "doubling": PALETTE[3],
}
_EMPTY_COLOUR, _HOST_COLOUR = "#ececE8", "#f0efe6"
_CENTRED = {"ha": "center", "va": "center"}

SIZES = np.logspace(0, 9, 361)  # bytes: from one to 1 GB
POWERS = 2 ** np.arange(17)  # 1 to 65,536 ranks
BETWEEN = 3 * 2 ** np.arange(15)  # half-way between two of them


# Round by round


def rounds(plan: Sequence[Round], ranks: int, after: int, group: int = 1, title: str = "", caption: str = "") -> Figure:
    """An all-reduce after so many rounds: the last messages, what each rank holds by then, and what each round took.

    Args:
        plan: the rounds of an all-reduce of `ranks` numbers, a chunk each; see `collectives`.
        ranks: up to 8 or so.
        after: rounds that are over; 0 is the start.
        group: this many ranks stand in a frame of their own.
    """
    parts = _parts(plan[:after], ranks)
    longest = [max(messages.last - messages.first, default=0) for messages in plan]
    progress = f"round {after} of {len(plan)}" if after else "before the first round"
    step = 520 / ranks
    xs = 80 + step * (np.arange(ranks) + 0.5)
    with style():
        figure, axis = diagram(452, caption)
        axis.text(20, 426, f"{title}: {progress}", fontsize=9.5)
        if group > 1:
            for first in range(0, ranks, group):
                width = min(group, ranks - first) * step - 6
                axis.add_patch(Rectangle((xs[first] - step / 2 + 3, 48), width, 358, color=_HOST_COLOUR))
        _memory(axis, xs, parts)
        if after:
            _arcs(axis, xs, plan[after - 1])
        for rank, x in enumerate(xs):
            axis.plot(x, 290, "o", markersize=19, color=colour(rank))
            axis.text(x, 290, str(rank), color=PAPER, fontsize=10, fontweight="bold", **_CENTRED)
        _largest_messages(axis, longest, ranks, after)
    return figure


def _parts(plan: Sequence[Round], ranks: int) -> np.ndarray:
    """How many ranks' parts are in each number: [rank, number]."""
    held = np.zeros((ranks, ranks, ranks), bool)  # rank, number, whose part
    held[np.arange(ranks), :, np.arange(ranks)] = True
    for messages in plan:
        before = held.copy()
        add = np.broadcast_to(messages.add, messages.source.shape)
        for source, target, first, last, adds in zip(
            messages.source, messages.target, messages.first, messages.last, add
        ):
            came = before[source, first:last]
            held[target, first:last] = held[target, first:last] | came if adds else came
    return held.sum(2)


def _memory(axis: Axes, xs: np.ndarray, parts: np.ndarray) -> None:
    """A column of chunks for each rank: in each how many ranks' parts it holds, or Σ where it is the sum of all."""
    ranks, chunks = parts.shape
    tall = 144 / chunks
    for chunk in range(chunks):
        y = 198 - (chunk + 1) * tall
        complete = parts[:, chunk] == ranks
        shares = (parts[:, chunk] - 1) / max(ranks - 1, 1)
        faces = [COLOURS["halving"] if whole else _blend(share) for whole, share in zip(complete, shares)]
        axis.broken_barh([(x - 22, 44) for x in xs], (y, tall - 1.5), facecolors=faces)
        for x, count, whole, share in zip(xs, parts[:, chunk], complete, shares):
            ink = PAPER if whole or share > 0.5 else INK
            axis.text(x, y + tall / 2 - 0.5, "Σ" if whole else str(count), color=ink, fontsize=8, **_CENTRED)
        axis.text(60, y + tall / 2, LETTERS[chunk], fontsize=9, fontweight="bold", **_CENTRED)


def _blend(share: float) -> str:
    return to_hex((1 - share) * np.array(to_rgb(_EMPTY_COLOUR)) + share * np.array(to_rgb(COLOURS["ring"])))


def _arcs(axis: Axes, xs: np.ndarray, messages: Round) -> None:
    """Messages to the right over the ranks, those to the left under them; letters say which chunks are in them."""
    turn = np.linspace(0, np.pi, 40)
    for source, target, first, last in zip(messages.source, messages.target, messages.first, messages.last):
        up = 1 if target > source else -1
        start, end = xs[source] + 6 * up, xs[target] - 6 * up  # where a message comes and one goes, side by side
        high = 10 + 7 * abs(target - source)
        middle = (start + end) / 2
        x, y = middle - (end - start) / 2 * np.cos(turn), 290 + up * (17 + high * np.sin(turn))
        axis.plot(x, y, color=colour(source), linewidth=1.2 + 0.5 * (last - first))
        axis.plot(end, 290 + up * 20, "v" if up > 0 else "^", color=colour(source), markersize=7)
        if last > first:
            letters = LETTERS[first] + (f"–{LETTERS[last - 1]}" if last > first + 1 else "")
            axis.text(middle, 290 + up * (17 + high) + (5 if up > 0 else -13), letters, ha="center", fontsize=9)


def _largest_messages(axis: Axes, longest: Sequence[int], chunks: int, after: int) -> None:
    """The largest message of each round as a bar: rounds that are over dark, the last one in its colour."""
    left, width, top = 660, 150, 396
    tall = min(22, 290 / max(len(longest), 1))
    rounds_past = ["#7d8f9d"] * (after - 1) + [COLOURS["hierarchical"]] * (after > 0)
    faces = rounds_past + [_EMPTY_COLOUR] * (len(longest) - after)
    axis.text(left - 26, 426, "largest message of each round", fontsize=9.5)
    for number, (size, face) in enumerate(zip(longest, faces)):
        y = top - (number + 0.5) * tall - 2
        axis.barh(y, width * size / chunks, tall - 4, left, color=face)
        axis.text(left - 8, y, str(number + 1), ha="right", va="center", fontsize=8.5, color=FAINT)
        axis.text(left + width * size / chunks + 6, y, _share(size, chunks), va="center", fontsize=8.5)
    total = f"so far {after} α + {_share(sum(longest[:after]), chunks)} · β"
    axis.text(left - 26, top - len(longest) * tall - 18, total, fontsize=10.5)


def _share(size: int, chunks: int) -> str:
    divisor = int(np.gcd(size, chunks))
    top, bottom = size // divisor, chunks // divisor
    number = "n" if top == 1 else f"{top}n"
    return "0" if not size else number if bottom == 1 else f"{number}/{bottom}"


# Which wins where


def winners(
    link: Link,
    group: int,
    inner: Link | None = None,
    *,
    among: Sequence[str] = ("ring", "hierarchical", "halving"),
    ranks: np.ndarray = POWERS,
    at: int = 1024,
    hosts: bool = False,
    far_first: bool = False,
    caption: str = "",
) -> Figure:
    """A map of the cheapest all-reduce over ranks and bytes with the crossings; beside it the seconds of `at` ranks.

    Args:
        link: between the ranks.
        group: k of the hierarchical all-reduce.
        inner: the link within a group, by default the same.
        among: which algorithms compete.
        ranks: powers of two, or numbers in between.
        hosts: the ranks of a group share one link to the outside; else each has its own.
        far_first: halving begins with the partner that is farthest away.
    """
    seconds, share = _costs(link, group, inner, among, hosts, far_first), group if hosts else 1
    # Hosts, not ranks, where they share links; on a single host its own links.
    places, wire = (at // share, link) if at > share else (at, inner or link)
    bound = np.maximum(np.log2(places) * wire.alpha, 2 * (places - 1) / places * wire.beta * SIZES)
    with style():
        figure = empty_figure(452, caption)
        _map(panel(figure, 86, 76, 414, 312), seconds, ranks)
        _times(panel(figure, 590, 76, 286, 312), seconds, at, bound)
        patches = [Patch(color=COLOURS[name], label=name) for name in among]
        figure.legend(handles=patches, loc="upper left", ncols=len(among), handlelength=1.2)
        crossing = Line2D([], [], color=INK, linewidth=1.6, marker="o", markersize=4, label="equally fast")
        fastest = Line2D([], [], color=INK, linewidth=1.3, linestyle=":", label="no all-reduce is faster")
        figure.legend(handles=[crossing, fastest], loc="upper right", ncols=2)
    return figure


def cheapest(
    link: Link,
    group: int,
    inner: Link | None = None,
    *,
    among: Sequence[str],
    hosts: bool = False,
    far_first: bool = False,
) -> list[str]:
    """The algorithms that are the cheapest somewhere on the map of `winners`, with more than two ranks."""
    seconds = _costs(link, group, inner, among, hosts, far_first)
    return [among[i] for i in np.unique(_best(seconds, POWERS[POWERS > 2]))]


def _costs(
    link: Link, group: int, inner: Link | None, among: Sequence[str], hosts: bool, far_first: bool
) -> dict[str, Callable]:
    """Seconds of each algorithm, from ranks and bytes; the arguments are those of `winners`."""
    near, share = (inner, group) if hosts else (None, 1)
    every = {
        "ring": lambda n, size: allreduce.ring(n, size, link, share, near),
        "hierarchical": lambda n, size: allreduce.hierarchical(n, size, link, group, inner),
        "sharded": lambda n, size: allreduce.sharded(n, size, link, group, inner, shared=hosts),
        "halving": lambda n, size: allreduce.halving(n, size, link, share, near, far_first),
        "doubling": lambda n, size: allreduce.doubling(n, size, link, share, near),
    }
    return {name: every[name] for name in among}


def _best(seconds: Mapping[str, Callable], ranks: np.ndarray) -> np.ndarray:
    """Which algorithm is the cheapest, [ranks, SIZES]; of those that cost the same the first."""
    cost = np.stack([cost(ranks[:, None], SIZES) for cost in seconds.values()])
    return np.argmax(cost <= cost.min(0) * (1 + 1e-9), 0)


def _map(axis: Axes, seconds: Mapping[str, Callable], ranks: np.ndarray) -> None:
    """A column for each number of ranks, in the colour of the cheapest algorithm."""
    names = list(seconds)
    best = np.where(ranks[:, None] > 1, 1 + _best(seconds, ranks), 0)
    edges = np.append(ranks, 2 * ranks[-1]) / 2**0.5
    colours = ListedColormap([_EMPTY_COLOUR, *(COLOURS[name] for name in names)])
    axis.pcolormesh(edges, SIZES, best[:, :-1].T, cmap=colours, vmin=0, vmax=len(names))
    axis.vlines(edges, SIZES[0], SIZES[-1], color=PAPER, linewidth=1)
    for one, other in itertools.combinations(names, 2):
        _crossing(axis, seconds, one, other, ranks[ranks > 1])
    log_axis(axis, "x", [1, 16, 256, 4096, 65536])
    log_axis(axis, "y", _BYTE_TICKS)
    axis.set(xlim=(2**-0.5, 2**16.5), ylim=SIZES[[0, -1]], xlabel="number of ranks N", ylabel="bytes of the tensor")
    axis.set_title("the cheapest")
    axis.grid(False)


def _crossing(axis: Axes, seconds: Mapping[str, Callable], one: str, other: str, ranks: np.ndarray) -> None:
    """A line where two algorithms cost the same by their formulas and no third costs less."""
    size = allreduce.crossing(seconds[one], seconds[other], ranks)
    least = np.min([cost(ranks, size) for cost in seconds.values()], 0)
    shown = (seconds[one](ranks, size) <= least * (1 + 1e-9)) & (size >= SIZES[0]) & (size <= SIZES[-1])
    label = f"{one} as fast as {other}"
    axis.plot(ranks, np.where(shown, size, np.nan), "o-", color=INK, linewidth=1.6, markersize=4, label=label)


def _times(axis: Axes, seconds: Mapping[str, Callable], at: int, bound: np.ndarray) -> None:
    """Seconds of each algorithm by the bytes, and the bound below which none can be."""
    axis.plot(SIZES, bound, ":", color=INK, linewidth=1.3, label="bound")
    for name, cost in seconds.items():
        axis.plot(SIZES, cost(at, SIZES), color=COLOURS[name], linewidth=2, label=name)
    values = np.concatenate([line.get_ydata() for line in axis.lines])
    low, high = np.floor(np.log10(values.min()) - 0.1), np.ceil(np.log10(values.max()))
    powers = np.arange(low, high + 1)
    log_axis(axis, "x", _BYTE_TICKS)
    log_axis(axis, "y", {10.0**power: _seconds(10.0**power) for power in powers[:: len(powers) // 6 or 1]})
    axis.set(xlim=SIZES[[0, -1]], ylim=(10.0**low, 10.0**high), xlabel="bytes of the tensor")
    axis.set_title(f"time with {at:,} ranks")


_BYTE_TICKS = {1: "1 B", 1e3: "1 kB", 1e6: "1 MB", 1e9: "1 GB"}


def _seconds(value: float) -> str:
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= 0.999 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value / 1e-9:.3g} ns"


# Measured

RESIDUALS = 60  # per cent: what is farther off stands at the edge


def measured(
    series: Mapping[str, tuple[np.ndarray, np.ndarray]], nbytes: Sequence[int], *, caption: str = ""
) -> Figure:
    """Seconds over bytes with the lines that were fitted; beside them how far each median is from its line.

    Args:
        series: name → (seconds [sweeps, sizes], fitted seconds [sizes]).
        nbytes: the sizes.
    """
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        figure.subplots_adjust(left=70 / WIDTH, wspace=0.24)
        for number, (name, (seconds, fitted)) in enumerate(series.items()):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "linestyle": "", "markersize": 5.5}
            low, middle, high = np.percentile(seconds, [25, 50, 75], axis=0) * 1e3
            left.errorbar(nbytes, middle, [middle - low, high - middle], label=name, elinewidth=1, **look)
            left.plot(nbytes, fitted * 1e3, color=PALETTE[number], linewidth=1.3)
            residuals = 100 * (middle / 1e3 / fitted - 1)
            right.plot(nbytes, np.clip(residuals, -RESIDUALS, RESIDUALS), label=name, **look)
            for place in np.flatnonzero(np.abs(residuals) > RESIDUALS):  # at the edge, with its number
                right.annotate(
                    f"{residuals[place]:+.0f} %", (nbytes[place], np.clip(residuals[place], -RESIDUALS, RESIDUALS)),
                    (0, -13 - 12 * (place % 2)), textcoords="offset points", ha="center", fontsize=9,
                    color=PALETTE[number],
                )  # fmt: skip
        right.axhline(0, color=INK, linewidth=1)
        right.set_ylim(-1.08 * RESIDUALS, 1.08 * RESIDUALS)
        left.set_yscale("log")
        left.set_ylabel("milliseconds")
        left.set_title("medians, middle halves, fitted lines")
        right.set_ylabel("median against the line, %")
        right.set_title("residuals")
        for axis in (left, right):
            log_axis(axis, "x", {4: "4 B", 1e3: "1 kB", 1e5: "100 kB", 1e7: "10 MB"})
            axis.set_xlabel("bytes")
        left.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        names = right.get_legend_handles_labels()
        figure.legend(*names, loc="upper left", ncols=len(series), handletextpad=0.1, columnspacing=1.2)
    return figure
