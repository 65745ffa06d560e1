"""Notebook 1b: the solutions are right, plausible mistakes are told apart, and the variance law holds."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from course_lib import data
from course_lib.assess.exercises import stochastic, update_rules
from course_lib.plots.stochastic import slope

NOTEBOOK = "1b_stochastic_gradient_descent"
RULES = ("momentum", "nesterov", "adagrad", "rmsprop", "adam")

# exercise, edits of its solution, what the reason says
MISTAKES = [
    (
        "minibatches",
        [(".permutation(examples)", ".integers(0, examples, examples)")],
        "without replacement",
    ),
    ("minibatches", [("[seed, epoch]", "seed")], "reshuffle in every epoch"),
    ("minibatches", [("[seed, epoch]", "epoch")], "`seed` into"),
    ("minibatches", [("[seed, epoch]", "seed + epoch")], "not with their sum"),
    ("minibatches", [("[seed, epoch]", "")], "seed its random generator"),
    (
        "minibatches",
        [("np.random.default_rng([seed, epoch]).permutation(examples)", "np.arange(examples)")],
        "stored order",
    ),
    ("minibatches", [("range(0, examples,", "range(0, examples - batch_size + 1,")], "are lost"),
    (
        "minibatches",
        [
            (
                "[order[i : i + batch_size] for i in range(0, examples, batch_size)]",
                "np.array_split(order, -(-examples // batch_size))",
            )
        ],
        "not [3, 3, 3, 1]",
    ),
    ("minibatches", [("return [", "[")], "returns nothing"),
    ("sgd_epoch", [("eta * gradient", "eta * eta * gradient")], "η is applied twice"),
    ("sgd_epoch", [("w - eta", "w + eta")], "up the slope"),
    ("sgd_epoch", [("eta * gradient", "gradient")], "η is not applied"),
    (
        "sgd_epoch",
        [("gradient(w, x[batch], y[batch])", "gradient(w, x[batch], y[batch]) / len(batch)")],
        "mean already",
    ),
    ("sgd_epoch", [("y[batch]", "y[: len(batch)]")], "labels do not belong"),
    ("sgd_epoch", [("x[batch], y[batch]", "x, y")], "11 examples in batches of 4"),
    (
        "sgd_epoch",
        [
            ("        w = w -", "        start = w if 'start' not in dir() else start\n        w = w -"),
            ("gradient(w,", "gradient(start,"),
        ],
        "at the first weights",
    ),
    ("sgd_epoch", [("    return w", "        return w")], "11 examples in batches of 4"),
    (
        "sgd_epoch",
        [("w = w - eta * gradient(w, x[batch], y[batch])", "w -= eta * gradient(w, x[batch], y[batch])")],
        "in place",
    ),
    ("sgd_epoch", [("batch_size, epoch, seed)", "batch_size, 0, seed)")], "hand `epoch` on"),
    ("sgd_epoch", [("batch_size, epoch, seed)", "batch_size, epoch)")], "hand `seed` on"),
    ("momentum", [("if state is None else state", "")], "starts anew in each step"),
    ("momentum", [("return w + v, v", "return w - v, v")], "up the slope"),
    ("momentum", [("return w + v, v", "return w + eta * v, v")], "η is applied twice"),
    ("momentum", [("- eta * g", "- (1 - beta) * eta * g")], "factor 1 − β"),
    ("momentum", [("return w + v, v", "return w + beta * v - eta * g, v")], "Nesterov's rule"),
    ("momentum", [("return w + v, v", "return w + v")], "return two things"),
    ("momentum", [("return w + v, v", "w += v\n    return w, v")], "in place"),
    (
        "momentum",
        [
            ("v = 0.0 if state is None else state", "v = np.zeros_like(w) if state is None else state"),
            ("v = beta * v - eta * g", "v *= beta\n    v -= eta * g"),
        ],
        "state is changed in place",
    ),
    ("nesterov", [("return w + beta * v - eta * g, v", "return w + v, v")], "plain momentum"),
    ("nesterov", [("return w + beta * v - eta * g, v", "return w + v - eta * g, v")], "look ahead by β v"),
    ("nesterov", [("if state is None else state", "")], "starts anew in each step"),
    ("adagrad", [("np.sqrt(total + epsilon)", "(total + epsilon)")], "root is missing"),
    ("adagrad", [("np.full_like(w, 0.1)", "0.0")], "starts it at 0.1"),
    ("adagrad", [("total = total + g**2", "total = 0.9 * total + 0.1 * g**2")], "RMSprop"),
    ("adagrad", [("total = total + g**2", "total = total + abs(g)")], "not their squares"),
    ("adagrad", [("g**2", "np.sum(g**2)")], "one sum for each weight"),
    ("rmsprop", [("(1 - rho) * g**2", "g**2")], "weight 1 − ρ"),
    ("rmsprop", [("rho * (", "1 * ("), ("(1 - rho) * g**2", "g**2")], "Adagrad"),
    ("rmsprop", [("np.sqrt(mean + epsilon)", "(np.sqrt(mean) + epsilon)")], "ε stands outside the root"),
    ("rmsprop", [("rho * (", "(1 - rho) * ("), ("+ (1 - rho) * g**2", "+ rho * g**2")], "swapped"),
    ("rmsprop", [("0.0 if state is None else state", "0.0")], "starts anew"),
    ("adam", [("eta * np.sqrt(1 - beta2**t) / (1 - beta1**t)", "eta")], "bias correction is forgotten"),
    ("adam", [("np.sqrt(1 - beta2**t)", "1")], "bias correction of v"),
    ("adam", [(" / (1 - beta1**t)", "")], "bias correction of m"),
    ("adam", [("t += 1", "t = 1")], "t stays 1"),
    ("adam", [("state or (0.0, 0.0, 0)", "(0.0, 0.0, 0)")], "start anew in each step"),
    ("adam", [("* g**2", "* g")], "not finite"),
    ("adam", [("np.sqrt(v) + epsilon", "v + epsilon")], "root is missing"),
    ("adam", [("(np.sqrt(v) + epsilon)", "np.sqrt(v + epsilon * (1 - beta2**t))")], "inside the root"),
    ("adam", [("(np.sqrt(v) + epsilon)", "(np.sqrt(v) + epsilon * np.sqrt(1 - beta2**t))")], "Algorithm 1"),
]


@pytest.fixture
def solve(answer):
    """As `answer`, with the notebook's own `minibatches` where an exercise needs it."""

    def make(exercise, *edits):
        function = answer(NOTEBOOK, exercise, *edits)
        function.__globals__.setdefault("minibatches", answer(NOTEBOOK, "minibatches"))
        return function

    return make


@pytest.mark.slow
@pytest.mark.parametrize("exercise", ["minibatches", "sgd_epoch", *RULES])
def test_the_solution_gets_full_points(solve, exercise, capsys):
    assert stochastic.points(solve(exercise), 2) == 2.0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "edits", "reason"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_costs_points_and_is_named(solve, exercise, edits, reason, capsys):
    assert stochastic.points(solve(exercise, *edits), 2) < 2
    assert reason in capsys.readouterr().out


@pytest.mark.slow
def test_a_rule_that_puts_epsilon_elsewhere_keeps_most_of_its_points(solve):
    rule = solve("rmsprop", ("np.sqrt(mean + epsilon)", "(np.sqrt(mean) + epsilon)"))
    assert stochastic.points(rule, 2) == pytest.approx(1.4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgd", *RULES])
@pytest.mark.parametrize("small", [False, True])
def test_the_rules_equal_keras_over_50_steps(solve, name, small):
    rule = (lambda w, g, state, eta: (w - eta * g, state)) if name == "sgd" else solve(name)
    assert np.abs(update_rules.walk(rule, small) - update_rules.keras_path(name, small)).max() < 1e-6


def given(answer, *names):
    """Functions that the notebook gives: the cells that define them, run with the solution's `minibatches`."""
    from course_lib.classroom import ROOT, parsing

    (path,) = ROOT.glob(f"labs/*/{NOTEBOOK}.py")
    space = dict(answer(NOTEBOOK, "minibatches").__globals__)
    for cell in parsing.read(path).cells:
        if cell.kind != "code":
            continue
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.FunctionDef):
                exec(ast.unparse(node), space)
    return [space[name] for name in names]


@pytest.mark.slow
def test_the_variance_of_the_gradient_falls_as_one_over_the_batch_size(answer, monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "6400")
    fashion = data.load("fashion_mnist")
    gradient, measured_variance, variance_of_one = given(answer, "gradient", "measured_variance", "variance_of_one")
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


def test_near_the_population_the_variance_has_its_correction(answer):
    gradient, measured_variance, variance_of_one = given(answer, "gradient", "measured_variance", "variance_of_one")
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(64, 5)), rng.integers(0, 10, 64), np.zeros((5, 10))
    centre = gradient(w, x, y)
    one = variance_of_one(x, y, w, centre)
    for m in (32, 48, 60):
        measured = measured_variance(x, y, w, centre, m, seed=0, draws=1500)
        assert measured == pytest.approx(one / m * (64 - m) / 63, rel=0.1)
    assert measured_variance(x, y, w, centre, 64, seed=0, draws=2) < 1e-20
