"""Notebook 1b: other right answers, the race of the rules, and the law of the variance."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from course_lib import data
from labs.lab1_gradient_descent.lessons import checks_1b
from labs.lab1_gradient_descent.lessons.figures_1b import slope
from tests.labs import notebooks

RACE = {
    "ravine": {"sgd": 82, "momentum": 16, "nesterov": 20, "adagrad": 4, "rmsprop": 92, "adam": 13},
    "turned ravine": {"sgd": 82, "momentum": 16, "nesterov": 20, "adagrad": 98, "rmsprop": 121, "adam": 23},
    "saddle": {"sgd": 48, "momentum": 25, "nesterov": 29, "adagrad": 6, "rmsprop": 31, "adam": 9},
}


def given(*names):
    """What the notebook itself defines: the functions of its code cells, and all of the race's."""
    space = dict(notebooks.solved("1b"))
    for cell in notebooks.master("1b").cells:
        if cell.kind != "code":
            continue
        race = "surfaces = {" in cell.source or "def ravine" in cell.source
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.FunctionDef) or (race and isinstance(node, ast.Assign)):
                exec(ast.unparse(node), space)
    return [space[name] for name in names]


def test_what_the_notebook_gives_as_sgd_is_right():
    assert checks_1b.points(*given("sgd"), 2) == 2.0


def test_the_race_is_as_the_text_says():
    """Steps of the tuned rules, of those with their usual decay, and until each leaves the saddle."""
    names = ("racers", "steps_needed", "steps_to_leave")
    racers, needed, leave = given(*names)
    steps = {surface: {rule: needed(path, surface) for rule, (_, path) in racers(surface).items()} for surface in RACE}
    assert steps == RACE
    usual = {rule: needed(path, "ravine") for rule, (_, path) in racers("ravine", tuned=False).items()}
    assert (usual["momentum"], usual["nesterov"]) == (58, 39)
    leaving = {rule: leave(path) for rule, (_, path) in racers("saddle").items()}
    assert leaving == {"sgd": 39, "momentum": 17, "nesterov": 21, "adagrad": 3, "rmsprop": 14, "adam": 3}


def test_another_decay_would_make_rmsprop_second_to_none():
    names = ("walk", "rmsprop", "steps_needed", "surfaces", "rates", "steps")
    walk, rmsprop, needed, surfaces, rates, steps = given(*names)
    best = {}
    for surface in ("ravine", "saddle"):
        _, slope, start, _, _ = surfaces[surface]
        walks = (walk(rmsprop, slope, start, eta, steps, rho=0.98) for eta in rates)
        best[surface] = min(needed(path, surface) for path in walks)
    assert best == {"ravine": 4, "saddle": 4} and "RMSprop would take 4 steps to each" in notebooks.text("1b")
    assert all(min(RACE[surface].values()) >= number for surface, number in best.items())


@pytest.mark.slow
def test_the_bound_at_the_start_of_the_recorded_softmax_regression():
    fashion = data.load("fashion_mnist")
    if fashion.name == "shapes":
        pytest.skip("the text has the bound of Fashion-MNIST")
    x = fashion.x_train.reshape(len(fashion.x_train), -1) / np.float32(255)
    x = np.column_stack([x[:4096] - x.mean(axis=0), np.ones(4096)])
    curvature = 0.1 * np.linalg.eigvalsh(x.T @ x / len(x))[-1]  # at w = 0 all ten classes are equally likely
    assert f"at the start is {2 / curvature:.2f}." in notebooks.text("1b")


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


@pytest.mark.parametrize(("low", "high", "budget"), checks_1b.RAVINES)
def test_the_table_of_budgets_says_what_others_need(low, high, budget):
    """Gradient descent, and β = 0.9, each with the best of its learning rates."""
    needed = checks_1b._steps_in_a_ravine
    plain = needed(2 / (low + high), 0.0, (low, high), 5_000)
    rates = 4 / (high**0.5 + low**0.5) ** 2 * 2.0 ** np.arange(-4, 1.6, 0.125)
    usual = min(steps for eta in rates if (steps := needed(eta, 0.9, (low, high), 400)))
    text = notebooks.text("1b")
    assert f"| {round(high / low):,} | {plain:,} | {usual:,} | {budget} |" in text


def test_the_last_ravine_has_a_faster_pair():
    low, high, _ = checks_1b.RAVINES[-1]
    needed = [checks_1b._steps_in_a_ravine(x / high, 0.86, (low, high), 400) for x in np.arange(2.0, 3.7, 0.05)]
    assert f"0.86 needs only {min(filter(None, needed))} steps" in notebooks.text("1b")
