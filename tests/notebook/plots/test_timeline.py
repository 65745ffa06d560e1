"""Activities as bars."""

from __future__ import annotations

import io

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from course_lib.notebook.plots import PALETTE, WIDTH, timeline
from course_lib.notebook.plots.canvas import Canvas


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


@pytest.fixture
def texts(monkeypatch):
    """What is written on canvases."""
    written = []
    write = Canvas.text

    def text(page, x, y, words, **look):
        written.append(words)
        write(page, x, y, words, **look)

    monkeypatch.setattr(Canvas, "text", text)
    return written


def test_of_many_rows_the_first_are_shown(texts):
    many = pd.DataFrame(
        {
            "row": [f"tensor {i % 30} with a name that is much too long" for i in range(1000)],
            "activity": [f"activity {i % 5}" for i in range(1000)],
            "start": np.linspace(0, 1, 1000),
            "seconds": 0.01,
        }
    )
    timeline.rows(many, caption="c")
    assert "c · 6 more rows" in texts
    names = [text for text in texts if text.startswith("…")]
    assert names == ["… that is much too long"] * timeline.MAX_ROWS
    assert [text for text in texts if text.startswith("activity")] == [f"activity {i}" for i in range(5)]


@pytest.mark.parametrize("bars", [slice(0), slice(1)])
def test_few_bars_or_none_can_be_drawn(table, texts, bars):
    figure = timeline.rows(table[bars], title="t")
    assert texts.count("conv") == texts.count("wait") == len(table[bars])
    rows, _ = inked(figure, PALETTE[0])
    assert (len(rows) > 0) == (len(table[bars]) > 0)


def test_bars_of_unknown_length_are_left_out(table):
    rows, _ = inked(timeline.rows(table.assign(seconds=np.nan)), PALETTE[0])
    assert not (rows > 70).any()


@pytest.mark.parametrize("width", [1e-5, 0.003, 0.08, 2.0, 700.0])
def test_ticks_are_round_and_within(width):
    ticks = timeline._ticks(123.4, 1e3 * width)
    assert 2 <= len(ticks) <= 9
    assert all(123.4 <= value <= 123.4 + 1e3 * width for value, _ in ticks)
    assert len({label for _, label in ticks}) == len(ticks)


def test_steps_are_stacked_of_their_parts():
    parts = pd.DataFrame({"moving": [1.0, 2.0], "waiting": [3.0, 1.0]}, index=[2, 3])
    even, late = timeline.steps({"even": parts, "late": 2 * parts}).axes
    assert (even.get_title("left"), late.get_title("left")) == ("even", "late")
    moving, waiting = even.containers
    assert [bar.get_height() for bar in waiting] == [3.0, 1.0]
    assert [bar.get_y() for bar in waiting] == [bar.get_height() for bar in moving] == [1.0, 2.0]
    assert even.get_ylim() == late.get_ylim() == (0, pytest.approx(1.05 * 8))


def test_lateness_has_a_line_for_each_rank_and_one_for_the_sleep():
    (axis,) = timeline.lateness(pd.DataFrame({0: [0.0, 1.0], 1: [20.0, 25.0]}), asleep=20).axes
    assert [line.get_label() for line in axis.lines] == ["rank 0", "rank 1", "20 ms of sleep"]
    assert [list(line.get_ydata()) for line in axis.lines] == [[0, 1], [20, 25], [20, 20]]


def test_uneven_sizes_are_marked():
    flags = [False, True, True, False]
    (axis,) = timeline.uneven(range(100, 104), {2: flags, 4: [False] * 4}).axes
    marked = [len(bars.get_paths()) for bars in axis.collections]
    assert marked == [1, 2, 1, 0]  # for each number of ranks the background, then what differs
    assert [label.get_text() for label in axis.get_yticklabels()] == ["2 ranks", "4 ranks"]
    assert axis.collections[1].get_paths()[0].get_extents().x0 == 100.5
