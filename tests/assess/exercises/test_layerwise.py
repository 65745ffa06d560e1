"""Notebook 3d: the solutions make the published values, and plausible mistakes are named."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from course_lib.assess.exercises.layerwise import GRADIENTS, W, check, points

# A warning goes to stderr, and nbgrader gives no points to a cell that writes there.
pytestmark = pytest.mark.filterwarnings("error")

NOTEBOOK = "3d_layer_wise_rates"

# After each of three steps, in float64: the values that the course's optimizers are tested against too.
PUBLISHED = {
    "lars": ({"b": 0.1}, (1, 0.5, 0.5), ((3.0016667, 3.9966667), (3.0015098, 3.9918038), (2.9999866, 3.9867392))),
    "larc": (
        {"b": 0.1, "tau": 0.02},
        (1, 0.5, 0.5),
        ((3.0333333, 3.9333333), (2.9820401, 3.8296131), (2.8813536, 3.7112136)),
    ),
    "lamb": (
        {"b": 0.1},
        (0.01, 0.01, 0.005),
        ((3.0223607, 3.9552786), (3.0177626, 3.9057131), (3.0119583, 3.8817266)),
    ),
    "novograd": (
        {"b": 0.1},
        (0.01, 0.01, 0.005),
        ((3.005, 3.99), (3.0017198, 3.9714848), (2.9981535, 3.9617191)),
    ),
}


@pytest.fixture
def solve(answer):
    """As `answer`, with the notebook's own `local_rate` where an exercise needs it."""

    def make(exercise, *edits):
        function = answer(NOTEBOOK, exercise, *edits)
        if exercise != "local_rate":
            function.__globals__.setdefault("local_rate", answer(NOTEBOOK, "local_rate"))
        return function

    return make


@pytest.mark.parametrize("exercise", ["local_rate", *PUBLISHED])
def test_the_solution_gets_full_points(solve, exercise, capsys):
    solution = solve(exercise)
    assert points(solution, 3) == 3.0
    assert all(verdict.passed for verdict in check(solution).verdicts)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("rule", PUBLISHED)
def test_the_solution_makes_the_published_values(solve, rule):
    settings, rates, after = PUBLISHED[rule]
    step, w, state = solve(rule), W, None
    for g, eta, expected in zip(GRADIENTS, rates, after):
        w, state = step(w, g, state, eta, **settings)
        np.testing.assert_allclose(w, expected, rtol=0, atol=1e-6)


BELOW = "np.linalg.norm(g) + b * np.linalg.norm(w)"
RATIO = "return above / below if above > 0 and below > 0 else 1.0"
SCALE = "lam, b = (1.0, 0.0) if skip else (local_rate(w, g, tau, b), b)"
CLIP = "lam, b = (eta, 0.0) if skip else (min(eta, local_rate(w, g, tau, b)), b)"
KEPT = "beta * (0.0 if state is None else state)"
ADAM = "m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + epsilon)"
MEAN = "v = beta2 * v + (1 - beta2) * squares"
COLLECT = "g / (np.sqrt(v) + epsilon) + b * w"

# exercise, edits of its solution, what the reason says
WRONG = {
    "norm of the sum": ("local_rate", [(BELOW, "np.linalg.norm(g + b * w)")], "norm of the sum"),
    "no trust coefficient": ("local_rate", [("tau * np", "np")], "τ is missing"),
    "decay forgotten": ("local_rate", [(" + b * np.linalg.norm(w)", "")], "b ‖w‖, is missing"),
    "decay without ‖w‖": ("local_rate", [("b * np.linalg.norm(w)", "b")], "should have b ‖w‖"),
    "upside down": ("local_rate", [("return above / below", "return tau**2 * below / above")], "upside down"),
    "squared": (
        "local_rate",
        [("np.linalg.norm(w)", "np.sum(w**2)"), ("np.linalg.norm(g)", "np.sum(g**2)")],
        "squared",
    ),
    "sum of absolute values": (
        "local_rate",
        [("np.linalg.norm(w)", "np.abs(w).sum()"), ("np.linalg.norm(g)", "np.abs(g).sum()")],
        "absolute values",
    ),
    "spectral norm": (
        "local_rate",
        [(f"np.linalg.norm({x})", f"np.linalg.norm({x}, 2 if {x}.ndim == 2 else None)") for x in "wg"],
        "spectral",
    ),
    "a norm for each column": (
        "local_rate",
        [("np.linalg.norm(w)", "np.linalg.norm(w, axis=0)"), (RATIO, "return above / below")],
        "one number",
    ),
    "divides by zero": ("local_rate", [(RATIO, "return above / below")], "λ should be 1"),
    "a rate of zero": ("local_rate", [("else 1.0", "else 0.0")], "stay 0 for ever"),
    "zero only tested above": ("local_rate", [("above > 0 and below > 0", "above > 0")], "the gradient is 0"),
    "no return": ("local_rate", [(RATIO, "above / below")], "returns nothing"),
    "norm of the sum in LARS": (
        "lars",
        [("local_rate(w, g, tau, b)", "tau * np.linalg.norm(w) / np.linalg.norm(g + b * w)")],
        "norm of the sum",
    ),
    "trust ratio on biases": ("lars", [(SCALE, "lam = local_rate(w, g, tau, b)")], "gets ratio and decay"),
    "λ on biases": ("lars", [("(1.0, 0.0) if skip", "(local_rate(w, g, tau, 0.0), 0.0) if skip")], "the ratio of"),
    "decay on biases": ("lars", [("(1.0, 0.0) if skip", "(1.0, b) if skip")], "still decays"),
    "decay not handed on": ("lars", [("local_rate(w, g, tau, b)", "local_rate(w, g, tau)")], "Hand b to"),
    "τ not handed on": ("lars", [("local_rate(w, g, tau, b)", "local_rate(w, g, b=b)")], "`tau` is not used"),
    "λ on the gradient only": ("lars", [("lam * (g + b * w)", "(lam * g + b * w)")], "the whole of ∇L + b w"),
    "η outside": (
        "lars",
        [("eta * lam", "lam"), ("return w - v, v", "return w - eta * v, v")],
        "outside the velocity",
    ),
    "uphill": ("lars", [("return w - v", "return w + v")], "up the slope"),
    "no memory": ("lars", [(KEPT, "0.0")], "starts anew"),
    "averaged": ("lars", [("eta * lam *", "(1 - beta) * eta * lam *")], "factor 1 − β"),
    "β by heart": ("lars", [("v = beta *", "v = 0.9 *")], "`beta` is not used"),
    "in place": ("lars", [("return w - v, v", "w -= v\n    return w, v")], "in place"),
    "only the weights": ("lars", [("return w - v, v", "return w - v")], "return two things"),
    "a global velocity": (
        "lars",
        [("0.0 if state is None else state", "globals().get('kept', 0.0)"),
         ("return w - v, v", "globals().update(kept=v)\n    return w - v, v")],
        "",
    ),
    "no clip": ("larc", [("min(eta, local_rate(w, g, tau, b))", "local_rate(w, g, tau, b)")], "not clipped"),
    "the larger": ("larc", [("min(", "max(")], "the smaller of the two"),
    "η twice": ("larc", [("lam / eta", "lam")], "applied twice"),
    "η inside": ("larc", [("lam / eta", "lam"), ("w - eta * v", "w - v")], "takes λ/η"),
    "trust ratio on biases in LARC": (
        "larc",
        [(CLIP, "lam = min(eta, local_rate(w, g, tau, b))")],
        "gets ratio and decay",
    ),
    "bias correction forgotten": ("lamb", [(ADAM, "m / (np.sqrt(v) + epsilon)")], "bias correction is forgotten"),
    "bias correction of v": ("lamb", [("v / (1 - beta2**t)", "v")], "bias correction of v"),
    "bias correction of m": ("lamb", [("m / (1 - beta1**t) /", "m /")], "bias correction of m"),
    "t is not counted": ("lamb", [("t += 1", "t = 1")], "t stays 1"),
    "the trust coefficient of LARS": ("lamb", [("local_rate(w, u, 1.0)", "local_rate(w, u)")], "LAMB has none"),
    "ratio of the gradient": ("lamb", [("local_rate(w, u, 1.0)", "local_rate(w, g, 1.0)")], "gradient's norm below"),
    "no ratio": ("lamb", [("local_rate(w, u, 1.0) * u", "u")], "trust ratio is missing"),
    "ratio before decay": (
        "lamb",
        [("    u = u + b * w\n", ""), ("local_rate(w, u, 1.0) * u", "local_rate(w, u, 1.0) * (u + b * w)")],
        "before the decay is added",
    ),
    "decay behind the ratio": (
        "lamb",
        [("    u = u + b * w\n", ""), ("local_rate(w, u, 1.0) * u", "(local_rate(w, u, 1.0) * u + b * w)")],
        "behind the ratio",
    ),
    "decay in the gradient": (
        "lamb",
        [("    t += 1", "    g = g if skip else g + b * w\n    t += 1"), ("    u = u + b * w\n", "")],
        "goes through m and v",
    ),
    "skip not honoured in LAMB": ("lamb", [("if skip:", "if False:")], "gets ratio and decay"),
    "no root": ("lamb", [("np.sqrt(v / (1 - beta2**t))", "v / (1 - beta2**t)")], "root is missing"),
    "v starts at 0": (
        "novograd",
        [("(0.0, squares) if", "(0.0, 0.0) if")],
        "v starts at 0",
    ),
    "a v for each weight": ("novograd", [("np.sum(g**2)", "g**2")], "one number for the layer"),
    "the norm, not its square": ("novograd", [("np.sum(g**2)", "np.linalg.norm(g)")], "not its square"),
    "the gradient averaged": (
        "novograd",
        [("+ g / (np.sqrt(v) + epsilon) + b * w", f"+ (1 - beta1) * ({COLLECT})")],
        "factor 1 − β₁",
    ),
    "decay divided": ("novograd", [(COLLECT, "(g + b * w) / (np.sqrt(v) + epsilon)")], "behind the division"),
    "decay outside the momentum": (
        "novograd",
        [(COLLECT, "g / (np.sqrt(v) + epsilon)"), ("w - eta * M", "w - eta * (M + b * w)")],
        "part of what M collects",
    ),
    "β₂ swapped": ("novograd", [(MEAN, "v = (1 - beta2) * v + beta2 * squares")], "swapped"),
    "no average": ("novograd", [(MEAN, "v = squares")], "average it"),
    "no root in NovoGrad": ("novograd", [("np.sqrt(v) + epsilon", "v + epsilon")], "root is missing"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(solve, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(solve(exercise, *edits), 3) < 3
    assert word in capsys.readouterr().out


def test_a_wrong_local_rate_is_named_in_the_rules_that_use_it(answer, capsys):
    rule = answer(NOTEBOOK, "lars")
    rule.__globals__["local_rate"] = answer(NOTEBOOK, "local_rate", (BELOW, "np.linalg.norm(g + b * w)"))
    assert points(rule, 3) < 3
    assert "norm of the sum" in capsys.readouterr().out


def test_checking_loads_no_tensorflow():
    code = "import sys, course_lib.assess.exercises.layerwise; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
