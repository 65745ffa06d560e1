"""Activities as bars."""

from __future__ import annotations

import io

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from course_lib.plots import PALETTE, WIDTH, timeline


def picture(figure):
    return matplotlib.image.imread(io.BytesIO(figure.png(1)))[..., :3]


def inked(figure, colour):
    """Where a colour of the palette is, as rows and columns of pixels."""
    rgb = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return np.nonzero(np.abs(picture(figure) - rgb).max(axis=2) < 0.03)


@pytest.fixture
def table():
    return pd.DataFrame(
        [("conv", "wait", 0.0, 0.010), ("dense", "wait", 0.002, 0.004), ("conv", "reduce", 0.010, 0.010)],
        columns=["row", "activity", "start", "seconds"],
    )


def test_bars_stand_where_their_times_are(table):
    figure = timeline.rows(table, 0, 0.020)
    rows, columns = inked(figure, PALETTE[1])
    columns = columns[rows > 70]  # below the legend
    left, right = 196, WIDTH - 24
    assert columns.min() == pytest.approx((left + right) / 2, abs=2)
    assert columns.max() == pytest.approx(right, abs=2)


def test_a_window_cuts_the_bars_off(table):
    figure = timeline.rows(table, 0.012, 0.002)
    rows, columns = inked(figure, PALETTE[1])
    assert columns[rows > 70].min() == pytest.approx(196, abs=2)
    rows, _ = inked(figure, PALETTE[0])
    assert not (rows > 70).any()


def test_many_rows_bars_and_none(table):
    many = pd.DataFrame(
        {
            "row": [f"tensor {i % 30} with a name that is much too long" for i in range(1000)],
            "activity": [f"activity {i % 5}" for i in range(1000)],
            "start": np.linspace(0, 1, 1000),
            "seconds": 0.01,
        }
    )
    assert picture(timeline.rows(many, caption="c")).shape[1] == WIDTH
    for few in (table[:0], table[:1], table.assign(seconds=np.nan)):
        assert picture(timeline.rows(few, title="t")).shape[1] == WIDTH


@pytest.mark.parametrize("width", [1e-5, 0.003, 0.08, 2.0, 700.0])
def test_ticks_are_round_and_within(width):
    ticks = timeline._ticks(123.4, 1e3 * width)
    assert 2 <= len(ticks) <= 9
    assert all(123.4 <= value <= 123.4 + 1e3 * width for value, _ in ticks)
    assert len({label for _, label in ticks}) == len(ticks)


def test_other_figures_draw():
    parts = pd.DataFrame({"moving": [1.0, 2.0], "waiting": [3.0, 1.0]}, index=[2, 3])
    assert len(timeline.steps({"even": parts, "late": parts}).axes) == 2
    assert picture(timeline.lateness(pd.DataFrame({0: [0.0, 1.0], 1: [20.0, 25.0]}), asleep=20)).shape[1] == WIDTH
    rows, _ = inked(timeline.uneven(range(100, 200), {2: [False] * 100}), PALETTE[1])
    assert len(rows) == 0
