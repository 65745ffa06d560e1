from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from labs.lab1_gradient_descent.lessons import figures_1b


def texts(figure):
    """What is written on a figure and over its axes."""
    return " ".join([text.get_text() for text in figure.texts] + [axis.get_title(loc="left") for axis in figure.axes])


def test_importing_loads_neither_tensorflow_nor_pyplot():
    module = "labs.lab1_gradient_descent.lessons.figures_1b"
    code = f"import sys, {module}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_batches_mark_what_is_drawn_twice():
    def twice(examples, size, epoch):
        return [np.array([0, 1]), np.array([1, 2])]

    figure = figures_1b.batches(twice, examples=4, batch_size=2, epochs=1)
    crosses = figure.axes[0].collections[2]
    assert crosses.get_offsets().tolist() == [[1, 0]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["batch 0", "batch 1"]
    assert "4 examples, batches of 2" in texts(figure)


def test_the_slope_is_that_of_the_logarithms():
    sizes = np.array([1, 2, 4, 8])
    assert figures_1b.slope(sizes, 3.0 / sizes) == pytest.approx(-1)
    assert figures_1b.slope(sizes, sizes**0.5) == pytest.approx(0.5)


def test_variance_tells_its_slope():
    sizes = np.array([1, 2, 4, 8])
    panel = {"title": "some", "population": 100, "sizes": sizes, "measured": [5 / sizes] * 3, "one": 5.0}
    figure = figures_1b.variance([{**panel, "fit": True}, panel])
    said = texts(figure)
    assert "some: N = 100 · slope −1.000" in said
    assert said.count("slope") == 1


def test_the_ball_has_its_predicted_radius():
    scene = figures_1b.ground(lambda w: w[0] ** 2 + w[1] ** 2, (-2, 2), (-1, 1), points=50)
    walked = np.random.default_rng(0).normal(size=(5000, 2))
    figure = figures_1b.ball(scene, walked, np.zeros(2), 0.25, title="here")
    assert "here" in texts(figure)
    assert figure.axes[0].patches[0].radius == 0.5
    assert len(figure.axes[0].lines[0].get_xdata()) <= 500


def test_ball_sizes_lie_over_the_quotient():
    table = pd.DataFrame({"eta": [0.1, 0.2], "batch_size": [1, 4], "squared_distance": [0.1, 0.05]})
    axis = figures_1b.ball_sizes(table, line=2.0).axes[0]
    theory, *measured = axis.lines
    np.testing.assert_allclose(theory.get_xydata(), [[0.05, 0.1], [0.1, 0.2]])
    np.testing.assert_allclose([line.get_xydata()[0] for line in measured], [[0.1, 0.1], [0.05, 0.05]])
    assert [line.get_label() for line in measured] == ["m = 1", "m = 4"]


def test_epochs_have_a_line_for_each_batch_size():
    figure = figures_1b.epochs({1: [2, 1], 1024: [2, 1.5]}, eta=0.01)
    assert "the same η = 0.01 for all" in texts(figure)
    assert {line.get_label(): line.get_ydata().tolist() for line in figure.axes[0].lines} == {
        "m = 1": [2, 1],
        "m = 1,024": [2, 1.5],
    }


def test_to_target_rings_the_winners():
    table = pd.DataFrame(
        {"batch_size": [1, 1, 8, 8], "steps": [80, 90, 10, 12], "examples": [80, 90, 80, 96], "seconds": [8, 9, 1, 2]}
    )
    figure = figures_1b.to_target(table, title="To a loss of 1")
    said = texts(figure)
    assert "steps to target · best m = 8" in said
    assert "examples to target · best m = 1" in said
    assert "To a loss of 1" in said
    rings = [line for axis in figure.axes for line in axis.lines if line.get_markersize() == 16]
    assert [(*ring.get_xdata(), *ring.get_ydata()) for ring in rings] == [(8, 11), (1, 85), (8, 1.5)]


def test_the_roof_has_its_numbers():
    table = pd.DataFrame(
        {
            "layer": ["a", "a", "b", "b"],
            "batch_size": [1, 64, 1, 64],
            "images_per_second": [1e3, 1e4, 1e5, 1e6],
            "intensity": [0.5, 30, 0.5, 5],
            "flops": [2e10, 2e11, 5e9, 1e11],
        }
    )
    left, right = figures_1b.roofline(table, 230e9, 50e9).axes
    assert [text.get_text() for text in right.texts] == ["peak 230 GFLOP/s", "memory 50 GB/s"]
    roof = next(line for line in right.lines if len(line.get_xdata()) == 3)
    np.testing.assert_allclose(roof.get_xydata()[1:], [[4.6, 230], [60, 230]])  # the ridge is at peak / bandwidth
    assert left.lines[0].get_ydata().tolist() == [1e3, 1e4]
