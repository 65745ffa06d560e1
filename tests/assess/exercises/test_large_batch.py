"""Notebook 3a, first half: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import bend, noise
from course_lib.assess.exercises.large_batch import check, points

NOTEBOOK = "3a_how_large"


@pytest.mark.parametrize("exercise", ["noise_scale", "floor_and_bend"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 3) == 3.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


SMALL = "np.mean(np.sum(small_gradients**2, axis=1))"
LARGE = "np.mean(np.sum(large_gradients**2, axis=1))"
WRONG = {
    "the norm of the mean in place of the mean of the norms": (
        "noise_scale",
        [
            (SMALL, "np.sum(np.mean(small_gradients, axis=0) ** 2)"),
            (LARGE, "np.sum(np.mean(large_gradients, axis=0) ** 2)"),
        ],
        "averages out",
    ),
    "sums in place of means": ("noise_scale", [("np.mean(np.sum(", "np.sum(np.sum(")], "add up over the gradients"),
    "the axes swapped": ("noise_scale", [("axis=1", "axis=0")], "add up over the gradients"),
    "norms in place of squared norms": (
        "noise_scale",
        [("**2, axis=1))", "**2, axis=1) ** 0.5)")],
        "you use the norms",
    ),
    "the large batch taken as exact": ("noise_scale", [("trace / squared", "trace / E_large")], "still has noise"),
    "divided by the small batch's length": ("noise_scale", [("trace / squared", "trace / E_small")], "its noise in it"),
    "only the trace": ("noise_scale", [("trace / squared", "trace")], "divided by |G|²"),
    "upside down": ("noise_scale", [("trace / squared", "squared / trace")], "other way round"),
    "sizes swapped": (
        "noise_scale",
        [("    E_small =", "    small, large = large, small\n    E_small =")],
        "sizes the wrong way round",
    ),
    "the wrong sign": ("noise_scale", [("E_small - E_large", "E_large - E_small")], "wrong sign"),
    "squared in place": (
        "noise_scale",
        [("    E_small =", "    small_gradients **= 2\n    small_gradients **= 0.5\n    E_small =")],
        "changes the arrays",
    ),
    "nothing returned": ("noise_scale", [("return trace / squared", "pass")], "returns None"),
    "errors in updates": (
        "floor_and_bend",
        [(" / updates[:, None]", ""), ("np.ones(len(batches)), rcond", "updates, rcond")],
        "smallest batch",
    ),
    "only one side divided": ("floor_and_bend", [("np.ones(len(batches)), rcond", "updates, rcond")], "you return"),
    "the slope for the bend": ("floor_and_bend", [("a, c / a", "a, c")], "divide by the floor"),
    "the bend first": ("floor_and_bend", [("return a, c / a", "return c / a, a")], "bend first"),
    "one over the bend": ("floor_and_bend", [("a, c / a", "a, a / c")], "one over the bend"),
    "a line over B": (
        "floor_and_bend",
        [("1 / batches", "batches"), (" / updates[:, None]", ""), ("np.ones(len(batches)), rcond", "updates, rcond"),
         ("a, c / a", "a, c")],
        "line over 1/B",
    ),
    "one number": ("floor_and_bend", [("return a, c / a", "return c / a")], "a floor and a bend are expected"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_answer_loses_points_and_is_told_why(answer, mistake, capsys):
    exercise, edits, reason = WRONG[mistake]
    wrong = answer(NOTEBOOK, exercise, *edits)
    assert points(wrong, 3) < 3
    told = capsys.readouterr().out
    assert reason in told, told


def test_the_solutions_agree_with_the_library(answer):
    random = np.random.default_rng(3)
    small, large = random.normal(1, 2, (30, 4)), random.normal(1, 0.5, (20, 4))
    squares = [np.mean(np.sum(g**2, axis=1)) for g in (small, large)]
    assert answer(NOTEBOOK, "noise_scale")(small, large, 4, 64) == pytest.approx(noise.noise_scale(squares, (4, 64)))
    batches, updates = np.array([4.0, 16, 256]), np.array([900.0, 300, 40])
    assert answer(NOTEBOOK, "floor_and_bend")(batches, updates) == pytest.approx(bend.fit(batches, updates))
