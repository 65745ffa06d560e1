"""The plotting style of the course.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish. Each rank has its colour: rank 0 is
blue in every figure. Figures are opaque, so they are legible in light and dark themes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import matplotlib.figure
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from course_lib.system.cores import available_cores

# Okabe and Ito (2008) without yellow, which is hardly visible on a light background.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_RANKS = (*PALETTE, "#8c6d46")  # eight, the number of ranks in the largest figure

PAPER, INK, FAINT = "#fbfbf9", "#2b2b2b", "#6b6b6b"
GRID, SPINE = "#e6e6e2", "#b8b8b4"
WIDTH = 900  # pixels: a notebook's output area
LETTERS = 145  # of a caption that fit into WIDTH

_STYLE = {
    "figure.facecolor": PAPER,
    "figure.dpi": 100,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": SPINE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # the automatic position takes a twentieth of the time of a figure
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=PALETTE),
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 6.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.labelcolor": INK,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": INK,
}


def style() -> AbstractContextManager:
    """A context in which figures have the course's style: `with plots.style(): ...`."""
    return matplotlib.rc_context(_STYLE)


def colour(rank: int) -> str:
    """The colour of a rank, the same in every figure."""
    return _RANKS[rank % len(_RANKS)]


class Figure(matplotlib.figure.Figure):
    """A figure that shows itself in a notebook, sharp on any screen, without pyplot."""

    def png(self, sharpness: float = 1.5) -> bytes:
        """The figure as a PNG image, with `sharpness` pixels for each pixel of the page."""
        buffer = io.BytesIO()
        # The fastest compression: the live view redraws every second while the ranks need the processors.
        self.savefig(buffer, format="png", dpi=100 * sharpness, pil_kwargs={"compress_level": 1})
        return buffer.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict]:
        return self.png(), {"width": round(100 * self.get_figwidth())}


def empty_figure(height: float, caption: str = "") -> Figure:
    """A figure of WIDTH × `height` pixels that is empty except for its caption line."""
    with style():
        figure = Figure(figsize=(WIDTH / 100, height / 100))
        if caption:
            size = 8.5 * min(1, LETTERS / len(caption))  # a smaller font for a long caption
            figure.text(14 / WIDTH, 12 / height, caption, color=FAINT, fontsize=size, parse_math=False)
    return figure


def subplots(height: int = 350, columns: int = 1, caption: str = "") -> tuple[Figure, Sequence]:
    """A figure in the course's style: `columns` axes side by side above one caption line.

    Args:
        height: height of the figure in pixels; its width is WIDTH.
        columns: number of axes.
        caption: the line under the figure, see `provenance`.

    Returns:
        The figure and its axes [columns].
    """
    with style():
        figure = empty_figure(height, caption)
        axes = figure.subplots(1, columns, squeeze=False)[0]
        # Fixed margins in pixels, so that the axes of a live figure do not move when its labels grow.
        bottom = 76 if caption else 48
        figure.subplots_adjust(
            left=56 / WIDTH, right=1 - 24 / WIDTH, top=1 - 62 / height, bottom=bottom / height, wspace=0.16
        )
    return figure, axes


def diagram(height: float, caption: str = "") -> tuple[Figure, Axes]:
    """A figure for a diagram, with one axis without ticks. Coordinates are pixels of the page from the lower left."""
    with style():
        figure = empty_figure(height, caption)
        axis = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, height), autoscale_on=False)
        axis.axis("off")
    return figure, axis


def panel(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add an axis to a figure; its position and size are in pixels of the page from the lower left."""
    pixels = 100 * figure.get_figheight()
    with style():
        return figure.add_axes((left / WIDTH, bottom / pixels, width / WIDTH, height / pixels))


def log_axis(axis: Axes, which: str, ticks: Mapping[float, str] | Sequence[float]) -> None:
    """Make an axis logarithmic, with ticks only at the given values.

    Args:
        which: "x" or "y".
        ticks: value → label; or values, with plain numbers as labels.
    """
    labels = ticks if isinstance(ticks, Mapping) else {tick: f"{tick:,g}" for tick in ticks}
    axis.set(**{f"{which}scale": "log"})
    chosen = axis.xaxis if which == "x" else axis.yaxis
    chosen.set_ticks(list(labels), list(labels.values()))
    chosen.set_minor_locator(NullLocator())


def powers_of_ten(axis: Axes) -> None:
    """Make a logarithmic y axis that is fast enough for a slider: few ticks, with plain text labels.

    Matplotlib renders powers of ten as formulas, and each tick takes a millisecond.
    """
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(numticks=5))
    axis.yaxis.set_major_formatter(lambda value, _: _power(value))
    axis.yaxis.set_minor_locator(NullLocator())


def _power(value: float) -> str:
    """The label of a power of ten: 10⁻² for 0.01."""
    exponent = str(round(np.log10(value)))
    return {"0": "1", "1": "10"}.get(exponent, "10" + exponent.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")))


def provenance(data: str = "", ranks: int = 1) -> str:
    """The line under a figure with the origin of its numbers: data set, number of ranks, cores of this machine.

    Args:
        data: name of the data set, as in `Dataset.name`.
        ranks: number of ranks that trained.
    """
    parts = [data, _count(ranks, "rank"), _count(available_cores(), "CPU core")]
    return " · ".join(part for part in parts if part)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
