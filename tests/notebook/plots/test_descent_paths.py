"""Paths of update rules over the loss of two weights."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from course_lib.notebook.plots import descent_paths

START = [1.0, 0.5]


def bowl(w):
    return w[0] ** 2 + 10 * w[1] ** 2


@pytest.fixture(scope="module")
def scene():
    return descent_paths.ground(bowl, (-2, 2), (-1, 1), points=50)


def test_importing_loads_neither_tensorflow_nor_pyplot():
    module = "course_lib.notebook.plots.descent_paths"
    code = f"import sys, {module}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_low_ground_is_dark(scene):
    brightness = scene.bands[..., :3].sum(axis=-1)
    assert brightness[25, 25] == brightness.min()
    assert brightness[0, 0] == brightness.max()


def test_a_path_is_drawn_whole_and_the_limits_stay_those_of_the_ground(scene):
    figure = descent_paths.path(scene, {"rule": np.array([START, [0.5, 0.2], [9.0, 9.0]])}, bowl)
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[0].get_xydata(), [START, [0.5, 0.2], [9.0, 9.0]])
    np.testing.assert_allclose(right.lines[0].get_ydata(), [3.5, 0.65, 891])
    assert (left.get_xlim(), left.get_ylim()) == ((-2, 2), (-1, 1))


def test_a_race_shows_each_rule_up_to_the_step(scene):
    walked = np.linspace(START, [0, 0], 11)
    figure = descent_paths.race(scene, {"fast": walked[::2], "slow": walked}, bowl, step=7, lowest=-1, caption="here")
    assert [len(line.get_xdata()) for line in figure.axes[1].lines] == [6, 8]
    assert figure.axes[1].lines[0].get_ydata()[-1] == 1  # above the lowest
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fast", "slow"]
    assert "here" in [text.get_text() for text in figure.texts]


def test_a_rule_that_diverges_leaves_the_scale_to_the_start(scene):
    walked = np.array([START, [1e200, 1.0], [np.inf, np.nan]])
    figure = descent_paths.race(scene, {"bad": walked}, bowl, step=2)
    assert figure.png()
    assert figure.axes[1].get_ylim() == pytest.approx((3.5e-6, 17.5))
