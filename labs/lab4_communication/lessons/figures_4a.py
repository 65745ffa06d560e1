"""Figures of notebook 4a: an all-reduce round by round, which algorithm is cheapest where, measured against fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from course_lib.collectives import Round
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.notebook.plots.canvas import Canvas, Panel
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, PAPER, WIDTH, Figure, colour, style, subplots

LETTERS = "ABCDEFGHIJKLMNOP"
COLOURS = {
    "ring": PALETTE[0],
    "hierarchical": PALETTE[1],
    "sharded": PALETTE[4],
    "halving": PALETTE[2],
    "doubling": PALETTE[3],
}
_EMPTY_COLOUR, _HOST_COLOUR = "#ececE8", "#f0efe6"

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
    with style():
        page = Canvas(452)
        page.text(20, 426, f"{title}: {'before the first round' if not after else f'round {after} of {len(plan)}'}")
        step = 520 / ranks
        xs = 80 + step * (np.arange(ranks) + 0.5)
        if group > 1:
            frames = [(xs[i] - step / 2 + 3, min(group, ranks - i) * step - 6) for i in range(0, ranks, group)]
            page.boxes([(x, 48, width, 358, _HOST_COLOUR) for x, width in frames])
        _memory(page, xs, step, parts)
        if after:
            _arcs(page, xs, plan[after - 1])
        for rank, x in enumerate(xs):
            page.marks([x], [290], "o", markersize=19, color=colour(rank))
            page.text(x, 290, str(rank), ha="center", va="center", size=10, colour=PAPER, bold=True)
        _bill(page, longest, ranks, after)
        if caption:
            page.text(14, 12, caption, size=8.5, colour=FAINT)
        return page.figure()


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


def _memory(page: Canvas, xs: np.ndarray, step: float, parts: np.ndarray) -> None:
    ranks, chunks = parts.shape
    tall = 144 / chunks
    boxes, words = [], []
    for rank in range(ranks):
        for chunk in range(chunks):
            y = 198 - (chunk + 1) * tall
            share = (parts[rank, chunk] - 1) / max(ranks - 1, 1)
            whole = parts[rank, chunk] == ranks
            boxes.append((xs[rank] - 22, y, 44, tall - 1.5, COLOURS["halving"] if whole else _blend(share)))
            words.append(
                (xs[rank], y + tall / 2 - 0.5, "Σ" if whole else str(parts[rank, chunk]), whole or share > 0.5)
            )
    page.boxes(boxes)
    for x, y, word, light in words:
        page.text(x, y, word, ha="center", va="center", size=8, colour=PAPER if light else INK)
    for chunk in range(chunks):
        page.text(60, 198 - (chunk + 0.5) * tall, LETTERS[chunk], ha="center", va="center", size=9, bold=True)


def _blend(share: float) -> str:
    return to_hex((1 - share) * np.array(to_rgb(_EMPTY_COLOUR)) + share * np.array(to_rgb(COLOURS["ring"])))


def _arcs(page: Canvas, xs: np.ndarray, messages: Round) -> None:
    """Messages to the right over the ranks, those to the left under them; letters say which chunks are in them."""
    turn = np.linspace(0, np.pi, 40)
    for source, target, first, last in zip(messages.source, messages.target, messages.first, messages.last):
        up = 1 if target > source else -1
        start, end = xs[source] + 6 * up, xs[target] - 6 * up  # where a message comes and one goes, side by side
        high = 10 + 7 * abs(target - source)
        x = (start + end) / 2 - (end - start) / 2 * np.cos(turn)
        look = {"color": colour(source), "linewidth": 1.2 + 0.5 * (last - first)}
        page.line(x, 290 + up * (17 + high * np.sin(turn)), **look)
        page.marks([end], [290 + up * 20], "v" if up > 0 else "^", color=colour(source), markersize=7)
        if last > first:
            letters = LETTERS[first] + (f"–{LETTERS[last - 1]}" if last > first + 1 else "")
            page.text((start + end) / 2, 290 + up * (17 + high) + (5 if up > 0 else -13), letters, ha="center", size=9)


def _bill(page: Canvas, longest: Sequence[int], chunks: int, after: int) -> None:
    """The largest message of each round as a bar: rounds that are over dark, the last one in its colour."""
    left, width, top = 660, 150, 396
    page.text(left - 26, 426, "largest message of each round")
    tall = min(22, 290 / max(len(longest), 1))
    faces = [
        COLOURS["hierarchical"] if i == after - 1 else "#7d8f9d" if i < after else _EMPTY_COLOUR
        for i in range(len(longest))
    ]
    page.boxes(
        [(left, top - (i + 1) * tall, width * size / chunks, tall - 4, faces[i]) for i, size in enumerate(longest)]
    )
    for i, size in enumerate(longest):
        y = top - (i + 1) * tall + (tall - 4) / 2
        page.text(left - 8, y, str(i + 1), ha="right", va="center", size=8.5, colour=FAINT)
        page.text(left + width * size / chunks + 6, y, _share(size, chunks), va="center", size=8.5)
    total = sum(longest[:after])
    below = top - len(longest) * tall - 18
    page.text(left - 26, below, f"so far {after} α + {_share(total, chunks)} · β", size=10.5)


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
        page = Canvas(452)
        _map(page, seconds, ranks)
        _lines(page, seconds, at, bound)
        for place, name in enumerate(among):
            page.boxes([(24 + 112 * place, 425, 14, 12, COLOURS[name])])
            page.text(44 + 112 * place, 426, name)
        page.line([590, 614], [431, 431], color=INK, linewidth=1.6)
        page.marks([602], [431], "o", color=INK, markersize=4)
        page.text(620, 426, "equally fast")
        page.line([714, 738], [431, 431], ":", color=INK, linewidth=1.3)
        page.text(744, 426, "no all-reduce is faster")
        if caption:
            page.text(14, 12, caption, size=8.5, colour=FAINT)
        return page.figure()


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


def _map(page: Canvas, seconds: Mapping[str, Callable], ranks: np.ndarray) -> None:
    names = list(seconds)
    best = _best(seconds, ranks)
    panel = Panel(page, (86, 76, 414, 312), (2**-0.5, 2**16.5), (SIZES[0], SIZES[-1]), logx=True, logy=True)
    half, ys = 414 / 17 / 2, panel.y(SIZES)
    boxes = []
    for x, n, row in zip(panel.x(ranks), ranks, best):
        cuts = [0, *(np.flatnonzero(np.diff(row)) + 1), len(row) - 1]
        for first, last in zip(cuts, cuts[1:]):
            face = COLOURS[names[row[first]]] if n > 1 else _EMPTY_COLOUR
            boxes.append((x - half, ys[first], 2 * half, ys[last] - ys[first], face))
    panel.axes(
        [(n, f"{n:,}") for n in (1, 16, 256, 4096, 65536)], _BYTE_TICKS,
        title="the cheapest", xlabel="number of ranks N", ylabel="bytes of the tensor", vertical=False,
    )  # fmt: skip
    page.boxes(boxes, edge=PAPER, linewidth=0.5)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            _crossing(panel, seconds, one, other, ranks[ranks > 1])


def _crossing(panel: Panel, seconds: Mapping[str, Callable], one: str, other: str, ranks: np.ndarray) -> None:
    """A line where two algorithms cost the same by their formulas and no third costs less."""
    size = allreduce.crossing(seconds[one], seconds[other], ranks)
    least = np.min([cost(ranks, size) for cost in seconds.values()], 0)
    shown = (seconds[one](ranks, size) <= least * (1 + 1e-9)) & (size >= SIZES[0]) & (size <= SIZES[-1])
    size = np.where(shown, size, np.nan)
    panel.line(ranks, size, color=INK, linewidth=1.6)
    panel.marks(ranks, size, "o", color=INK, markersize=4)


def _lines(page: Canvas, seconds: Mapping[str, Callable], at: int, bound: np.ndarray) -> None:
    costs = {name: cost(at, SIZES) for name, cost in seconds.items()}
    values = np.concatenate(list(costs.values()))
    least = min(values.min(), bound.min())
    low, high = np.floor(np.log10(least) - 0.1), np.ceil(np.log10(values.max()))
    panel = Panel(page, (590, 76, 286, 312), (SIZES[0], SIZES[-1]), (10.0**low, 10.0**high), logx=True, logy=True)
    ticks = [(10.0**power, _seconds(10.0**power)) for power in np.arange(low, high + 1)]
    panel.axes(
        _BYTE_TICKS, ticks[:: len(ticks) // 6 or 1], title=f"time with {at:,} ranks", xlabel="bytes of the tensor"
    )
    panel.line(SIZES, bound, ":", color=INK, linewidth=1.3)
    for name, cost in costs.items():
        panel.line(SIZES, cost, color=COLOURS[name], linewidth=2)


_BYTE_TICKS = [(1, "1 B"), (1e3, "1 kB"), (1e6, "1 MB"), (1e9, "1 GB")]


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
            axis.set_xscale("log")
            axis.set_xticks([4, 1e3, 1e5, 1e7], ["4 B", "1 kB", "100 kB", "10 MB"])
            axis.minorticks_off()
            axis.set_xlabel("bytes")
        left.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        names = right.get_legend_handles_labels()
        figure.legend(*names, loc="upper left", ncols=len(series), handletextpad=0.1, columnspacing=1.2)
    return figure
