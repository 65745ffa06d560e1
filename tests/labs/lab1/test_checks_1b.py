"""Notebook 1b: the solutions are right, plausible mistakes are told apart, and the variance law holds."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from course_lib import data
from labs.lab1_gradient_descent.lessons import checks_1b
from labs.lab1_gradient_descent.lessons.figures_1b import slope

NOTEBOOK = "1b_stochastic_gradient_descent"
RULES = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam")

SHUFFLE = "np.random.default_rng([seed, epoch]).permutation(examples)"
BATCHES = "[order[i : i + batch_size] for i in range(0, examples, batch_size)]"
GRADIENT = "gradient(w, x[batch], y[batch])"
STEP = f"eta * {GRADIENT}"
DRAW = "minibatches(len(x), batch_size, epoch, seed)"
MEAN = "rho * (0.0 if state is None else state) + (1 - rho) * g**2"
CORRECTION = "eta * np.sqrt(1 - beta2**t) / (1 - beta1**t)"

# exercise, edits of its solution, what the reason says
MISTAKES = [
    (
        "minibatches",
        [(SHUFFLE, "np.random.default_rng([seed, epoch]).integers(0, examples, examples)")],
        "without replacement",
    ),
    ("minibatches", [("[seed, epoch]", "seed")], "reshuffle in every epoch"),
    ("minibatches", [("[seed, epoch]", "epoch")], "`seed` into"),
    ("minibatches", [("[seed, epoch]", "seed + epoch")], "not with their sum"),
    ("minibatches", [("[seed, epoch]", "None")], "seed its random generator"),
    ("minibatches", [(SHUFFLE, "np.arange(examples)")], "stored order"),
    (
        "minibatches",
        [("range(0, examples, batch_size)", "range(0, examples - batch_size + 1, batch_size)")],
        "are lost",
    ),
    ("minibatches", [(BATCHES, "np.array_split(order, -(-examples // batch_size))")], "be [3, 3, 3, 1]"),
    ("minibatches", [(SHUFFLE, f"1 + {SHUFFLE}")], "holds example 12"),
    ("minibatches", [(SHUFFLE, f"{SHUFFLE}[2:]")], "2 examples are in no batch"),
    ("minibatches", [(SHUFFLE, f"{SHUFFLE}.astype(float)")], "batch 0 is float64"),
    ("minibatches", [(f"return {BATCHES}", BATCHES)], "returns nothing"),
    ("sgd_epoch", [(STEP, f"eta * {STEP}")], "η is applied twice"),
    ("sgd_epoch", [(f"w = w - {STEP}", f"w = w + {STEP}")], "up the slope"),
    ("sgd_epoch", [(STEP, GRADIENT)], "η is not applied"),
    ("sgd_epoch", [(STEP, f"1.5 * {STEP}")], "should be 0.01; it is 0.015"),
    ("sgd_epoch", [(GRADIENT, f"{GRADIENT} / len(batch)")], "mean already"),
    ("sgd_epoch", [(GRADIENT, f"np.sign({GRADIENT})")], "does not go along the gradient"),
    ("sgd_epoch", [("y[batch]", "y[: len(batch)]")], "labels do not belong"),
    ("sgd_epoch", [(GRADIENT, "gradient(w, x, y)")], "11 examples in batches of 4"),
    (
        "sgd_epoch",
        [(f"w = w - {STEP}", f"start = locals().get('start', w)\nw = w - {STEP}"),
         (GRADIENT, "gradient(start, x[batch], y[batch])")],
        "at the first weights",
    ),
    ("sgd_epoch", [(f"w = w - {STEP}", f"w = w - {STEP}\nreturn w")], "11 examples in batches of 4"),
    ("sgd_epoch", [(f"w = w - {STEP}", f"w -= {STEP}")], "in place"),
    ("sgd_epoch", [(DRAW, DRAW.replace("epoch", "0"))], "hand `epoch` on"),
    ("sgd_epoch", [(DRAW, DRAW.replace(", seed", ""))], "hand `seed` on"),
    ("momentum", [("0.0 if state is None else state", "0.0")], "starts anew in each step"),
    ("momentum", [("return w + v, v", "return w - v, v")], "up the slope"),
    ("momentum", [("return w + v, v", "return w + eta * v, v")], "η is applied twice"),
    ("momentum", [("beta * v - eta * g", "beta * v - g")], "η is not applied"),
    ("momentum", [("eta * g", "(1 - beta) * eta * g")], "factor 1 − β"),
    ("momentum", [("return w + v, v", "return w + beta * v - eta * g, v")], "Nesterov's rule"),
    ("momentum", [("return w + v, v", "return w + v")], "return two things"),
    ("momentum", [("return w + v, v", "return np.sum(w + v), v")], "as the new weights it returns shape ()"),
    ("momentum", [("return w + v, v", "return w + 2 * v, v")], "the change of w should be"),
    ("momentum", [("return w + v, v", "w += v\nreturn w, v")], "in place"),
    (
        "momentum",
        [
            ("0.0 if state is None else state", "np.zeros_like(w) if state is None else state"),
            ("v = beta * v - eta * g", "v *= beta\nv -= eta * g"),
        ],
        "state is changed in place",
    ),
    ("nesterov", [("return w + beta * v - eta * g, v", "return w + v, v")], "plain momentum"),
    ("nesterov", [("return w + beta * v - eta * g, v", "return w + v - eta * g, v")], "look ahead by β v"),
    ("nesterov", [("0.0 if state is None else state", "0.0")], "starts anew in each step"),
    ("adagrad", [("np.sqrt(total + epsilon)", "(total + epsilon)")], "root is missing"),
    ("adagrad", [("np.full_like(w, 0.1)", "0.0")], "starts it at 0.1"),
    ("adagrad", [("total + g**2", "0.9 * total + 0.1 * g**2")], "RMSprop"),
    ("adagrad", [("g**2", "abs(g)")], "not their squares"),
    ("adagrad", [("g**2", "np.sum(g**2)")], "one sum for each weight"),
    (
        "adagrad",
        [("return w - eta * g / np.sqrt(total + epsilon), total",
          "return w - eta * g / np.sqrt(total - g**2 + epsilon), total")],
        "the sum of the step before",
    ),
    ("rmsprop", [(MEAN, MEAN.replace("(1 - rho)", "1"))], "weight 1 − ρ"),
    ("rmsprop", [(MEAN, "(0.0 if state is None else state) + g**2")], "Adagrad"),
    ("rmsprop", [("np.sqrt(mean + epsilon)", "(np.sqrt(mean) + epsilon)")], "ε stands outside the root"),
    ("rmsprop", [(MEAN, "(1 - rho) * (0.0 if state is None else state) + rho * g**2")], "swapped"),
    ("rmsprop", [("0.0 if state is None else state", "0.0")], "starts anew"),
    ("adam", [(CORRECTION, "eta")], "bias correction is forgotten"),
    ("adam", [("np.sqrt(1 - beta2**t)", "1")], "bias correction of v"),
    ("adam", [(CORRECTION, "eta * np.sqrt(1 - beta2**t)")], "bias correction of m"),
    ("adam", [("t += 1", "t = 1")], "t stays 1"),
    ("adam", [("state or (0.0, 0.0, 0)", "(0.0, 0.0, 0)")], "start anew in each step"),
    ("adam", [("g**2", "g")], "not finite"),
    ("adam", [("g**2", "abs(g)")], "not their squares"),
    ("adam", [("np.sqrt(v)", "v")], "root is missing"),
    ("adam", [("(np.sqrt(v) + epsilon)", "np.sqrt(v + epsilon * (1 - beta2**t))")], "inside the root"),
    ("adam", [("(np.sqrt(v) + epsilon)", "(np.sqrt(v) + epsilon * np.sqrt(1 - beta2**t))")], "Algorithm 1"),
]  # fmt: skip


@pytest.fixture
def solve(answer):
    """As `answer`, with the notebook's own `minibatches` where an exercise needs it."""

    def make(exercise, *edits):
        if exercise == "sgd":
            return given(answer, "sgd")[0]
        function = answer(NOTEBOOK, exercise, *edits)
        function.__globals__.setdefault("minibatches", answer(NOTEBOOK, "minibatches"))
        return function

    return make


@pytest.mark.slow
@pytest.mark.parametrize("exercise", ["minibatches", "sgd_epoch", *RULES])
def test_the_solution_gets_full_points(solve, exercise, capsys):
    assert checks_1b.points(solve(exercise), 2) == 2.0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "edits", "reason"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_costs_points_and_is_named(solve, exercise, edits, reason, capsys):
    assert checks_1b.points(solve(exercise, *edits), 2) < 2
    assert reason in capsys.readouterr().out


@pytest.mark.slow
def test_a_rule_that_puts_epsilon_elsewhere_keeps_most_of_its_points(solve):
    rule = solve("rmsprop", ("np.sqrt(mean + epsilon)", "(np.sqrt(mean) + epsilon)"))
    assert checks_1b.points(rule, 2) == pytest.approx(1.4)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", ["minibatches", "sgd_epoch", *RULES])
def test_no_function_of_the_checks_is_an_answer(exercise):
    for function in [value for value in vars(checks_1b).values() if callable(value)]:

        def answer(*arguments, function=function, **settings):
            return function(*arguments, **settings)

        answer.__name__ = exercise
        assert checks_1b.points(answer, 2) < 1, function


def given(answer, *names):
    """Functions that the notebook gives: the cells that define them, run with the solution's `minibatches`."""
    from course_lib.command.classroom import master_format
    from course_lib.system.paths import ROOT

    (path,) = ROOT.glob(f"labs/*/{NOTEBOOK}.py")
    space = dict(answer(NOTEBOOK, "minibatches").__globals__)
    for cell in master_format.read(path).cells:
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
