"""Who holds what before and after a collective, and the messages that bring it about.

The pictures are drawn from real results, of the numbers that `simulated.marked` makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle

from course_lib.collectives.simulated import origin
from course_lib.notebook.plots.style import FAINT, INK, MARKERS, PALETTE, PAPER, WIDTH, Figure, colour, style, subplots

CHUNK_LETTERS = "ABCDEFGHI"
EMPTY_COLOUR = "#ecece8"


def holdings(collectives: Mapping[str, tuple[Sequence, Sequence]], caption: str = "") -> Figure:
    """For each collective the numbers of every rank before and after: a square each, its ranks' colours, its letter.

    Args:
        collectives: name → (before, after), each with one array of marked numbers for every rank.
        caption: see `plots.provenance`.
    """
    names = list(collectives)
    ranks = len(next(iter(collectives.values()))[0])
    rows = -(-len(names) // 2)
    row_height = ranks + 1.9
    with style():
        figure, (axis,) = subplots(height=round(24 * rows * row_height) + 90, caption=caption)
        axis.set_axis_off()
        width = 2 * (2 * ranks + 3) + 2.4
        axis.set(xlim=(-1.6, width - 1.2), ylim=(rows * row_height, -0.6))
        for number, name in enumerate(names):
            x, y = (number % 2) * (width / 2 + 0.6), (number // 2) * row_height
            axis.text(x, y, name, fontweight="bold", fontsize=10.5, va="center")
            for place, arrays in ((x, collectives[name][0]), (x + ranks + 2, collectives[name][1])):
                for rank, numbers in enumerate(arrays):
                    _row(axis, place, y + 0.6 + rank, numbers)
            for rank in range(ranks):
                middle = y + 1.05 + rank
                axis.text(x - 0.2, middle, f"rank {rank}", color=colour(rank), fontsize=9, ha="right", va="center")
            axis.annotate(
                "", (x + ranks + 1.6, y + 0.6 + ranks / 2), (x + ranks + 0.5, y + 0.6 + ranks / 2),
                arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.4},
            )  # fmt: skip
        figure.subplots_adjust(left=0.02, right=0.99, top=0.99, bottom=40 / (24 * rows * row_height + 90))
    return figure


def _row(axis: Axes, x: float, y: float, numbers: Sequence[float]) -> None:
    for place, number in enumerate(np.ravel(numbers)):
        if number == 0:
            axis.add_patch(Rectangle((x + place, y), 0.9, 0.9, facecolor="none", edgecolor=EMPTY_COLOUR))
            continue
        element, ranks = origin(number)
        stripe = 0.9 / len(ranks)
        for index, rank in enumerate(ranks):
            axis.add_patch(Rectangle((x + place + index * stripe, y), stripe, 0.9, facecolor=colour(rank), lw=0))
        axis.text(
            x + place + 0.45, y + 0.47, CHUNK_LETTERS[element],
            ha="center", va="center", color=PAPER if len(ranks) == 1 else INK, fontsize=9, fontweight="bold",
            bbox=None if len(ranks) == 1 else {"boxstyle": "circle,pad=0.12", "facecolor": PAPER, "lw": 0},
        )  # fmt: skip


def messages(sent: Sequence, ranks: int, after: int, title: str = "", caption: str = "") -> Figure:
    """A simulated all-reduce after so many rounds: its last messages as arrows, and what has come to whom by then.

    Args:
        sent: messages with round, source, target and a payload of marked numbers, one for each chunk, in the order
            of rounds, as in `simulated.Outcome.messages`.
        ranks: number of ranks, and of chunks.
        after: rounds that are over; 0 is the start.
    """
    reached = np.zeros((ranks, ranks, ranks), bool)  # [rank, chunk, whose]
    reached[np.arange(ranks), :, np.arange(ranks)] = True
    for message in sent:
        if message.round < after:
            for number in np.ravel(message.payload):
                chunk, whose = origin(number)
                reached[message.target, chunk, list(whose)] = True
    with style():
        figure, (circle, grid) = subplots(height=360, columns=2, caption=caption)
        _circle(circle, [message for message in sent if message.round == after - 1], ranks)
        circle.set_title(title or (f"round {after}" if after else "before the first round"))
        _grid(grid, reached)
        figure.subplots_adjust(left=0.03, right=1 - 24 / WIDTH, wspace=0.12)
    return figure


def _circle(axis: Axes, sent: Sequence, ranks: int) -> None:
    axis.set_axis_off()
    axis.set(xlim=(-1.55, 1.55), ylim=(-1.3, 1.3), aspect="equal")
    angle = np.pi / 2 - 2 * np.pi * np.arange(ranks) / ranks
    x, y = np.cos(angle), np.sin(angle)
    for message in sent:
        start, end = (x[message.source], y[message.source]), (x[message.target], y[message.target])
        arrow = FancyArrowPatch(
            start, end, connectionstyle="arc3,rad=-0.25", arrowstyle="-|>", mutation_scale=14,
            shrinkA=17, shrinkB=17, color=colour(message.source), linewidth=1.8,
        )  # fmt: skip
        axis.add_patch(arrow)
        middle = np.add(start, end) / 2
        outward = middle + 0.3 * np.array([-(end[1] - start[1]), end[0] - start[0]]) / max(
            np.hypot(*np.subtract(end, start)), 1e-9
        )
        letters = "".join(CHUNK_LETTERS[origin(number)[0]] for number in np.ravel(message.payload))
        axis.text(*outward, letters, ha="center", va="center", fontsize=11, fontweight="bold", color=INK)
    for rank in range(ranks):
        axis.plot(x[rank], y[rank], "o", markersize=27, color=colour(rank))
        axis.text(x[rank], y[rank], str(rank), ha="center", va="center", color=PAPER, fontsize=12, fontweight="bold")


def _grid(axis: Axes, reached: np.ndarray) -> None:
    """Rows are ranks, columns chunks, stripes within a cell whose part has come."""
    ranks, chunks, whose = reached.shape
    gap = 1
    picture = np.tile(to_rgb(PAPER), (ranks, chunks * (whose + gap), 1))
    for owner in range(whose):
        columns = np.arange(chunks) * (whose + gap) + owner
        picture[:, columns] = np.where(reached[:, :, owner, None], to_rgb(colour(owner)), to_rgb(EMPTY_COLOUR))
    axis.imshow(picture, aspect="auto", interpolation="nearest", extent=(0, chunks * (whose + gap), ranks, 0))
    for rank in range(1, ranks):
        axis.axhline(rank, color=PAPER, linewidth=5)
    axis.set_yticks(np.arange(ranks) + 0.5, [f"rank {rank}" for rank in range(ranks)])
    middles = np.arange(chunks) * (whose + gap) + whose / 2
    axis.set_xticks(middles, [f"chunk {CHUNK_LETTERS[chunk]}" for chunk in range(chunks)])
    axis.set_title("whose part has come to whom")
    axis.grid(False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def differences(cases: Mapping[str, np.ndarray], caption: str = "") -> Figure:
    """How far runs are from their twin after each step, on a log axis; zero is drawn at 10⁻¹⁷.

    Args:
        cases: name → largest difference of a weight after each step, arrays [steps].
    """
    with style():
        figure, (axis,) = subplots(height=380, caption=caption)
        for number, (name, values) in enumerate(cases.items()):
            steps = np.arange(1, len(values) + 1)
            look = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 4.5}
            axis.semilogy(steps, np.maximum(values, 1e-17), label=name, **look)
        axis.axhline(1e-6, color=FAINT, linestyle="--", linewidth=1)
        axis.text(1, 3e-6, "10⁻⁶: what is above is no rounding", color=FAINT, fontsize=9.5)
        axis.text(1, 1.2e-19, "10⁻¹⁷ stands for: equal, to the last bit", color=FAINT, fontsize=9.5)
        axis.set_ylim(5e-20, 30)
        axis.set_xlabel("step")
        axis.set_ylabel("largest difference of a weight")
        axis.set_title("rank 0 of 4 against one rank with the whole batch")
        axis.locator_params(axis="x", integer=True)
        figure.legend(loc="upper left", ncols=len(cases))
        figure.subplots_adjust(left=84 / WIDTH)
    return figure


def sent(
    sizes: Sequence[int], counted: Mapping[str, Sequence[tuple[int, int]]], length: int, caption: str = ""
) -> Figure:
    """What an all-reduce of `length` numbers costs a rank: numbers sent, and rounds, by the number of ranks.

    Args:
        sizes: numbers of ranks.
        counted: name → (numbers that a rank sends, rounds) for each of `sizes`.
    """
    with style():
        figure, (volume, rounds) = subplots(height=350, columns=2, caption=caption)
        for number, (name, pairs) in enumerate(counted.items()):
            look = {"color": PALETTE[number], "marker": MARKERS[number], "label": name}
            volume.plot(sizes, [amount / length for amount, _ in pairs], **look)
            rounds.plot(sizes, [count for _, count in pairs], **look)
        bound = np.linspace(2, max(sizes), 100)
        volume.plot(bound, 2 * (bound - 1) / bound, color=INK, linestyle="--", linewidth=1, label="2(N−1)/N")
        volume.set_title("numbers that a rank sends, in multiples of L")
        rounds.set_title("rounds, one after the other")
        for axis in (volume, rounds):
            axis.set_xlabel("number of ranks N")
            axis.set_ylim(bottom=0)
        figure.legend(*volume.get_legend_handles_labels(), loc="upper left", ncols=3)
    return figure
