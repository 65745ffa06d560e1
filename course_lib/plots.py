"""One plotting style for the whole course, and the plots that several labs share.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart, and belong to the rank: rank 0
is blue in every figure of the course. Figures are opaque cards, so they read in a light and in a dark theme.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Okabe and Ito (2008) without yellow, which is lost on a light card.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

CARD, INK, FAINT = "#fbfbf9", "#2b2b2b", "#6b6b6b"
WIDTH = 900  # pixels: a notebook's output area

_STYLE = {
    "figure.facecolor": CARD,
    "figure.dpi": 100,
    "savefig.facecolor": CARD,
    "axes.facecolor": CARD,
    "axes.edgecolor": "#b8b8b4",
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=PALETTE),
    "grid.color": "#e6e6e2",
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
    """The course's look for everything drawn inside: `with plots.style(): ...`."""
    return matplotlib.rc_context(_STYLE)


def colour(rank: int) -> str:
    """The colour of a rank, the same in every figure."""
    return PALETTE[rank % len(PALETTE)]


class Card(Figure):
    """A figure that shows itself in a notebook, sharp on any screen, without pyplot."""

    def png(self) -> bytes:
        """The figure as a PNG picture with 1.5 pixels for each pixel of the page."""
        buffer = io.BytesIO()
        # The lightest compression: the live view redraws every second while the ranks need the processors.
        self.savefig(buffer, format="png", dpi=150, pil_kwargs={"compress_level": 1})
        return buffer.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict]:
        return self.png(), {"width": round(100 * self.get_figwidth())}


def card(height: int = 350, columns: int = 1, caption: str = "") -> tuple[Card, Sequence]:
    """A figure in the course's style: `columns` axes side by side over one caption line.

    Args:
        height: of the figure in pixels; its width is WIDTH.
        columns: number of axes.
        caption: what the figure was made with, see `provenance`.
    """
    with style():
        figure = Card(figsize=(WIDTH / 100, height / 100))
        axes = figure.subplots(1, columns, squeeze=False)[0]
        # Fixed margins, in pixels: a live figure must not jump about as its numbers grow.
        bottom = 76 if caption else 48
        figure.subplots_adjust(
            left=56 / WIDTH, right=1 - 24 / WIDTH, top=1 - 62 / height, bottom=bottom / height, wspace=0.16
        )
        if caption:
            figure.text(14 / WIDTH, 12 / height, caption, color=FAINT, fontsize=8.5, parse_math=False)
    return figure, axes


def curves(epochs: pd.DataFrame, batches: pd.DataFrame | None = None, *, x: str = "epoch", caption: str = "") -> Card:
    """Loss and accuracy of every rank, training as lines and validation as marks.

    Args:
        epochs: one row for each rank and epoch, with the columns rank, epoch (1 is the first), images and
            any of loss, accuracy, val_loss, val_accuracy.
        batches: one row for each measured batch: rank, epoch (2.5 is half-way through the third), images,
            loss, accuracy. With it the training lines are drawn from the batches, which Keras averages since
            the epoch began: hence the new start with every epoch.
        x: "epoch" or "images", the images that one rank has trained on.
        caption: what the figure was made with, see `provenance`.

    Raises:
        ValueError: for another x.
    """
    labels = {"epoch": "epoch", "images": "images that each rank has trained on"}
    if x not in labels:
        raise ValueError(f'x is "epoch" or "images", not {x!r}.')
    training = epochs if batches is None else batches
    ranks = sorted({*epochs["rank"], *training["rank"]})
    metrics = [metric for metric in ("loss", "accuracy") if _has(training, metric)] or ["loss"]
    validated = any(_has(epochs, f"val_{metric}") for metric in metrics)
    with style():
        figure, axes = card(columns=len(metrics), caption=caption)
        for axis, metric in zip(axes, metrics):
            for place, rank in enumerate(ranks):
                # Thin lines over thick ones, open marks: ranks that agree stay visible, all of them.
                look = {"color": colour(rank), "linewidth": 1.3 + 1.7 * (1 - (place + 1) / len(ranks))}
                rows = _thinned(training[training["rank"] == rank], 1200 // len(ranks))
                axis.plot(*_line(rows, x, metric, broken=batches is not None), **look)
                ends = epochs[epochs["rank"] == rank]
                if _has(ends, f"val_{metric}"):
                    look = _validation(rank)
                    axis.plot(ends[x], ends[f"val_{metric}"], markevery=1 + len(ends) // 20, **look)
            axis.set_title(metric)
            axis.set_xlabel(labels[x])
            axis.margins(x=0.02)
            axis.locator_params(axis="x", nbins=8, integer=x == "epoch")
            if x == "images":
                axis.xaxis.set_major_formatter("{x:,.0f}")
        _legend(figure, ranks, validated)
    return figure


def _has(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and frame[column].notna().any()


def _thinned(rows: pd.DataFrame, points: int) -> pd.DataFrame:
    """Every k-th row, so that about `points` remain and the last does."""
    return rows.iloc[:: -max(1, len(rows) // points)][::-1]


def _line(rows: pd.DataFrame, x: str, metric: str, broken: bool) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line; a broken line begins anew with every epoch, if that leaves it enough points."""
    # The batch that ends at 2.0 is the last of epoch 2: the epoch of a batch is the ceiling.
    starts = np.flatnonzero(np.diff(np.ceil(rows["epoch"].to_numpy(float)))) + 1
    if not broken or len(rows) < 4 * len(starts):
        starts = starts[:0]
    return tuple(np.insert(rows[column].to_numpy(float), starts, np.nan) for column in (x, metric))


def _validation(rank: int) -> dict:
    return {
        "color": colour(rank),
        "linestyle": (0, (1, 2)),
        "linewidth": 1.2,
        "marker": MARKERS[rank % len(MARKERS)],
        "markerfacecolor": "none",
        "markeredgewidth": 1.6,
    }


def _legend(figure: Figure, ranks: Sequence[int], validated: bool) -> None:
    handles = [Line2D([], [], color=colour(rank), linewidth=3, label=f"rank {rank}") for rank in ranks]
    handles.append(Line2D([], [], color=FAINT, label="training"))
    if validated:
        handles.append(Line2D([], [], **{**_validation(0), "color": FAINT}, label="validation"))
    figure.legend(handles=handles, loc="upper left", ncols=len(handles), handlelength=1.6, columnspacing=1.4)


def provenance(data: str = "", ranks: int = 1, machine: str = "") -> str:
    """The line under a figure that says where its numbers come from.

    Args:
        data: the data set by the name under which results are shown, as in `Dataset.name`.
        ranks: how many ranks trained.
        machine: by default this machine's number of processors.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parts = [data, _count(ranks, "rank"), machine or _count(cores, "CPU core")]
    return " · ".join(part for part in parts if part)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def partition(functions: Mapping[str, Callable], *, images: int, ranks: int, epochs: int) -> Card:
    """Who reads which image, epoch by epoch: a square for each image in the colour of the rank that reads it.

    Args:
        functions: name → function (images, rank, size, epoch) → indices of the images that the rank reads.
        images: number of images; those read by several ranks are black, those read by none are empty.
        ranks, epochs: how many of them to show.
    """
    colours = [CARD, *(colour(rank) for rank in range(ranks)), INK]
    with style():
        figure, axes = card(height=90 + 60 * epochs, columns=len(functions))
        for axis, (name, function) in zip(axes, functions.items()):
            owner = np.zeros((epochs, images), int)
            for epoch in range(epochs):
                for rank in range(ranks):
                    mine = np.asarray(function(images, rank, ranks, epoch))
                    owner[epoch, mine] = np.where(owner[epoch, mine] == 0, rank + 1, ranks + 1)
            rows = 3  # of squares for each epoch, so that single images stay visible
            width = -(-images // rows)
            padded = np.zeros((epochs, rows * width), int)
            padded[:, :images] = owner
            grid = np.vstack([np.vstack([e.reshape(rows, width), np.zeros((1, width), int)]) for e in padded])[:-1]
            axis.pcolormesh(
                np.arange(width + 1),
                np.arange(len(grid) + 1),
                grid,
                cmap=matplotlib.colors.ListedColormap(colours),
                vmin=0,
                vmax=ranks + 1,
                edgecolors=CARD,
                linewidth=1.5,
            )
            axis.invert_yaxis()
            axis.set_yticks([])
            axis.set_xticks([])
            axis.grid(False)
            axis.spines[:].set_visible(False)
            axis.set_title(name)
        middles = [epoch * (rows + 1) + rows / 2 for epoch in range(epochs)]
        axes[0].set_yticks(middles, [f"epoch {epoch}" for epoch in range(epochs)])
        owners = [*((f"rank {rank}", colour(rank)) for rank in range(ranks)), ("several ranks", INK)]
        handles = [Line2D([], [], color=c, marker="s", linestyle="", label=label) for label, c in owners]
        figure.legend(handles=handles, loc="upper left", ncols=len(handles), handletextpad=0.2)
        figure.subplots_adjust(left=74 / WIDTH, bottom=0.04, wspace=0.05)
    return figure
