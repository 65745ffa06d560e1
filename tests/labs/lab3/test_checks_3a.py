"""Notebook 3a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.optimizers import noise
from labs.lab3_large_batch.lessons import critical_batch
from labs.lab3_large_batch.lessons.checks_3a import check, points

NOTEBOOK = "3a_how_large"


@pytest.mark.parametrize("exercise", ["noise_scale", "floor_and_bend", "hessian_vector", "power_iteration"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 3) == 3.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


SMALL = "np.mean(np.sum(small_gradients**2, axis=1))"
LARGE = "np.mean(np.sum(large_gradients**2, axis=1))"
ROWS = "np.column_stack([np.ones(len(batches)), 1 / batches])"
NOT_RELATIVE = [
    (f"{ROWS} / updates[:, None]", ROWS),
    ("np.linalg.lstsq(left, np.ones(len(batches)), rcond=None)", "np.linalg.lstsq(left, updates, rcond=None)"),
]
STEP = "step = epsilon * v / np.linalg.norm(v)"
PRODUCT = "change * np.linalg.norm(v) / (2 * epsilon)"
ONE_SIDED = ("gradient(w - step)", "gradient(w)")
UNIT = "turned / np.linalg.norm(turned)"
VALUE = "float(v @ product(v))"
TURNED = "scale * product(scale * v)"
WRONG = {
    "the norm of the mean in place of the mean of the norms": (
        "noise_scale",
        [
            (SMALL, "np.sum(np.mean(small_gradients, axis=0) ** 2)"),
            (LARGE, "np.sum(np.mean(large_gradients, axis=0) ** 2)"),
        ],
        "averages out",
    ),
    "sums in place of means": (
        "noise_scale",
        [(SMALL, "np.sum(small_gradients**2)"), (LARGE, "np.sum(large_gradients**2)")],
        "add up over the gradients",
    ),
    "the axes swapped": (
        "noise_scale",
        [(SMALL, SMALL.replace("axis=1", "axis=0")), (LARGE, LARGE.replace("axis=1", "axis=0"))],
        "add up over the gradients",
    ),
    "norms in place of squared norms": (
        "noise_scale",
        [(SMALL, "np.mean(np.linalg.norm(small_gradients, axis=1))"),
         (LARGE, "np.mean(np.linalg.norm(large_gradients, axis=1))")],
        "you use the norms",
    ),
    "the large batch taken as exact": ("noise_scale", [("trace / squared", "trace / E_large")], "still has noise"),
    "divided by the small batch's length": ("noise_scale", [("trace / squared", "trace / E_small")], "its noise in it"),
    "only the trace": ("noise_scale", [("trace / squared", "trace")], "divided by |G|²"),
    "upside down": ("noise_scale", [("trace / squared", "squared / trace")], "other way round"),
    "sizes swapped": (
        "noise_scale",
        [(f"E_small = {SMALL}", f"small, large = large, small; E_small = {SMALL}")],
        "sizes the wrong way round",
    ),
    "the wrong sign": ("noise_scale", [("E_small - E_large", "E_large - E_small")], "wrong sign"),
    "squared in place": (
        "noise_scale",
        [(f"E_small = {SMALL}", f"small_gradients **= 2; small_gradients **= 0.5; E_small = {SMALL}")],
        "changed in place",
    ),
    "nothing returned": ("noise_scale", [("return trace / squared", "pass")], "returns nothing"),
    "errors in updates": ("floor_and_bend", NOT_RELATIVE, "smallest batch"),
    "only one side divided": ("floor_and_bend", NOT_RELATIVE[1:], "should be (20, 300)"),
    "the slope for the bend": ("floor_and_bend", [("a, c / a", "a, c")], "divide by the floor"),
    "the bend first": ("floor_and_bend", [("a, c / a", "c / a, a")], "bend first"),
    "one over the bend": ("floor_and_bend", [("a, c / a", "a, a / c")], "one over the bend"),
    "a line over B": (
        "floor_and_bend",
        [(f"{ROWS} / updates[:, None]", ROWS.replace("1 / batches", "batches")), NOT_RELATIVE[1], ("a, c / a", "a, c")],
        "line over 1/B",
    ),
    "one number": ("floor_and_bend", [("a, c / a", "c / a")], "2 values are expected: the floor, the bend"),
    "the 2 forgotten": ("hessian_vector", [("2 * epsilon", "epsilon")], "twice H v"),
    "one-sided, but divided by two": ("hessian_vector", [ONE_SIDED], "half of H v"),
    "one-sided": ("hessian_vector", [ONE_SIDED, ("2 * epsilon", "epsilon")], "one on each side"),
    "the other way round": (
        "hessian_vector",
        [("gradient(w + step) - gradient(w - step)", "gradient(w - step) - gradient(w + step)")],
        "−H v",
    ),
    "not divided": ("hessian_vector", [(PRODUCT, "change")], "almost 0"),
    "the length of v lost": ("hessian_vector", [(PRODUCT, "change / (2 * epsilon)")], "v has its own length"),
    "a step as long as v": (
        "hessian_vector",
        [(STEP, "step = epsilon * v"), (PRODUCT, "change / (2 * epsilon)")],
        "v of length",
    ),
    "along w": ("hessian_vector", [(STEP, f"v = w; {STEP}")], "not along w"),
    "v changed": ("hessian_vector", [(STEP, f"v *= 1 + 1e-12; {STEP}")], "changed in place"),
    "never brought back": ("power_iteration", [(UNIT, "turned")], "bring v back to length 1"),
    "the length for the value": (
        "power_iteration",
        [(VALUE, "float(np.linalg.norm(product(v)))")],
        "a length has no sign",
    ),
    "v is not replaced": ("power_iteration", [(f"v = {UNIT}", f"_ = {UNIT}")], "of the first v"),
    "the square": ("power_iteration", [(VALUE, "float(product(v) @ product(v))")], "the square"),
    "two products a step": (
        "power_iteration",
        [(UNIT, "product(v) / np.linalg.norm(product(v))")],
        "keep H v in a variable",
    ),
    "the vector forgotten": ("power_iteration", [(f"{VALUE}, v", VALUE)], "2 values are expected"),
    "the given vector changed": (
        "power_iteration",
        [("turned = product(v)", "v /= np.linalg.norm(v); turned = product(v)")],
        "changed in place",
    ),
    "only v is scaled": ("relative_product", [(TURNED, "product(scale * v)")], "only v is scaled"),
    "only the product is scaled": ("relative_product", [(TURNED, "scale * product(v)")], "only the product"),
    "divided by the scale": ("relative_product", [(TURNED, "product(v / scale) / scale")], "divides by s"),
    "both scales in front": ("relative_product", [(TURNED, "scale**2 * product(v)")], "s² stands in front"),
    "scales that cancel": ("relative_product", [(TURNED, "scale * product(v / scale)")], "cancel"),
    "no scale": ("relative_product", [(TURNED, "product(v)")], "no effect"),
    "a product in place of a function": (
        "relative_product", [(f"lambda v: {TURNED}", "scale * product(scale)")], "return a function",
    ),
    "nothing returned by the iteration": ("power_iteration", [(f"return {VALUE}, v", "pass")], "returns nothing"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_answer_loses_points_and_is_told_why(answer, mistake, capsys):
    exercise, edits, reason = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 3) < 3
    told = capsys.readouterr().out
    assert reason in told, told


def test_the_smallest_eigenvalue_is_not_the_largest(capsys):
    def power_iteration(product, v, steps):
        matrix = np.array([product(e) for e in np.eye(len(v))])
        values, vectors = np.linalg.eigh(matrix)
        return float(values[0]), vectors[:, 0]

    assert points(power_iteration, 3) < 3
    assert "smallest" in capsys.readouterr().out


def test_the_solutions_agree_with_the_library(answer):
    random = np.random.default_rng(3)
    small, large = random.normal(1, 2, (30, 4)), random.normal(1, 0.5, (20, 4))
    squares = [np.mean(np.sum(g**2, axis=1)) for g in (small, large)]
    assert answer(NOTEBOOK, "noise_scale")(small, large, 4, 64) == pytest.approx(noise.noise_scale(squares, (4, 64)))
    batches, updates = np.array([4.0, 16, 256]), np.array([900.0, 300, 40])
    assert answer(NOTEBOOK, "floor_and_bend")(batches, updates) == pytest.approx(critical_batch.fit(batches, updates))
