"""Notebook 3a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.optimizers import noise
from labs.lab3_large_batch.lessons import critical_batch
from labs.lab3_large_batch.lessons.checks_3a import check, points

NOTEBOOK = "3a_how_large"


@pytest.mark.parametrize("exercise", ["noise_scale", "floor_and_bend"])
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
    "the sum of the sizes": ("noise_scale", [("(large - small)", "(large + small)")], "the sum of the sizes"),
    "the spread of the gradients": (
        "noise_scale",
        [("trace / squared", "small * np.var(small_gradients, axis=0).sum() / squared")],
        "but one gradient has none",
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
    "a power in place of a floor": (
        "floor_and_bend",
        [("a, c / a", "(lambda p: (np.exp(p[1]), p[0]))(np.polyfit(np.log(batches), np.log(updates), 1))")],
        "has no floor",
    ),
    "the bend first": ("floor_and_bend", [("a, c / a", "c / a, a")], "bend first"),
    "one over the bend": ("floor_and_bend", [("a, c / a", "a, a / c")], "one over the bend"),
    "a line over B": (
        "floor_and_bend",
        [(f"{ROWS} / updates[:, None]", ROWS.replace("1 / batches", "batches")), NOT_RELATIVE[1], ("a, c / a", "a, c")],
        "line over 1/B",
    ),
    "one number": ("floor_and_bend", [("a, c / a", "c / a")], "2 values are expected: the floor, the bend"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_answer_loses_points_and_is_told_why(answer, mistake, capsys):
    exercise, edits, reason = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 3) < 3
    told = capsys.readouterr().out
    assert reason in told, told


def test_the_solutions_agree_with_the_library(answer):
    random = np.random.default_rng(3)
    small, large = random.normal(1, 2, (30, 4)), random.normal(1, 0.5, (20, 4))
    squares = [np.mean(np.sum(g**2, axis=1)) for g in (small, large)]
    assert answer(NOTEBOOK, "noise_scale")(small, large, 4, 64) == pytest.approx(noise.noise_scale(squares, (4, 64)))
    batches, updates = np.array([4.0, 16, 256]), np.array([900.0, 300, 40])
    assert answer(NOTEBOOK, "floor_and_bend")(batches, updates) == pytest.approx(critical_batch.fit(batches, updates))
