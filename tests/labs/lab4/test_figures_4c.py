"""The figures of notebook 4c: they show what they are given."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab4_communication.lessons import figures_4c


def words(figure):
    return {text.get_text() for axis in figure.axes for text in axis.texts}


def test_the_range_in_which_both_agree_is_shaded():
    seconds = np.linspace(0.01, 0.3, 30)
    figure = figures_4c.hidden(seconds, {64: 1 - seconds, 32: 1 - 2 * seconds}, {64: 0.9, 32: 0.8}, 0.03)
    (shade,) = figure.axes[0].collections
    assert len(shade.get_paths()) == 1
    assert "published: 90.0 %" in words(figure)


def test_a_panel_for_each_number_of_images_and_a_star_for_what_was_published():
    lines = {"ring": [1, 0.5], "hybrid": [1, 0.9]}
    figure = figures_4c.efficiencies([1, 1024], {64: lines, 32: lines}, {64: 0.9, 32: 0.8})
    for axis, published in zip(figure.axes, (90, 80)):
        (star,) = [line for line in axis.lines if line.get_marker() == "*"]
        assert star.get_ydata()[0] == pytest.approx(published)


def test_a_region_for_each_published_figure():
    grid = np.linspace(0, 3, 12).reshape(3, 4)
    figure = figures_4c.agreement(np.geomspace(1e-6, 1e-5, 4), np.geomspace(1e5, 1e6, 3), {"one": grid}, (2e-6, 3e5))
    (mesh,) = figure.axes[0].collections
    assert mesh.get_array().count() == (grid <= 1).sum()


def test_the_widest_bar_is_on_top():
    rows = [("wide", {64: (0.5, 1.0)}), ("narrow", {64: (0.8, 0.9)})]
    figure = figures_4c.tornado(rows, {64: 0.85}, {64: 0.9})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["narrow", "wide"]


def test_roofline_draws_filled_and_hollow_marks():
    points = [("net", 1000.0, {"mixed": 4e12, "single": 3e12})]
    figure = figures_4c.roofline(points, {"mixed": 5e12, "single": 4e12}, 12e12, 1e10)
    assert "ridge: 500 FLOP/byte" in words(figure)
    filled, hollow = (line for line in figure.axes[0].lines if line.get_linestyle() == "None")
    assert (filled.get_ydata()[0], hollow.get_ydata()[0]) == (4, 3)
    assert filled.get_markerfacecolor() != hollow.get_markerfacecolor() == figures_4c.PAPER


def test_a_line_that_is_an_input_says_so():
    figure = figures_4c.tables([("a", None), ("b", -0.337)], 0.1)
    assert {"input", "−33.7 %"} <= words(figure)


def test_the_same_throughputs_on_linear_and_on_log_axes():
    figure = figures_4c.honest([1, 8, 64], {"ring": [1.0, 6, 20]}, [1.0, 8, 64])
    assert [(axis.get_xscale(), axis.get_yscale()) for axis in figure.axes] == [("linear", "linear"), ("log", "log")]
    for axis in figure.axes:
        ideal, ring = axis.lines
        assert list(ideal.get_ydata()) == [0.001, 0.008, 0.064]
        assert list(ring.get_ydata()) == [0.001, 0.006, 0.02]


def test_times_beyond_the_axis_are_drawn_at_its_ends(canvas_words, panel_lines):
    gpus = np.array([64, 1024, 65536])

    def draw():
        return figures_4c.minute(gpus, gpus * 0 + 1e9, 1e6 / gpus, (1024, 3.0), ["now", "more"], "caption")

    assert {"now", "more", "caption", "1 min", "1,024"} <= set(canvas_words(draw))
    a_minute, perfect, predicted = panel_lines(draw)
    assert a_minute[1] == [60, 60]
    assert perfect[1] == pytest.approx([15625, 976.5625, 15.26], rel=1e-3)
    assert predicted[1] == [36_000] * 3


def test_the_log_axes_alone_show_what_the_right_panel_shows():
    curves, ideal = {"ring": [1.0, 6, 20]}, [1.0, 8, 64]
    (alone,) = figures_4c.log_axes([1, 8, 64], curves, ideal).axes
    right = figures_4c.honest([1, 8, 64], curves, ideal).axes[1]
    assert [list(line.get_ydata()) for line in alone.lines] == [list(line.get_ydata()) for line in right.lines]
    assert (alone.get_xscale(), alone.get_yscale()) == ("log", "log")


def test_accuracy_stands_beside_time_for_each_network():
    lines = [("A, 8", "ResNet-50", 1740, 75.3), ("B, 256", "ResNet-50", 60, 76.3), ("C, 512", "AlexNet", 5, 58.8)]
    first, second = figures_4c.accuracy_and_time(lines).axes
    assert [axis.get_title(loc="left") for axis in (first, second)] == ["ResNet-50", "AlexNet"]
    assert {text.get_text() for text in first.texts} == {"A, 8", "B, 256"}
    assert sorted(line.get_ydata()[0] for line in first.lines) == [75.3, 76.3]
