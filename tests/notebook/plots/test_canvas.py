from __future__ import annotations

import io

import matplotlib.image
import numpy as np
import pytest

from course_lib.notebook.plots import PAPER, WIDTH, canvas, style


def picture(page):
    """The picture as numbers, one and a half for each pixel of the page; row 0 is the top."""
    return matplotlib.image.imread(io.BytesIO(page.figure().png()))[..., :3]


def extent(page):
    """left, right, bottom, top of what is drawn, in pixels of the page."""
    paper = tuple(int(PAPER[i : i + 2], 16) / 255 for i in (1, 3, 5))
    rows, columns = np.nonzero(np.abs(picture(page) - paper).max(axis=2) > 0.2)
    height = len(picture(page)) / 1.5
    return columns.min() / 1.5, columns.max() / 1.5, height - rows.max() / 1.5, height - rows.min() / 1.5


def test_boxes_stand_where_they_are_put():
    with style():
        page = canvas.Canvas(200)
        page.boxes([(100, 50, 300, 20, "#0072B2")])
    assert extent(page) == pytest.approx((100, 400, 50, 70), abs=1)
    assert picture(page).shape == (300, 1.5 * WIDTH, 3)


@pytest.mark.parametrize(("ha", "left"), [("left", 0), ("center", -0.5), ("right", -1)])
def test_words_are_aligned(ha, left):
    with style():
        page = canvas.Canvas(200)
        page.text(450, 100, "HEIGHT and\nwidth", ha=ha, va="center", size=20)
    x0, x1, y0, y1 = extent(page)
    assert x0 == pytest.approx(450 + left * (x1 - x0), abs=4)
    assert (y0 + y1) / 2 == pytest.approx(100, abs=5)


def test_upright_words_are_turned():
    with style():
        page = canvas.Canvas(300)
        page.text(450, 150, "bytes in a step", upright=True)
    x0, x1, y0, y1 = extent(page)
    assert y1 - y0 > 4 * (x1 - x0)
    assert ((x0 + x1) / 2, (y0 + y1) / 2) == pytest.approx((450, 150), abs=4)


def test_a_panel_maps_values_to_pixels():
    with style():
        panel = canvas.Panel(canvas.Canvas(300), (100, 50, 600, 200), (1, 1000), (0, 10), logx=True)
    assert panel.x([1, 10, 1000]) == pytest.approx([100, 300, 700])
    assert panel.y([0, 5]) == pytest.approx([50, 150])
