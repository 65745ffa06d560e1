"""Loss as a function of two numbers: a surface that can be turned, and contours side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d import Axes3D  # noqa: F401  (makes projection="3d" known)

from course_lib.notebook.plots.style import FAINT, PALETTE, PAPER, WIDTH, Figure, empty_figure, style

COLOURS = "viridis"  # dark is low; even steps of brightness, also for colour-blind readers
FACETS = 36  # along each side of a surface: as many as are drawn in time for a slider
STEPS = 6  # contours for each factor of ten


def turned(
    xs: np.ndarray,
    ys: np.ndarray,
    losses: np.ndarray,
    *,
    turn: float = -60.0,
    tilt: float = 30.0,
    names: tuple[str, str] = ("w", "b"),
    title: str = "",
    caption: str = "",
    limit: float | None = None,
    lowest: float | None = None,
    log: bool = False,
) -> Figure:
    """The loss as a surface over two numbers, seen from a chosen side.

    Args:
        xs: values of the first number [n]. ys: of the second [m]. losses: [m, n].
        turn: degrees around the vertical axis. tilt: degrees above the horizon.
        names: of the two numbers.
        title: over the surface.
        caption: what it was made with, see `provenance`.
        limit: the surface is cut off at this loss and goes on flat; heights and colours end there.
        lowest: the loss where heights and colours begin, by default the smallest.
        log: heights are powers of ten.
    """
    height = 450
    top = _highest(losses) if limit is None else limit
    # A loss that overflowed is as high as can be shown.
    shown = np.minimum(np.nan_to_num(np.asarray(losses, float), nan=top, posinf=top), top)
    bottom = shown.min() if lowest is None else lowest
    if log:
        shown, bottom, top = np.log10(shown), np.log10(bottom), np.log10(top)
    if bottom == top:  # a flat loss, in the middle of the axis
        bottom, top = bottom - 0.5, top + 0.5
    with style():
        figure = empty_figure(height, caption)
        axis = figure.add_axes((0.1, 0.1, 0.8, 0.86), projection="3d")
        axis.plot_surface(
            *np.meshgrid(xs, ys), shown, cmap=COLOURS, vmin=bottom, vmax=top,
            rcount=FACETS, ccount=FACETS, linewidth=0, antialiased=False,
        )  # fmt: skip
        axis.set(xlabel=names[0], ylabel=names[1], zlabel="loss L", zlim=(bottom, top))
        for one in (axis.xaxis, axis.yaxis, axis.zaxis):
            one.set_pane_color(PAPER)
            one.set_major_locator(ticker.MaxNLocator(5))
            one.line.set_color(FAINT)
        if log:
            axis.zaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
            axis.zaxis.set_major_formatter(_number)
        axis.view_init(elev=tilt, azim=turn)
        axis.set_box_aspect((1, 1, 0.7), zoom=1.02)
        figure.text(14 / WIDTH, 1 - 26 / height, title, fontsize=11)
    return figure


def contours(
    xs: np.ndarray,
    ys: np.ndarray,
    losses: Mapping[str, np.ndarray],
    *,
    columns: int = 2,
    names: tuple[str, str] = ("step along d₁", "step along d₂"),
    limit: float | None = None,
    mark: tuple[float, str] | None = None,
    caption: str = "",
) -> Figure:
    """Slices of several losses side by side: the same levels and colours for all, in even factors of the loss.

    Args:
        xs: values of the first number [n]. ys: of the second [m].
        losses: title → losses [m, n], positive.
        columns: slices in a row.
        names: of the two numbers.
        limit: losses above it have its colour; by default the largest.
        mark: a loss whose contour is drawn thick, and its meaning for the legend.
        caption: what it was made with, see `provenance`.
    """
    grids = {title: np.nan_to_num(np.asarray(grid, float), nan=np.inf) for title, grid in losses.items()}
    top = max(_highest(grid) for grid in grids.values()) if limit is None else limit
    levels = _levels(min(grid.min() for grid in grids.values()), top)
    rows = -(-len(grids) // columns)
    left, right, above, below, between, gap = 78, 106, 62 if mark else 40, 76, 44, 40
    side = (WIDTH - left - right - (columns - 1) * gap) / columns
    height = above + below + rows * side + (rows - 1) * between
    with style():
        figure = empty_figure(height, caption)
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        figure.subplots_adjust(
            left=left / WIDTH, right=1 - right / WIDTH, top=1 - above / height, bottom=below / height,
            wspace=gap / side, hspace=between / side,
        )  # fmt: skip
        for axis, (title, grid) in zip(axes.flat, grids.items()):
            # Between the points of the grid the logarithm is interpolated: the loss itself grows by factors.
            powers = np.log10(np.minimum(grid, 10 * top))
            drawn = axis.contourf(xs, ys, powers, levels=levels, cmap=COLOURS, extend="max")
            _lines(axis, xs, ys, powers, levels, colors="white", linewidths=0.4, linestyles="solid", alpha=0.5)
            if mark:
                _lines(axis, xs, ys, powers, [np.log10(mark[0])], colors=[PALETTE[1]], linewidths=2.2)
            axis.plot(0, 0, "+", color="white", markersize=9, markeredgewidth=1.8)
            axis.set_title(title, fontsize=10)
            axis.locator_params(nbins=5)
            axis.grid(False)
        for axis in axes[-1]:
            axis.set_xlabel(names[0])
        for axis in axes[:, 0]:
            axis.set_ylabel(names[1])
        bar = figure.add_axes((1 - (right - 18) / WIDTH, below / height, 16 / WIDTH, 1 - (above + below) / height))
        figure.colorbar(drawn, cax=bar, ticks=_marks(levels), format=_number)
        bar.set_ylabel("loss L")
        if mark:
            line = Line2D([], [], color=PALETTE[1], linewidth=2.2, label=mark[1])
            figure.legend(handles=[line], loc="upper left")
    return figure


def _lines(
    axis: Axes, xs: np.ndarray, ys: np.ndarray, powers: np.ndarray, levels: Sequence[float], **look: object
) -> None:
    """Those contours that there are: Matplotlib warns where there are none."""
    there = [level for level in levels if powers.min() < level < powers.max()]
    if there:
        axis.contour(xs, ys, powers, levels=there, **look)


def _highest(losses: np.ndarray) -> float:
    return float(np.max(losses, where=np.isfinite(losses), initial=-np.inf))


def _levels(lowest: float, highest: float) -> np.ndarray:
    """Powers of ten in even steps that enclose both ends."""
    first, last = np.floor(STEPS * np.log10(lowest)), np.ceil(STEPS * np.log10(highest))
    return np.arange(first, max(last, first + 1) + 1) / STEPS


def _marks(levels: np.ndarray) -> list[float]:
    """Powers of ten of round losses: 1, 10, … and, where there are few, 3, 30, …"""
    factors = (1, 3) if levels[-1] - levels[0] < 3.5 else (1,)
    powers = range(int(np.floor(levels[0])), int(np.ceil(levels[-1])) + 1)
    marks = [power + np.log10(factor) for power in powers for factor in factors]
    return [mark for mark in marks if levels[0] - 1e-9 <= mark <= levels[-1] + 1e-9]


def _number(power: float, _: object = None) -> str:
    number = 10.0**power
    return f"{number:,.0f}" if number >= 1 else f"{number:.3g}"
