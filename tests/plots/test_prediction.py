"""The figures of notebook 4c: they draw, and show what they are given."""

from __future__ import annotations

import numpy as np

from course_lib.plots import prediction


def words(figure):
    return {text.get_text() for axis in figure.axes for text in axis.texts}


def test_the_range_in_which_both_agree_is_shaded():
    seconds = np.linspace(0.01, 0.3, 30)
    figure = prediction.hidden(seconds, {64: 1 - seconds, 32: 1 - 2 * seconds}, {64: 0.9, 32: 0.8}, 0.03)
    (shade,) = figure.axes[0].collections
    assert len(shade.get_paths()) == 1
    assert "published: 90.0 %" in words(figure)
    assert figure.png()


def test_a_panel_for_each_number_of_images_and_a_cross_for_each_guess():
    lines = {"ring": [1, 0.5], "hybrid": [1, 0.9]}
    figure = prediction.efficiencies(
        [1, 1024], {64: lines, 32: lines}, {64: 0.9, 32: 0.8}, {"ring": 40, "hybrid": None}
    )
    left, right = figure.axes
    assert [line.get_marker() for line in left.lines].count("x") == 1
    assert [line.get_marker() for line in right.lines].count("x") == 0
    assert figure.png()


def test_a_region_for_each_published_figure():
    grid = np.linspace(0, 3, 12).reshape(3, 4)
    figure = prediction.agreement(np.geomspace(1e-6, 1e-5, 4), np.geomspace(1e5, 1e6, 3), {"one": grid}, (2e-6, 3e5))
    (mesh,) = figure.axes[0].collections
    assert mesh.get_array().count() == (grid <= 1).sum()
    assert figure.png()


def test_the_widest_bar_is_on_top():
    rows = [("wide", {64: (0.5, 1.0)}), ("narrow", {64: (0.8, 0.9)})]
    figure = prediction.tornado(rows, {64: 0.85}, {64: 0.9})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["narrow", "wide"]
    assert figure.png()


def test_roofline_draws_filled_and_hollow_marks():
    points = [("net", 1000.0, {"mixed": 4e12, "single": 3e12})]
    figure = prediction.roofline(points, {"mixed": 5e12, "single": 4e12}, 12e12, 1e10)
    assert "ridge: 500 FLOP/byte" in words(figure)
    assert figure.png()


def test_a_line_that_is_an_input_says_so():
    figure = prediction.tables([("a", None), ("b", -0.337)], 0.1)
    assert {"input", "−33.7 %"} <= words(figure)
    assert figure.png()


def test_honest_and_minute_draw():
    ranks = [1, 8, 64]
    assert prediction.honest(ranks, {"ring": [1.0, 6, 20]}, [1.0, 8, 64]).png()
    gpus = np.array([64, 1024, 65536])
    assert prediction.minute(gpus, gpus * 0 + 1e9, 1e6 / gpus, (1024, 3.0), ["now", "more"], "caption").png()
