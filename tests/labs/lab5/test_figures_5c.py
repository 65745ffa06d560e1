"""The figures of notebook 5c, by what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook.plots.canvas import Canvas
from labs.lab5_precision_and_memory.lessons import figures_5c as figures
from labs.lab5_precision_and_memory.lessons.counted_chain import Chain
from labs.lab5_precision_and_memory.lessons.offload import Work, timeline


def test_a_step_is_titled_with_its_peak_and_marks_it(titles, legend):
    rows = pd.DataFrame(
        {"phase": ["start", "forward", "backward"], "peak": [1e6, 3e6, 2e6], "weights": 5e5, "state": 2e5,
         "gradients": [0, 0, 1e5], "activations": [0, 1e6, 5e5]}
    )  # fmt: skip
    figure = figures.step({"few": rows, "many": rows.assign(peak=rows["peak"] * 2)})
    assert titles(figure) == ["few: at most 3.0 MB", "many: at most 6.0 MB"]
    line, most = figure.axes[0].lines
    assert line.get_ydata().tolist() == [1, 3, 2]
    assert (most.get_xdata()[0], most.get_ydata()[0]) == (1, 3)
    assert {"weights", "gradients", "state", "activations"} <= set(legend(figure))


def test_depth_tells_a_square_from_a_line():
    depth = np.array([10, 20, 40])
    figure = figures.by_depth(pd.DataFrame({"depth": depth, "kept": 1e4 * depth**2, "again": 1e6 * depth}))
    assert [text.get_text() for text in figure.axes[1].texts] == ["slope 2.00", "slope 1.00"]


def test_schedules_count_calls_and_arrays(titles):
    chain = Chain(2)
    x, slope = chain.start()
    y = chain.forward(0, x)
    slope = chain.backward(1, y, slope)
    del y
    chain.backward(0, x, slope)
    figure = figures.schedules({"plain": chain.calls})
    assert titles(figure) == ["plain: 1 forwards, 1 kept"]
    picture = figure.axes[0].images[0].get_array()
    assert picture.tolist() == [[2, 1, 3], [0, 3, 0]]  # forward, kept, backward of the first layer; the second's


def test_trade_has_a_line_for_each_curve_and_a_mark_for_each_point():
    figure = figures.trade({"yours": (3, 20)}, 10)
    best, halves, point = figure.axes[0].lines
    assert best.get_ydata()[[0, -1]].tolist() == [45, 9] and (best.get_ydata() <= halves.get_ydata()).all()
    assert (point.get_xdata()[0], point.get_ydata()[0]) == (3, 20)


@pytest.mark.parametrize(("moved", "said"), [([], "0 of 2 inputs moved"), ([0], "1 of 2 inputs moved: 6,000 ms")])
def test_offload_says_what_moved_and_how_long_it_took(monkeypatch, moved, said):
    layers = [Work("a", 1.0, 1e9, 0.5), Work("b", 1.0, 2e9, 1.0)]
    step = timeline(layers, moved, lambda needed, seconds: [n - s for n, s in zip(needed, seconds)])
    words, put = [], Canvas.text

    def text(canvas, x, y, what, **look):
        words.append(what)
        put(canvas, x, y, what, **look)

    monkeypatch.setattr(Canvas, "text", text)
    figures.offload(step, ["a", "b"])
    assert any(said in word for word in words)


def test_shares_write_each_sum_on_its_bar(titles):
    table = pd.DataFrame(
        {"stage": [0, 1, 1], "ranks": [1, 4, 64], "weights": 2.0, "gradients": 2.0, "state": [12, 3, 0.1875]}
    )
    figure = figures.shares(table)
    assert titles(figure) == ["nothing shared out", "stage 1"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["7", "4.19"]


def test_rates_have_a_panel_for_each_place(titles):
    table = pd.DataFrame(
        {"place": ["before", "before", "after", "after"], "rank": [0, 1, 0, 1], "layer": "w1",
         "ratio": [0.8, 0.9, 1.0, np.nan]}
    )  # fmt: skip
    figure = figures.rates(table)
    assert titles(figure) == ["before", "after"]
    assert [line.get_ydata()[0] for line in figure.axes[0].lines[1:]] == [0.8, 0.9]


def test_recomputing_shows_means_beside_the_count(legend):
    rows = [
        {"depth": depth, "recompute": again, "run": run, "megabytes": 10 * depth / (1 + again) + run,
         "processor seconds": 2.0 + again}
        for depth in (16, 28) for again in (False, True) for run in (1, 2, 3)
    ]  # fmt: skip
    counted = pd.DataFrame([{"depth": d, "recompute": a, "megabytes": 9 * d} for d in (16, 28) for a in (False, True)])
    figure = figures.recompute(pd.DataFrame(rows), counted)
    memory, processor = figure.axes
    assert memory.lines[0].get_ydata().tolist() == [144, 252]
    means = [container.lines[0].get_ydata().tolist() for container in memory.containers]
    assert means == [[162, 282], [82, 142]]
    assert [container.lines[0].get_ydata()[0] for container in processor.containers] == [2, 3]
    assert legend(figure) == ["everything kept", "each block recomputed"]
