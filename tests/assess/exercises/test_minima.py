"""Notebook 3a, second half: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.assess.exercises.minima import check, points

NOTEBOOK = "3a_how_large"


@pytest.mark.parametrize("exercise", ["hessian_vector", "power_iteration"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 3) == 3.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


STEP = "step = epsilon * v / np.linalg.norm(v)"
BACK = "* np.linalg.norm(v) / (2 * epsilon)"
WRONG = {
    "the 2 forgotten": ("hessian_vector", [("(2 * epsilon)", "epsilon")], "twice H v"),
    "one-sided, but divided by two": ("hessian_vector", [("gradient(w - step)", "gradient(w)")], "half of H v"),
    "one-sided": (
        "hessian_vector",
        [("gradient(w - step)", "gradient(w)"), ("(2 * epsilon)", "epsilon")],
        "one on each side",
    ),
    "the other way round": (
        "hessian_vector",
        [("gradient(w + step) - gradient(w - step)", "gradient(w - step) - gradient(w + step)")],
        "−H v",
    ),
    "not divided": ("hessian_vector", [(BACK, "")], "almost 0"),
    "the length of v lost": ("hessian_vector", [(BACK, "/ (2 * epsilon)")], "v has its own length"),
    "a step as long as v": ("hessian_vector", [(STEP, "step = epsilon * v"), (BACK, "/ (2 * epsilon)")], "v of length"),
    "along w": ("hessian_vector", [(STEP, "v = w; " + STEP)], "not along w"),
    "v changed": ("hessian_vector", [(STEP, "v *= 1 + 1e-12; " + STEP)], "it changes v"),
    "never brought back": ("power_iteration", [("turned / np.linalg.norm(turned)", "turned")], "length"),
    "the length for the value": (
        "power_iteration",
        [("float(v @ product(v))", "float(np.linalg.norm(product(v)))")],
        "a length has no sign",
    ),
    "v is not replaced": (
        "power_iteration",
        [("v = turned / np.linalg.norm(turned)", "_ = turned / np.linalg.norm(turned)")],
        "of the first v",
    ),
    "the square": (
        "power_iteration",
        [("float(v @ product(v))", "float(product(v) @ product(v))")],
        "the square",
    ),
    "two products a step": (
        "power_iteration",
        [("turned / np.linalg.norm(turned)", "product(v) / np.linalg.norm(product(v))")],
        "keep H v in a variable",
    ),
    "the vector forgotten": ("power_iteration", [("float(v @ product(v)), v", "float(v @ product(v))")], "two things"),
    "the given vector changed": (
        "power_iteration",
        [("    for ", "    v /= np.linalg.norm(v)\n    for ")],
        "it changes the v",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 3) < 3
    assert word in capsys.readouterr().out


def test_nothing_returned_is_named(capsys):
    def power_iteration(product, v, steps):
        return None

    assert points(power_iteration, 3) == 0
    assert "is there a `return`" in capsys.readouterr().out


def test_the_smallest_eigenvalue_is_not_the_largest(capsys):
    def power_iteration(product, v, steps):
        matrix = np.array([product(e) for e in np.eye(len(v))])
        values, vectors = np.linalg.eigh(matrix)
        return float(values[0]), vectors[:, 0]

    assert points(power_iteration, 3) < 3
    assert "smallest" in capsys.readouterr().out
