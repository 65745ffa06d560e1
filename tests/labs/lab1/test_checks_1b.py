"""Notebook 1b: the solutions are right, plausible mistakes are told apart, and the variance law holds."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from course_lib import data
from labs.lab1_gradient_descent.lessons import checks_1b
from labs.lab1_gradient_descent.lessons.figures_1b import slope

NOTEBOOK = "1b_stochastic_gradient_descent"
RULES = ("sgd", "momentum", "nesterov", "adam")

SHUFFLE = "np.random.default_rng([seed, epoch]).permutation(examples)"
BATCHES = "[order[i : i + batch_size] for i in range(0, examples, batch_size)]"
GRADIENT = "gradient(w, x[batch], y[batch])"
STEP = f"eta * {GRADIENT}"
DRAW = "minibatches(len(x), batch_size, epoch, seed)"
VELOCITY = "beta * (0.0 if state is None else state) - eta * g"
MOVED = "w - eta * m_hat / (np.sqrt(v_hat) + epsilon)"
AHEAD = "w + beta * v - eta * g"

RACE = {
    "ravine": {"sgd": 82, "momentum": 16, "nesterov": 20, "adagrad": 4, "rmsprop": 92, "adam": 13},
    "turned ravine": {"sgd": 82, "momentum": 16, "nesterov": 20, "adagrad": 98, "rmsprop": 121, "adam": 23},
    "saddle": {"sgd": 48, "momentum": 25, "nesterov": 29, "adagrad": 6, "rmsprop": 31, "adam": 9},
}

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
    (
        "minibatches",
        [(SHUFFLE, "np.arange(examples)"),
         (f"return {BATCHES}",
          f"cut = {BATCHES}\nplaces = np.random.default_rng([seed, epoch]).permutation(len(cut) - 1)\n"
          "return [cut[i] for i in places] + cut[-1:]")],
        "shuffle the examples",
    ),
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
    ("momentum", [("beta * v - eta * g", "beta * v + g"), ("return w + v, v", "return w - eta * v, v")],
     "that is PyTorch's form"),
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
    ("nesterov", [(AHEAD, "w + v")], "that is how θ moves"),
    ("nesterov", [(AHEAD, "w + v + beta * v")], "take that away again"),
    ("nesterov", [(AHEAD, "w + v - eta * g")], "look ahead by β u"),
    ("nesterov", [(AHEAD, "w + v - beta * (0.0 if state is None else state)")], "the point behind"),
    ("nesterov", [(AHEAD, "w + beta * v")], "θ itself moves, too, and"),
    ("nesterov", [(AHEAD, "w + beta * (v - (0.0 if state is None else state))")], "θ itself moves, too, by u"),
    ("nesterov", [(AHEAD, "w + beta * v + eta * g")], "η g is added"),
    ("nesterov", [("0.0 if state is None else state", "0.0")], "starts anew in each step"),
    ("nesterov", [(VELOCITY, VELOCITY.replace("- eta * g", "+ g")), (AHEAD, "w - eta * (beta * v + g)")],
     "that is PyTorch's form"),
    ("adam", [("m / (1 - beta1**t), v / (1 - beta2**t)", "m, v")], "bias correction is missing"),
    ("adam", [("v / (1 - beta2**t)", "v")], "bias correction of v"),
    ("adam", [("m / (1 - beta1**t)", "m")], "bias correction of m"),
    ("adam", [("t += 1", "t = 1")], "t stays 1"),
    ("adam", [("t += 1", "pass"), (f"return {MOVED}, (m, v, t)", f"return {MOVED}, (m, v, t + 1)")],
     "divides by 1 − β⁰ = 0"),
    ("adam", [("1 - beta1**t", "beta1**t"), ("1 - beta2**t", "beta2**t")], "βᵗ in place of 1 − βᵗ"),
    ("adam", [("m / (1 - beta1**t), v / (1 - beta2**t)", "m * (1 - beta1**t), v * (1 - beta2**t)")], "divide"),
    ("adam", [("state or (0.0, 0.0, 0)", "(0.0, 0.0, 0)")], "start anew in each step"),
    ("adam", [("g**2", "g")], "no number"),
    ("adam", [("g**2", "abs(g)")], "not their squares"),
    ("adam", [("np.sqrt(v_hat)", "v_hat")], "root is missing"),
    ("adam", [("g**2", "m**2")], "squares of m"),
    ("adam", [("t += 1", "t += 1; beta1, beta2 = beta2, beta1")], "are exchanged"),
    ("adam", [("m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)",
               "m, v = m / (1 - beta1**t), v / (1 - beta2**t)"),
              (MOVED, MOVED.replace("m_hat", "m").replace("v_hat", "v"))],
     "corrected again"),
    ("adam", [("1 - beta1**t", "1 - beta1"), ("1 - beta2**t", "1 - beta2")], "left out of βᵗ"),
    ("adam", [("(1 - beta1) * g", "g")], "enters m whole"),
    ("adam", [(MOVED, MOVED.replace("w -", "w +"))], "up the slope"),
    ("heavy_ball", [("root**2", "0.9")], "a smaller β would do"),
    ("heavy_ball", [("4 / (high + low) ** 2, root**2", "root**2, 4 / (high + low) ** 2")], "η comes first"),
    ("heavy_ball", [("root**2", "0.0")], "gradient descent"),
    ("heavy_ball", [("root**2", "root")], "square it"),
    ("heavy_ball", [("root**2", "0.5658")], "λ from 1 to 10"),
    ("heavy_ball", [("4 / (high + low) ** 2", "1 / steepest")], "along the floor it creeps"),
    ("heavy_ball", [("4 / (high + low) ** 2", "8 / (high + low) ** 2")], "above 2 (1 + β)"),
    ("heavy_ball", [("4 / (high + low) ** 2", "-1.0")], "should be above 0"),
    ("heavy_ball", [("4 / (high + low) ** 2, root**2", "root**2")], "2 values are expected: η, β"),
    ("heavy_ball", [("4 / (high + low) ** 2, root**2", "root**2, 4 * (high + low) ** 2")], "η comes first"),
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
@pytest.mark.parametrize("exercise", ["minibatches", "sgd_epoch", *RULES, "heavy_ball"])
def test_the_solution_gets_full_points(solve, exercise, capsys):
    assert checks_1b.points(solve(exercise), 2) == 2.0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "edits", "reason"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_costs_points_and_is_named(solve, exercise, edits, reason, capsys):
    assert checks_1b.points(solve(exercise, *edits), 2) < 2
    assert reason in capsys.readouterr().out


@pytest.mark.slow
def test_epsilon_may_stand_where_keras_has_it(solve):
    rule = solve("adam", ("np.sqrt(v_hat) + epsilon", "np.sqrt(v_hat) + epsilon / np.sqrt(1 - beta2**t)"))
    assert checks_1b.points(rule, 2) == 2.0


@pytest.mark.slow
def test_pytorchs_momentum_keeps_the_points_of_a_constant_rate(solve):
    edits = ("beta * v - eta * g", "beta * v + g"), ("return w + v, v", "return w - eta * v, v")
    assert checks_1b.points(solve("momentum", *edits), 2) == pytest.approx(1.4)


def test_the_race_is_as_the_text_says(answer):
    """Steps of the tuned rules, of those with their usual decay, and until each leaves the saddle."""
    names = ("racers", "steps_needed", "steps_to_leave")
    racers, needed, leave = given(answer, *names, solved=("momentum", "nesterov", "adam"), whole=True)
    steps = {surface: {rule: needed(path, surface) for rule, (_, path) in racers(surface).items()} for surface in RACE}
    assert steps == RACE
    usual = {rule: needed(path, "ravine") for rule, (_, path) in racers("ravine", tuned=False).items()}
    assert (usual["momentum"], usual["nesterov"]) == (58, 39)
    leaving = {rule: leave(path) for rule, (_, path) in racers("saddle").items()}
    assert leaving == {"sgd": 39, "momentum": 17, "nesterov": 21, "adagrad": 3, "rmsprop": 14, "adam": 3}


def test_another_decay_would_make_rmsprop_second_to_none(answer):
    names = ("walk", "rmsprop", "steps_needed", "surfaces", "rates", "steps")
    walk, rmsprop, needed, surfaces, rates, steps = given(
        answer, *names, solved=("momentum", "nesterov", "adam"), whole=True
    )
    best = {}
    for surface in ("ravine", "saddle"):
        _, slope, start, _, _ = surfaces[surface]
        walks = (walk(rmsprop, slope, start, eta, steps, rho=0.98) for eta in rates)
        best[surface] = min(needed(path, surface) for path in walks)
    assert best == {"ravine": 4, "saddle": 4} and "RMSprop would take 4 steps to each" in master(NOTEBOOK)
    assert all(min(RACE[surface].values()) >= number for surface, number in best.items())


@pytest.mark.slow
def test_the_bound_at_the_start_of_the_recorded_softmax_regression():
    fashion = data.load("fashion_mnist")
    if fashion.name == "shapes":
        pytest.skip("the text has the bound of Fashion-MNIST")
    x = fashion.x_train.reshape(len(fashion.x_train), -1) / np.float32(255)
    x = np.column_stack([x[:4096] - x.mean(axis=0), np.ones(4096)])
    curvature = 0.1 * np.linalg.eigvalsh(x.T @ x / len(x))[-1]  # at w = 0 all ten classes are equally likely
    assert f"at the start is {2 / curvature:.2f}." in " ".join(master(NOTEBOOK).replace("\n#", " ").split())


@pytest.mark.slow
@pytest.mark.parametrize("exercise", ["minibatches", "sgd_epoch", *RULES, "heavy_ball"])
def test_no_function_of_the_checks_is_an_answer(exercise):
    for function in [value for value in vars(checks_1b).values() if callable(value)]:

        def answer(*arguments, function=function, **settings):
            return function(*arguments, **settings)

        answer.__name__ = exercise
        assert checks_1b.points(answer, 2) < 1, function


def given(answer, *names, solved=(), whole=False):
    """Functions that the notebook gives: the cells that define them, run with solutions.

    Args:
        solved: exercises that they need, besides `minibatches`.
        whole: run the assignments of the race's cells, too.
    """
    from course_lib.authoring import master_format
    from course_lib.system.paths import ROOT

    (path,) = ROOT.glob(f"labs/*/{NOTEBOOK}.py")
    space = dict(answer(NOTEBOOK, "minibatches").__globals__)
    space.update({name: answer(NOTEBOOK, name) for name in solved})
    for cell in master_format.read(path).cells:
        if cell.kind != "code":
            continue
        racing = whole and ("surfaces = {" in cell.source or "def ravine" in cell.source)
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.FunctionDef) or (racing and isinstance(node, ast.Assign)):
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


@pytest.mark.parametrize(("low", "high", "budget"), checks_1b.RAVINES)
def test_the_table_of_budgets_says_what_others_need(low, high, budget):
    """Gradient descent, and β = 0.9, each with the best of its learning rates."""
    needed = checks_1b._steps_in_a_ravine
    plain = needed(2 / (low + high), 0.0, (low, high), 5_000)
    rates = 4 / (high**0.5 + low**0.5) ** 2 * 2.0 ** np.arange(-4, 1.6, 0.125)
    usual = min(steps for eta in rates if (steps := needed(eta, 0.9, (low, high), 400)))
    text = master(NOTEBOOK)
    assert f"| {round(high / low):,} | {plain:,} | {usual:,} | {budget} |" in text


def test_the_last_ravine_has_a_faster_pair():
    low, high, _ = checks_1b.RAVINES[-1]
    needed = [checks_1b._steps_in_a_ravine(x / high, 0.86, (low, high), 400) for x in np.arange(2.0, 3.7, 0.05)]
    assert f"0.86 needs only {min(filter(None, needed))} steps" in " ".join(master(NOTEBOOK).split())


def master(notebook):
    from course_lib.system.paths import ROOT

    return (ROOT / "labs" / "lab1_gradient_descent" / f"{notebook}.py").read_text(encoding="utf-8")
