"""Drawing by hand, in pixels of the page: for diagrams, and where a slider has no time for Matplotlib's axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

from course_lib.notebook.plots.style import FAINT, GRID, INK, SPINE, WIDTH, Figure, empty_figure

Box = tuple  # x, y, width, height, colour; x and y are those of the lower left corner


class Canvas:
    """A card of WIDTH × `height` pixels, (0, 0) at the lower left. What is drawn later lies on top, words on all.

    Make it and draw on it inside `with style():`, then take its `figure()`.
    """

    def __init__(self, height: int) -> None:
        self._figure = empty_figure(height)
        self._pixels = Affine2D().scale(1 / WIDTH, 1 / height) + self._figure.transFigure
        self._layer = 0
        self._words: list[Path] = []
        self._inks: list[str] = []

    def figure(self) -> Figure:
        """The card with all that was drawn."""
        # All words in one collection of outlines: as texts of Matplotlib's they would take most of the time.
        self._add(PathCollection(self._words, facecolors=self._inks, linewidths=0))
        self._words, self._inks = [], []
        return self._figure

    def boxes(self, boxes: Sequence[Box], *, edge: str = "none", linewidth: float = 1.0) -> None:
        """Filled rectangles, all at once: one by one they take ten times as long."""
        corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h, _ in boxes]
        colours = [box[4] for box in boxes]
        self._add(PolyCollection(corners, facecolors=colours, edgecolors=edge, linewidths=linewidth))

    def subplots(
        self, x: float, y: float, width: float, height: float, *, face: str, edge: str = INK, **look: object
    ) -> None:
        """One rectangle with round corners."""
        self._add(
            FancyBboxPatch(
                (x, y), width, height, boxstyle="round,pad=0,rounding_size=5", facecolor=face, edgecolor=edge, **look
            )
        )

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str = "-", **look: object) -> None:
        """A line through points; NaN interrupts it."""
        self._add(Line2D(xs, ys, linestyle=style, **look))

    def marks(self, xs: Sequence[float], ys: Sequence[float], marker: str, **look: object) -> None:
        """Marks at points."""
        self._add(Line2D(xs, ys, linestyle="", marker=marker, **look))

    def arrows(self, arrows: Sequence[tuple[float, float, float]], colour: str) -> None:
        """Horizontal arrows: (from, to, height)."""
        xs = np.ravel([(start, end, np.nan) for start, end, _ in arrows])
        ys = np.ravel([(y, y, np.nan) for _, _, y in arrows])
        self.line(xs, ys, color=colour, linewidth=1.6)
        for sign, marker in ((1, ">"), (-1, "<")):
            ends = [(end - 4 * sign, y) for start, end, y in arrows if (end - start) * sign > 0]
            if ends:
                self.marks(*zip(*ends), marker, color=colour, markersize=6)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        ha: str = "left",
        va: str = "baseline",
        size: float = 9.5,
        colour: str = INK,
        bold: bool = False,
        upright: bool = False,
    ) -> None:
        """Words at a point; `va`: baseline, center or top; `upright`: turned by 90°, centred on the point."""
        outline, width, height = _outline(words, size, bold)
        dx = {"left": 0.0, "center": -width / 2, "right": -width}["center" if upright else ha]
        top = _CAPITAL * size * _POINT  # of the first line, above its baseline
        dy = {"baseline": 0.0, "center": height / 2 - top, "top": -top}["center" if upright else va]
        vertices = outline.vertices + np.array([dx, dy])
        if upright:
            vertices = vertices[:, ::-1] * [-1, 1]
        self._words.append(Path(vertices + np.array([x, y]), outline.codes))
        self._inks.append(colour)

    def _add(self, artist: Artist) -> None:
        self._layer += 1
        artist.set(transform=self._pixels, zorder=self._layer)
        self._figure.add_artist(artist)


_POINT = 100 / 72  # pixels
_CAPITAL = 0.73  # height of a capital letter, in sizes
_LINE = 1.15  # distance of two lines, in sizes


@lru_cache(maxsize=2000)
def _outline(words: str, size: float, bold: bool) -> tuple[Path, float, float]:
    """(outline with the first line's baseline at 0, width, height above the last baseline) in pixels; lines centred."""
    lines = [[_glyph(character, bold) for character in line] for line in words.split("\n")]
    widths = [sum(advance for _, advance in line) for line in lines]
    vertices, codes = [], []
    for row, (line, width) in enumerate(zip(lines, widths)):
        x = (max(widths) - width) / 2
        for glyph, advance in line:
            vertices.append(glyph.vertices + np.array([x, -row * _LINE]))
            codes.append(glyph.codes)
            x += advance
    scale = size * _POINT
    outline = Path(np.concatenate(vertices) * scale, np.concatenate(codes))
    return outline, max(widths) * scale, (_CAPITAL + (len(lines) - 1) * _LINE) * scale


@lru_cache(maxsize=500)
def _glyph(character: str, bold: bool) -> tuple[Path, float]:
    """(outline, distance to the next character) of a character of size 1."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    bar, both = (TextPath((0, 0), text, size=1, prop=font) for text in ("|", f"{character}|"))
    advance = both.get_extents().x1 - bar.get_extents().x1
    if character == " ":  # Matplotlib makes no outline of nothing
        return Path(np.empty((0, 2)), np.empty(0, Path.code_type)), advance
    return TextPath((0, 0), character, size=1, prop=font), advance


class Panel:
    """Axes on a canvas: maps values to pixels, draws ticks, lines and marks.

    Args:
        box: left, bottom, width, height in pixels.
        xlim, ylim: the values at the ends.
        logx, logy: logarithmic.
    """

    def __init__(
        self,
        canvas: Canvas,
        box: tuple[float, float, float, float],
        xlim: tuple[float, float],
        ylim: tuple[float, float],
        *,
        logx: bool = False,
        logy: bool = False,
    ) -> None:
        self.canvas, self.box = canvas, box
        self._x = _scale(*xlim, box[0], box[2], logx)
        self._y = _scale(*ylim, box[1], box[3], logy)

    def x(self, values: Sequence[float]) -> np.ndarray:
        """Pixels of values."""
        return self._x(np.asarray(values, float))

    def y(self, values: Sequence[float]) -> np.ndarray:
        """Pixels of values."""
        return self._y(np.asarray(values, float))

    def axes(
        self, xticks: Sequence[tuple[float, str]], yticks: Sequence[tuple[float, str]], *,
        title: str = "", xlabel: str = "", ylabel: str = "", vertical: bool = True,
    ) -> None:  # fmt: skip
        """Grid, ticks as (value, label), title and labels; `vertical`: with vertical grid lines."""
        left, bottom, width, height = self.box
        xs, ys = self.x([value for value, _ in xticks]), self.y([value for value, _ in yticks])
        grid = [((left, left + width), (y, y)) for y in ys] + [
            ((x, x), (bottom, bottom + height)) for x in xs
        ] * vertical
        if grid:
            self.canvas.line(
                np.ravel([(*a, np.nan) for a, _ in grid]), np.ravel([(*b, np.nan) for _, b in grid]),
                color=GRID, linewidth=0.8,
            )  # fmt: skip
        self.canvas.line([left, left, left + width], [bottom + height, bottom, bottom], color=SPINE, linewidth=0.8)
        for x, (_, label) in zip(xs, xticks):
            self.canvas.text(x, bottom - 6, label, ha="center", va="top", colour=FAINT)
        for y, (_, label) in zip(ys, yticks):
            self.canvas.text(left - 6, y, label, ha="right", va="center", colour=FAINT)
        if title:
            self.canvas.text(left, bottom + height + 10, title, size=11)
        if xlabel:
            self.canvas.text(left + width / 2, bottom - 38, xlabel, ha="center", size=10.5)
        if ylabel:
            self.canvas.text(left - 70, bottom + height / 2, ylabel, upright=True, size=10.5)

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str = "-", **look: object) -> None:
        """A line through values."""
        self.canvas.line(self.x(xs), self.y(ys), style, **look)

    def marks(self, xs: Sequence[float], ys: Sequence[float], marker: str, **look: object) -> None:
        """Marks at values."""
        self.canvas.marks(self.x(xs), self.y(ys), marker, **look)


def _scale(low: float, high: float, start: float, length: float, log: bool) -> Callable:
    if log:
        bottom = np.log10(low)
        span = np.log10(high) - bottom
        return lambda values: start + length * (np.log10(np.maximum(values, 1e-300)) - bottom) / span
    return lambda values: start + length * (values - low) / (high - low)
