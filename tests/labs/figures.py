"""What a figure says to its reader, whatever artists it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Union

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.container import BarContainer
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from course_lib.notebook.plots import WIDTH, Figure

Drawn = Union[Figure, Axes]


def check(
    draw: Callable[[], Figure], texts: Sequence[str], panels: Mapping[int, Sequence], missing: Sequence[str] = ()
) -> None:
    """Draw a figure; it has these texts, and its panels these series of numbers, in any order.

    Args:
        draw: makes the figure.
        texts: what is written somewhere on it.
        panels: number of a panel → series that it shows.
        missing: what is not written.
    """
    figure = draw()
    assert 100 * figure.get_figwidth() == WIDTH
    figure.draw_without_rendering()
    written = said(figure)
    for text in texts:
        assert text in written, f"{text!r} is not written; there are:\n{written}"
    for text in missing:
        assert text not in written
    for panel, expected in panels.items():
        for values in expected:
            assert shows(figure.axes[panel], values), f"panel {panel} does not show {values}"


def said(drawn: Drawn) -> str:
    """All that is written on a figure, or on one of its panels, a line each."""
    return "\n".join(text.get_text() for text in drawn.findobj(Text) if text.get_visible() and text.get_text().strip())


def shows(axis: Axes, values: Sequence[float]) -> bool:
    """Whether a line, a group of bars or of points, or a picture of this panel has these values."""
    values = np.asarray(values, float)
    close = {"rtol": 1e-3, "atol": 1e-9, "equal_nan": True}
    return any(one.shape == values.shape and np.allclose(one, values, **close) for one in series(axis))


def series(axis: Axes) -> Iterator[np.ndarray]:
    """Values that stand together: xs and ys of a line or of points, ends and lengths of bars, the array of an image."""
    for line in axis.lines:
        yield from (np.asarray(line.get_xdata(orig=False), float), np.asarray(line.get_ydata(orig=False), float))
    groups = [axis.patches, *(bars for bars in axis.containers if isinstance(bars, BarContainer))]
    for bars in groups:
        if boxes := [bar.get_bbox() for bar in bars if isinstance(bar, Rectangle)]:
            yield from _ends(boxes)
    for group in axis.collections:
        if isinstance(group, PathCollection):
            yield from np.asarray(group.get_offsets(), float).T
        elif isinstance(group, LineCollection):
            yield np.array([segment[:, 1] for segment in group.get_segments()])
        elif isinstance(group, PolyCollection):
            yield from _ends([path.get_extents() for path in group.get_paths()])
    for image in [*axis.images, *(group for group in axis.collections if group.get_array() is not None)]:
        yield np.asarray(image.get_array(), float)


def _ends(boxes: Sequence) -> Iterator[np.ndarray]:
    for end in ("x0", "x1", "y0", "y1", "width", "height"):
        yield np.array([getattr(box, end) for box in boxes], float)
