"""Notebook 3d: the solutions make the published values, and plausible mistakes are named."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from course_lib.system.paths import ROOT
from labs.lab3_large_batch.lessons import checks_3d
from labs.lab3_large_batch.lessons.checks_3d import check, points

# A warning goes to stderr, and nbgrader gives no points to a cell that writes there.
pytestmark = pytest.mark.filterwarnings("error")

NOTEBOOK = "3d_layer_wise_rates"
RULES = ("lars", "larc", "lamb", "novograd")


@pytest.fixture
def solve(answer):
    """As `answer`, with the notebook's own `local_rate` where an exercise needs it."""

    def make(exercise, *edits):
        function = answer(NOTEBOOK, exercise, *edits)
        if exercise != "local_rate":
            function.__globals__.setdefault("local_rate", answer(NOTEBOOK, "local_rate"))
        return function

    return make


@pytest.mark.parametrize("exercise", ["local_rate", *RULES, "invariances"])
def test_the_solution_gets_full_points(solve, exercise, capsys):
    solution = solve(exercise)
    assert points(solution, 3) == 3.0
    assert all(verdict.passed for verdict in check(solution).verdicts)
    assert capsys.readouterr().out == ""


NORM_W, NORM_G = "np.linalg.norm(w)", "np.linalg.norm(g)"
BELOW = f"{NORM_G} + b * {NORM_W}"
RATIO = "above / below if above > 0 and below > 0 else 1.0"
SKIP = "(1.0, 0.0) if skip else (local_rate(w, g, tau, b), b)"
SKIP_LARC = "(eta, 0.0) if skip else (min(eta, local_rate(w, g, tau, b)), b)"
CLIP = "min(eta, local_rate(w, g, tau, b))"
KEPT = "0.0 if state is None else state"
ADAM = "m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + epsilon)"
LAMB = "return w - eta * local_rate(w, u, 1.0) * u, (m, v, t)"
ADAM_INSIDE = "m / (1 - beta1**t) / np.sqrt(v / (1 - beta2**t) + epsilon)"
ADAM_STEP = "return w - eta * u, (m, v, t)"
MEAN = "beta2 * v + (1 - beta2) * squares"
COLLECT = "M = beta1 * M + g / (np.sqrt(v) + epsilon) + b * w"

# exercise, edits of its solution, what the reason says
WRONG = {
    "norm of the sum": ("local_rate", [(BELOW, "np.linalg.norm(g + b * w)")], "norm of the sum"),
    "no trust coefficient": ("local_rate", [(f"tau * {NORM_W}", NORM_W)], "τ is missing"),
    "decay forgotten": ("local_rate", [(BELOW, NORM_G)], "b ‖w‖, is missing"),
    "decay subtracted": ("local_rate", [(BELOW, f"{NORM_G} - b * {NORM_W}")], "pulled against the gradient"),
    "a right angle": ("local_rate", [(BELOW, f"np.hypot({NORM_G}, b * {NORM_W})")], "as at a right angle"),
    "decay without ‖w‖": ("local_rate", [(f"b * {NORM_W}", "b")], "should have b ‖w‖"),
    "upside down": ("local_rate", [("above / below", "tau**2 * below / above")], "upside down"),
    "squared": ("local_rate", [(NORM_W, "np.sum(w**2)"), (NORM_G, "np.sum(g**2)")], "squared"),
    "sum of absolute values": (
        "local_rate",
        [(NORM_W, "np.abs(w).sum()"), (NORM_G, "np.abs(g).sum()")],
        "absolute values",
    ),
    "largest absolute value": (
        "local_rate",
        [(NORM_W, "np.abs(w).max()"), (NORM_G, "np.abs(g).max()")],
        "largest absolute value",
    ),
    "spectral norm": (
        "local_rate",
        [(f"np.linalg.norm({x})", f"np.linalg.norm({x}, 2 if {x}.ndim == 2 else None)") for x in "wg"],
        "spectral",
    ),
    "another number": ("local_rate", [(BELOW, f"2 * {NORM_G} + b * {NORM_W}")], "λ should be [0.00333333, "),
    "a norm for each column": (
        "local_rate",
        [(NORM_W, "np.linalg.norm(w, axis=0)"), (RATIO, "above / below")],
        "one number",
    ),
    "divides by zero": ("local_rate", [(RATIO, "above / below")], "λ should be 1"),
    "a rate of zero": ("local_rate", [("1.0", "0.0")], "stay 0 for ever"),
    "zero only tested above": ("local_rate", [("above > 0 and below > 0", "above > 0")], "the gradient is 0"),
    "no return": ("local_rate", [(f"return {RATIO}", RATIO)], "returns nothing"),
    "weights in place": ("local_rate", [(f"above = tau * {NORM_W}", f"w *= tau\nabove = {NORM_W}")], "in place"),
    "norm of the sum in LARS": (
        "lars",
        [("local_rate(w, g, tau, b)", "tau * np.linalg.norm(w) / np.linalg.norm(g + b * w)")],
        "norm of the sum",
    ),
    "trust ratio on biases": ("lars", [(SKIP, "(local_rate(w, g, tau, b), b)")], "gets ratio and decay"),
    "λ on biases": ("lars", [("(1.0, 0.0)", "(local_rate(w, g, tau, 0.0), 0.0)")], "the ratio of"),
    "decay on biases": ("lars", [("(1.0, 0.0)", "(1.0, b)")], "still decays"),
    "decay not handed on": ("lars", [("local_rate(w, g, tau, b)", "local_rate(w, g, tau)")], "Hand b to"),
    "τ not handed on": ("lars", [("local_rate(w, g, tau, b)", "local_rate(w, g, b=b)")], "`tau` is not used"),
    "λ on the gradient only": ("lars", [("eta * lam * (g + b * w)", "eta * (lam * g + b * w)")], "whole of ∇L + b w"),
    "no decay": ("lars", [("g + b * w", "g")], "the decay b w is missing"),
    "no η": ("lars", [("eta * lam", "lam")], "η is not applied"),
    "no λ": ("lars", [("eta * lam", "eta")], "SGD with momentum"),
    "clipped": ("lars", [("eta * lam", "eta * min(eta, lam)")], "that is LARC"),
    "η outside": (
        "lars",
        [("eta * lam", "lam"), ("return w - v, v", "return w - eta * v, v")],
        "outside the velocity",
    ),
    "uphill": ("lars", [("return w - v, v", "return w + v, v")], "up the slope"),
    "no memory": ("lars", [(KEPT, "0.0")], "starts anew"),
    "averaged": ("lars", [("eta * lam", "(1 - beta) * eta * lam")], "factor 1 − β"),
    "β by heart": ("lars", [("beta", "0.9")], "`beta` is not used"),
    "too far": ("lars", [("return w - v, v", "return w - 2 * v, v")], "the change of w should be"),
    "in place": ("lars", [("return w - v, v", "w -= v\nreturn w, v")], "in place"),
    "only the weights": ("lars", [("return w - v, v", "return w - v")], "return two things"),
    "a global velocity": (
        "lars",
        [(KEPT, "globals().get(w.shape, 0.0)"), ("return w - v, v", "globals().update({w.shape: v})\nreturn w - v, v")],
        "remembered outside the state",
    ),
    "zeros stay": ("lars", [(SKIP, f"({SKIP}) if w.any() else (0.0, 0.0)")], "weights of 0 stay 0"),
    "no clip": ("larc", [(CLIP, "local_rate(w, g, tau, b)")], "not clipped"),
    "the larger": ("larc", [(CLIP, CLIP.replace("min", "max"))], "the smaller of the two"),
    "η twice": ("larc", [("lam / eta", "lam")], "applied twice"),
    "η inside": ("larc", [("lam / eta", "lam"), ("return w - eta * v, v", "return w - v, v")], "takes λ/η"),
    "trust ratio on biases in LARC": ("larc", [(SKIP_LARC, f"({CLIP}, b)")], "gets ratio and decay"),
    "bias correction forgotten": ("lamb", [(ADAM, "m / (np.sqrt(v) + epsilon)")], "bias correction is forgotten"),
    "bias correction of v": ("lamb", [("v / (1 - beta2**t)", "v")], "bias correction of v"),
    "bias correction of m": ("lamb", [("m / (1 - beta1**t)", "m")], "bias correction of m"),
    "t is not counted": ("lamb", [("t += 1", "t = 1")], "t stays 1"),
    "no memory in LAMB": ("lamb", [("state or (0.0, 0.0, 0)", "(0.0, 0.0, 0)")], "start anew"),
    "the trust coefficient of LARS": ("lamb", [("local_rate(w, u, 1.0)", "local_rate(w, u)")], "LAMB has none"),
    "ratio of the gradient": ("lamb", [("local_rate(w, u, 1.0)", "local_rate(w, g, 1.0)")], "gradient's norm below"),
    "ratio upside down": ("lamb", [("local_rate(w, u, 1.0)", "local_rate(u, w, 1.0)")], "upside down"),
    "no ratio": ("lamb", [("local_rate(w, u, 1.0)", "1.0")], "trust ratio is missing"),
    "no decay in LAMB": ("lamb", [("u = u + b * w", "")], "the decay b w is missing"),
    "ratio before decay": (
        "lamb",
        [("u = u + b * w", ""), (LAMB, LAMB.replace("* u", "* (u + b * w)"))],
        "before the decay is added",
    ),
    "decay behind the ratio": (
        "lamb",
        [("u = u + b * w", ""), (LAMB, "return w - eta * (local_rate(w, u, 1.0) * u + b * w), (m, v, t)")],
        "behind the ratio",
    ),
    "decay in the gradient": (
        "lamb",
        [("t += 1", "g = g if skip else g + b * w\nt += 1"), ("u = u + b * w", "")],
        "goes through m and v",
    ),
    "skip not honoured in LAMB": ("lamb", [(f"if skip:\n    {ADAM_STEP}", "")], "gets ratio and decay"),
    "no root": ("lamb", [("np.sqrt(v / (1 - beta2**t))", "v / (1 - beta2**t)")], "root is missing"),
    "ε in the root": ("lamb", [(ADAM, ADAM_INSIDE)], "inside the root"),
    "gradients in v": ("lamb", [("g**2", "abs(g)")], "not their squares"),
    "β₁ swapped": ("lamb", [("beta1 * m + (1 - beta1) * g", "(1 - beta1) * m + beta1 * g")], "are swapped"),
    "λ = 1 on biases in LARC": ("larc", [("(eta, 0.0)", "(1.0, 0.0)")], "λ is η, not 1"),
    "v starts at 0": ("novograd", [("(0.0, squares)", "(0.0, 0.0)")], "v starts at 0"),
    "a v for each weight": ("novograd", [("np.sum(g**2)", "g**2")], "one number for the layer"),
    "the norm, not its square": ("novograd", [("np.sum(g**2)", "np.linalg.norm(g)")], "not its square"),
    "the gradient averaged": (
        "novograd",
        [(COLLECT, "M = beta1 * M + (1 - beta1) * (g / (np.sqrt(v) + epsilon) + b * w)")],
        "factor 1 − β₁",
    ),
    "decay divided": ("novograd", [(COLLECT, "M = beta1 * M + (g + b * w) / (np.sqrt(v) + epsilon)")], "behind"),
    "decay outside the momentum": (
        "novograd",
        [(COLLECT, "M = beta1 * M + g / (np.sqrt(v) + epsilon)"),
         ("return w - eta * M, (M, v)", "return w - eta * (M + b * w), (M, v)")],
        "part of what M collects",
    ),
    "β₂ swapped": ("novograd", [(MEAN, "(1 - beta2) * v + beta2 * squares")], "swapped"),
    "a sum of squares": ("novograd", [(MEAN, "squares if state is None else beta2 * v + squares")], "enters v whole"),
    "the v before": (
        "novograd",
        [(f"v = {MEAN}", f"before = v\nv = {MEAN}"), (COLLECT, COLLECT.replace("(v)", "(before)"))],
        "the step before",
    ),
    "no memory in NovoGrad": ("novograd", [("(0.0, squares) if state is None else state", "(0.0, squares)")], "anew"),
    "no average": ("novograd", [(MEAN, "squares")], "average it"),
    "no root in NovoGrad": ("novograd", [("np.sqrt(v)", "v")], "root is missing"),
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


@pytest.mark.parametrize("exercise", ["local_rate", *RULES])
def test_no_function_of_the_checks_is_an_answer(exercise):
    for function in [value for value in vars(checks_3d).values() if callable(value)]:

        def answer(*arguments, function=function, **settings):
            return function(*arguments, **settings)

        answer.__name__ = exercise
        assert points(answer, 3) < 1, function


def test_checking_loads_no_tensorflow():
    code = "import sys, labs.lab3_large_batch.lessons.checks_3d; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"SGD": (10, 1 / 10)}, "two things change"),
        ({"Adam": (10, 1 / 10)}, "the first step is η in each weight"),
        ({"NovoGrad": (1, 1)}, "that is the factor of Δw itself"),
        ({"NovoGrad": (1, 10)}, "nothing looks at ‖w‖"),
        ({"LARS": (10, 1)}, "whatever the gradient"),
        ({"LAMB": (1, 10)}, "that is the factor of Δw itself"),
        ({"SGD": (10, 0.1), "LARC": 10}, "two factors"),
        ({"LAMB": None}, "two factors"),
    ],
)
def test_a_wrong_factor_is_answered_with_its_reason(changed, said, answer):
    right = answer(NOTEBOOK, "invariances")()

    def invariances():
        return {**right, **changed}

    verdicts = [verdict for verdict in check(invariances).verdicts if not verdict.passed]
    assert len(verdicts) == len(changed)
    assert any(said in verdict.reason for verdict in verdicts), [verdict.reason for verdict in verdicts]


def test_a_table_without_a_rule_or_none_at_all_is_told():
    def invariances():
        return {"SGD": (10, 0.01)}

    assert "LAMB is missing." in [verdict.reason for verdict in check(invariances).verdicts]

    def invariances():
        return 3

    assert "should return a dict" in check(invariances).verdicts[0].reason


def test_the_colleagues_novograd_fails_where_the_text_says(answer):
    """It keeps a number for each weight, its first step is too long, and its decay depends on the gradient."""
    text = (ROOT / f"labs/lab3_large_batch/{NOTEBOOK}.py").read_text(encoding="utf-8")
    cell = text[text.index("def colleagues_novograd") : text.index('pd.DataFrame({f"‖∇L‖')]
    space = {"np": np}
    exec(cell, space)
    theirs = [space["first_steps"](space["colleagues_novograd"], scale) for scale in (0.1, 10)]
    ours = [space["first_steps"](answer(NOTEBOOK, "novograd"), scale) for scale in (0.1, 10)]
    assert [row["numbers kept"] for row in (*theirs, *ours)] == [200, 200, 101, 101]
    assert [row["length of the first step"] for row in ours] == pytest.approx([1, 1])
    assert theirs[0]["length of the first step"] > 50
    assert [row["what decay 0.1 adds to it"] for row in ours] == pytest.approx([1, 1])
    added = [row["what decay 0.1 adds to it"] for row in theirs]
    assert added[0] > 20 * added[1]


def test_the_numbers_of_the_table_of_variants(answer):
    """Three steps with the gradients of the check, as the table 'Which LARS is it?' has them."""
    text = (ROOT / f"labs/lab3_large_batch/{NOTEBOOK}.py").read_text(encoding="utf-8")
    w, m, v, b = checks_3d.START.copy(), 0.0, 0.0, 0.1
    for t, (g, eta) in enumerate(zip(checks_3d.GRADIENTS, (0.01, 0.01, 0.005)), 1):
        w = (1 - eta * b) * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
        w = w - eta * np.linalg.norm(w) / np.linalg.norm(u) * u
    assert f"then u without decay | {w[0]:.7f}, {w[1]:.7f} |" in text
    for name in ("lars", "lamb"):
        last = checks_3d.PUBLISHED[name][2][-1]
        assert f"| {last[0]:.7f}, {last[1]:.7f} |" in text
