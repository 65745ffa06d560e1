"""Notebook 1b: the law of the variance, the noise that leaves a saddle, and the two forms of momentum."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from course_lib import data
from labs.lab1_gradient_descent.lessons.figures_1b import slope
from tests.labs import notebooks


def given(*names):
    """Functions that the notebook itself defines."""
    space = dict(notebooks.solved("1b"))
    for cell in notebooks.master("1b").cells:
        if cell.kind == "code":
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.FunctionDef):
                    exec(ast.unparse(node), space)
    return [space[name] for name in names]


@pytest.mark.slow
def test_the_variance_of_the_gradient_falls_as_one_over_the_batch_size(answer, monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "6400")
    fashion = data.load("fashion_mnist")
    gradient, measured_variance, variance_of_one = given("gradient", "measured_variance", "variance_of_one")
    x = fashion.x_train.reshape(len(fashion.x_train), -1)[:, ::4] / 255.0
    x = np.column_stack([x - x.mean(axis=0), np.ones(len(x))])
    y, w = fashion.y_train, np.zeros((x.shape[1], 10))
    centre = gradient(w, x, y)
    sizes = 2 ** np.arange(9)
    one = variance_of_one(x, y, w, centre)
    slopes = []
    for seed in range(5):
        measured = np.array([measured_variance(x, y, w, centre, m, seed) for m in sizes])
        expected = one / sizes * (len(x) - sizes) / (len(x) - 1)
        assert np.allclose(measured, expected, rtol=0.2)
        slopes.append(slope(sizes, measured))
    assert np.all(np.abs(np.array(slopes) + 1) < 0.05)


def test_near_the_population_the_variance_has_its_correction():
    gradient, measured_variance, variance_of_one = given("gradient", "measured_variance", "variance_of_one")
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(64, 5)), rng.integers(0, 10, 64), np.zeros((5, 10))
    centre = gradient(w, x, y)
    one = variance_of_one(x, y, w, centre)
    for m in (32, 48, 60):
        measured = measured_variance(x, y, w, centre, m, seed=0, draws=1500)
        assert measured == pytest.approx(one / m * (64 - m) / 63, rel=0.1)
    assert measured_variance(x, y, w, centre, 64, seed=0, draws=2) < 1e-20


def test_sixteen_times_the_batch_costs_some_steps_more_on_the_ridge():
    (steps,) = given("steps_off_the_ridge")
    needed = [steps(m) for m in (1, 16, 256, 4096)]
    assert all(abs(later - earlier - np.log(4) / np.log(1.1)) < 3 for earlier, later in zip(needed, needed[1:]))
    assert steps(np.inf) == np.inf
    assert "costs about 15 steps more" in notebooks.text("1b") and round(np.log(16) / np.log(1.1)) == 29


def test_after_a_fall_of_the_rate_the_forms_of_momentum_differ():
    as_in_pytorch, after_the_fall, momentum = given("as_in_pytorch", "step_after_the_fall", "momentum")
    assert after_the_fall(momentum) / after_the_fall(as_in_pytorch) == pytest.approx(9, abs=0.1)
