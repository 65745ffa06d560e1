"""Notebook 3f: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab3_large_batch.lessons.checks_3f import check, points

NOTEBOOK = "3f_sharp_and_flat"


@pytest.mark.parametrize("exercise", ["hessian_vector", "power_iteration", "relative_product", "fool"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 3) == 3.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


STEP = "step = epsilon * v / np.linalg.norm(v)"
PRODUCT = "change * np.linalg.norm(v) / (2 * epsilon)"
ONE_SIDED = ("gradient(w - step)", "gradient(w)")
UNIT = "turned / np.linalg.norm(turned)"
VALUE = "float(v @ product(v))"
STEP_OF_SIGNS = "epsilon * np.sign(gradients)"
MOVED = f"np.clip(images + {STEP_OF_SIGNS}, 0, 255)"
TURNED = "scale * product(scale * v)"
WRONG = {
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
    "the loss falls": ("fool", [(STEP_OF_SIGNS, f"-{STEP_OF_SIGNS}")], "direction of training"),
    "as long as the gradient": ("fool", [(STEP_OF_SIGNS, "epsilon * gradients")], "the whole of what a pixel"),
    "a step of length ε": (
        "fool",
        [(STEP_OF_SIGNS,
          "epsilon * gradients / np.sqrt((gradients**2).sum(axis=(1, 2, 3), keepdims=True))")],
        "step of *length* ε",
    ),
    "by the largest slope": (
        "fool",
        [(STEP_OF_SIGNS, "epsilon * gradients / np.abs(gradients).max(axis=(1, 2, 3), keepdims=True)")],
        "keeps the others",
    ),
    "the gradient cut off": ("fool", [(STEP_OF_SIGNS, "np.clip(gradients, -epsilon, epsilon)")], "is cut off at ε"),
    "all pixels brighter": ("fool", [(STEP_OF_SIGNS, "epsilon")], "the wrong way"),
    "ε of the whole range": ("fool", [(STEP_OF_SIGNS, f"255 * {STEP_OF_SIGNS}")], "units of the pixels"),
    "the step alone": ("fool", [(MOVED, STEP_OF_SIGNS)], "the step alone"),
    "beyond the range": ("fool", [(MOVED, "images + epsilon * np.sign(gradients)")], "leave 0 to 255"),
    "wrapped around": ("fool", [(MOVED, "(images + epsilon * np.sign(gradients)) % 256")], "wrap around"),
    "clipped at one": ("fool", [(MOVED, "np.clip(images + epsilon * np.sign(gradients), 0, 1)")], "not to 1"),
    "images changed": (
        "fool", [(f"return {MOVED}", f"images[0, 0, 0, 0] += 1; return {MOVED}")], "changed in place",
    ),
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
