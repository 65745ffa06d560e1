"""The figures of notebook 4b: they show what they are given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook.plots import WIDTH
from labs.lab4_communication.lessons import figures_4b

CURVES = {"A": {"x": [0.0, 0.1, 0.2], "y": [1.0, 2.0, 3.0]}, "B": {"x": [0.0, 0.0, 0.1], "y": [0.5, 0.6, 0.7]}}


def lines(axis):
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines]


def test_gradients_are_sorted_by_size_and_added_up_by_the_time_they_are_ready():
    figure = figures_4b.gradients({"A": ([4e6, 400, 4e4], [1.0, 0.5, 0.5]), "B": ([4e8], [1.0])}, "sizes")
    sizes, shares = figure.axes
    assert [list(line.get_ydata()) for line in sizes.lines] == [[4e6, 4e4, 400], [4e8]]
    x, y = lines(shares)[0]
    assert x == [0, 0.5, 0.5, 1.0]
    assert y == pytest.approx([0, 0.0099, 1.0, 100], abs=0.01)
    assert figure.get_figwidth() * 100 == WIDTH


@pytest.mark.parametrize(
    ("messages", "title"),
    [
        (
            [[0.05, 0.1], [0.2, 0.25]],
            "2 messages: 100 ms of communication, 50% of it hidden; the step takes 350 ms, 50.0 of them waiting",
        ),
        (
            [[0.2, 0.5]],
            "1 message: 300 ms of communication, 0% of it hidden; the step takes 600 ms, 300.0 of them waiting",
        ),
        (
            np.empty((0, 2)),
            "0 messages: 0 ms of communication, nothing of it hidden; the step takes 300 ms, 0.0 of them waiting",
        ),
    ],
)
def test_a_step_says_how_much_of_its_communication_is_hidden(canvas_words, messages, title):
    words = canvas_words(lambda: figures_4b.step(0.1, 0.2, np.array(messages), "simulated"))
    assert title in words


@pytest.mark.parametrize("compute", [None, {"A": 1.0, "B": 2.0}])
def test_waiting_is_in_milliseconds_and_never_below_a_tenth_of_one(compute):
    figure = figures_4b.waiting([1, 10, 100], CURVES, "ranks", ticks=[1, 10, 100], compute=compute)
    first, second = figure.axes
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["A", "B"]
    assert lines(first)[:2] == [([1, 10, 100], [0.1, 100, 200]), ([1, 10, 100], [1000, 2000, 3000])]
    assert [len(axis.lines) for axis in (first, second)] == ([2, 2] if compute is None else [3, 3])
    if compute:
        assert list(second.lines[2].get_ydata()) == [2000, 2000]


def test_predictions_show_what_was_fitted_on_and_how_far_each_is_off():
    table = pd.DataFrame(
        {
            "setting": ["a", "a", "b"],
            "used": ["fit", "fit", "test"],
            "measured": [0.1, 0.2, 0.3],
            "low": [0.09, 0.19, 0.3],
            "high": [0.12, 0.22, 0.3],
            "predicted": [0.1, 0.22, 0.9],
        }
    )
    figure = figures_4b.predictions(table, "measured")
    _, errors = figure.axes
    points = [line for line in errors.lines if line.get_linestyle() == "None"]
    assert [list(line.get_xdata()) for line in points] == [pytest.approx([0, 10]), pytest.approx([200])]
    assert [list(line.get_ydata()) for line in points] == [[0, 0], [1]]
    assert errors.get_xlim() == pytest.approx((-220, 220))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["± 25 %", "fitted on", "predicted"]


@pytest.mark.parametrize(
    ("ranks", "formula", "simulated", "left"),
    [
        ([1, 16, 2048], [1, 1.1, 1.25], [1, 1.09, 1.24], "normal: 80 % left on 2,048 ranks"),
        ([1, 2048], [1, 30.0], [1, 31.0], "normal: 3 % left on 2,048 ranks"),
        ([1, 2048], [1, 1.0], [1, 1.0], "normal: 100 % left on 2,048 ranks"),
    ],
)
def test_stragglers_show_the_slowest_rank_and_the_efficiency(
    canvas_words, panel_lines, ranks, formula, simulated, left
):
    def draw():
        return figures_4b.stragglers(ranks, {"normal": (formula, simulated)}, "drawn")

    assert left in canvas_words(draw)
    slowest, efficiency = panel_lines(draw)
    assert slowest == (ranks, formula)
    assert efficiency == (ranks, pytest.approx(100 / np.array(formula)))


def test_a_breakdown_stacks_the_parts_of_each_layer_and_of_each_step():
    layers = pd.DataFrame({"forward": [0.1, 0.2], "backward": [0.2, 0.4], "all-reduce": [0.0, 0.3]}, index=["a", "b"])
    steps = pd.DataFrame({"forward": [0.3, 0.1], "backward": [0.6, 0.2], "waiting": [0.0, 0.5]}, index=[8, 64])
    by_layer, by_ranks = figures_4b.breakdown(layers, steps, "on 64 ranks").axes
    assert [round(bar.get_x() + bar.get_width()) for bar in by_layer.containers[-1]] == [300, 900]
    assert [round(bar.get_y() + bar.get_height()) for bar in by_ranks.containers[-1]] == [900, 800]
    assert [text.get_text() for text in by_ranks.texts] == ["900", "800"]
    assert [text.get_text() for text in by_layer.get_yticklabels()] == ["a", "b"]
