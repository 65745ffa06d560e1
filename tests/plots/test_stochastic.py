from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from course_lib.plots import Card, stochastic


def bowl(w):
    return w[0] ** 2 + 10 * w[1] ** 2


@pytest.fixture(scope="module")
def scene():
    return stochastic.ground(bowl, (-2, 2), (-1, 1), points=50)


def shown(figure):
    """The figure, drawn, with its texts."""
    assert isinstance(figure, Card)
    assert figure.png().startswith(b"\x89PNG")
    return " ".join([text.get_text() for text in figure.texts] + [axis.get_title(loc="left") for axis in figure.axes])


def test_importing_loads_neither_tensorflow_nor_pyplot():
    code = "import sys, course_lib.plots.stochastic; print({'tensorflow', 'matplotlib.pyplot'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_batches_mark_what_is_drawn_twice():
    def twice(examples, size, epoch):
        return [np.array([0, 1]), np.array([1, 2])]

    figure = stochastic.batches(twice, examples=4, batch_size=2, epochs=1)
    shown(figure)
    crosses = figure.axes[0].collections[2]
    assert crosses.get_offsets().tolist() == [[1, 0]]


def test_the_slope_is_that_of_the_logarithms():
    sizes = np.array([1, 2, 4, 8])
    assert stochastic.slope(sizes, 3.0 / sizes) == pytest.approx(-1)
    assert stochastic.slope(sizes, sizes**0.5) == pytest.approx(0.5)


def test_variance_tells_its_slope():
    sizes = np.array([1, 2, 4, 8])
    panel = {"title": "some", "population": 100, "sizes": sizes, "measured": [5 / sizes] * 3, "one": 5.0}
    figure = stochastic.variance([{**panel, "fit": True}, panel])
    texts = shown(figure)
    assert "some: N = 100 · slope −1.000" in texts
    assert texts.count("slope") == 1


def test_low_ground_is_dark_and_the_limits_stay(scene):
    brightness = scene.bands[..., :3].sum(axis=-1)
    assert brightness[25, 25] == brightness.min()
    assert brightness[0, 0] == brightness.max()
    figure = stochastic.path(scene, {"rule": np.array([[1, 0.5], [9.0, 9.0]])}, bowl)
    shown(figure)
    assert figure.axes[0].get_xlim() == (-2, 2)


def test_a_race_shows_each_rule_up_to_the_step(scene):
    walked = np.linspace([1, 0.5], [0, 0], 11)
    figure = stochastic.race(scene, {"fast": walked[::2], "slow": walked}, bowl, step=7)
    shown(figure)
    lengths = [len(line.get_xdata()) for line in figure.axes[1].lines]
    assert lengths == [6, 8]


def test_a_race_survives_a_rule_that_diverges(scene):
    shown(stochastic.race(scene, {"bad": np.array([[1.0, 1.0], [1e200, 1.0], [np.inf, np.nan]])}, bowl, step=2))


def test_the_ball_has_its_predicted_radius(scene):
    walked = np.random.default_rng(0).normal(size=(5000, 2))
    figure = stochastic.ball(scene, walked, np.zeros(2), 0.25, title="here")
    assert "here" in shown(figure)
    assert figure.axes[0].patches[0].radius == 0.5
    assert len(figure.axes[0].lines[0].get_xdata()) <= 500


def test_ball_sizes_and_epochs_draw():
    table = pd.DataFrame({"eta": [0.1, 0.2], "batch_size": [1, 4], "squared_distance": [0.1, 0.05]})
    shown(stochastic.ball_sizes(table, line=1.0))
    assert "η = 0.01" in shown(stochastic.epochs({1: [2, 1], 16: [2, 1.5]}, eta=0.01))


def test_to_target_rings_the_winners():
    table = pd.DataFrame(
        {"batch_size": [1, 1, 8, 8], "steps": [80, 90, 10, 12], "examples": [80, 90, 80, 96], "seconds": [8, 9, 1, 2]}
    )
    texts = shown(stochastic.to_target(table, guesses={"steps": 8, "examples": None}, title="To a loss of 1"))
    assert "steps to target · best m = 8" in texts
    assert "examples to target · best m = 1" in texts
    assert "To a loss of 1" in texts


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
    texts = [text.get_text() for text in stochastic.roofline(table, 230e9, 50e9).axes[1].texts]
    assert texts == ["peak 230 GFLOP/s", "memory 50 GB/s"]
