"""Who reads what: the examples shared out among the ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import matplotlib
import numpy as np
from matplotlib.lines import Line2D

from course_lib.notebook.plots.style import INK, PAPER, WIDTH, Figure, colour, style, subplots


def partition(functions: Mapping[str, Callable], *, images: int, ranks: int, epochs: int) -> Figure:
    """Who reads which image, epoch by epoch: a square for each image in the colour of the rank that reads it.

    Args:
        functions: name → function (images, rank, size, epoch) → indices of the images that the rank reads.
        images: number of images; those read by several ranks are black, those read by none are empty.
        ranks, epochs: how many of them to show.
    """
    colours = [PAPER, *(colour(rank) for rank in range(ranks)), INK]
    with style():
        figure, axes = subplots(height=90 + 60 * epochs, columns=len(functions))
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
                edgecolors=PAPER,
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
