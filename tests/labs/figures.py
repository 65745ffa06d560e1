"""What a figure says to its reader, whatever artists it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Union

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.container import BarContainer
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from course_lib.notebook.plots import WIDTH, Figure

Drawn = Union[Figure, Axes]


class Case(NamedTuple):
    """A figure, and what is asked of it.

    draw: makes it; says: texts that are written somewhere; shows: number of a panel → series of numbers that it
    shows, in any order; hides: texts that are not written.
    """

    draw: Callable[[], Figure]
    says: Sequence[str]
    shows: Mapping[int, Sequence]
    hides: Sequence[str]


def case(
    draw: Callable[..., Figure],
    *given: Any,
    shows: Mapping[int, Sequence] = MappingProxyType({}),
    says: Sequence[str] = (),
    hides: Sequence[str] = (),
    **named: Any,
) -> Case:
    """A figure of these arguments. Keys of mappings, `title` and `caption` name something: it says them all."""
    names = [key for value in given if isinstance(value, Mapping) for key in value if isinstance(key, str)]
    names += [value for key, value in named.items() if key in ("title", "caption")]
    return Case(lambda: draw(*given, **named), [*names, *says], shows, hides)


def suite(cases: Mapping[str, Case]) -> Callable[[str], None]:
    """A test of each of these figures."""

    @pytest.mark.parametrize("name", cases)
    def test(name: str) -> None:
        check(*cases[name])

    return test


def check(
    draw: Callable[[], Figure], says: Sequence[str], panels: Mapping[int, Sequence], hides: Sequence[str] = ()
) -> None:
    """Draw a figure as wide as a notebook's page: axes have labels, and it says and shows what it should."""
    figure = draw()
    assert 100 * figure.get_figwidth() == WIDTH
    figure.draw_without_rendering()
    if any(map(_has_scale, figure.axes)):
        assert any(axis.get_xlabel() or axis.get_ylabel() or axis.get_title(loc="left") for axis in figure.axes)
    written = said(figure)
    for text in says:
        assert text in written, f"{text!r} is not written; there are:\n{written}"
    for text in hides:
        assert text not in written
    for panel, expected in panels.items():
        for values in expected:
            assert shows(figure.axes[panel], values), f"panel {panel} does not show {values}"


def numbers(cases: Mapping[str, tuple[Callable[[], Any], Any]], rtol: float = 1e-3, atol: float = 1e-6) -> Callable:
    """A test of what is computed for figures: name → how, and the numbers that are expected."""

    @pytest.mark.parametrize("name", cases)
    def test(name: str) -> None:
        compute, expected = cases[name]
        np.testing.assert_allclose(np.asarray(compute(), float), expected, rtol=rtol, atol=atol)

    return test


def _has_scale(axis: Axes) -> bool:
    return axis.axison and any(label.get_text() for label in axis.get_xticklabels() + axis.get_yticklabels())


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
