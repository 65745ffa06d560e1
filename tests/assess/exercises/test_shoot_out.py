"""Notebook 3e: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import compare
from course_lib.assess.exercises.shoot_out import check, points

NOTEBOOK = "3e_shoot_out"


@pytest.mark.parametrize("exercise", ["choose", "interval", "expected_best"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


WRONG = {
    "chosen on the test images": ("choose", [('["validation"]', '["test"]')], "must not look at them"),
    "the luckiest seed": ("choose", [(".mean()", ".max()")], "the mean over a rate's seeds"),
    "the most careful": ("choose", [(".mean()", ".min()")], "best *worst* seed"),
    "diverged runs left out": ("choose", [(".fillna(0)", "")], "may not be left out"),
    "the accuracy in place of the rate": ("choose", [("idxmax", "max")], "return the rate itself"),
    "the row in place of the rate": ("choose", [('groupby(runs["rate"]).mean().', "")], "none of the rates"),
    "the worst": ("choose", [("idxmax", "idxmin")], "the worst rate"),
    "all means": ("choose", [(".idxmax()", "")], "one number is asked for"),
    "no return": ("choose", [("return ", "")], "is a `return` missing"),
    "seeds not paired": (
        "interval",
        [
            (
                "difference.std(ddof=1)",
                "np.hypot(np.std(ours, ddof=1), np.std(theirs, ddof=1))",
            )
        ],
        "no seeds in common",
    ),
    "theirs minus ours": (
        "interval",
        [("np.asarray(ours) - np.asarray(theirs)", "np.asarray(theirs) - np.asarray(ours)")],
        "wrong sign",
    ),
    "n in place of n - 1": ("interval", [("ddof=1", "")], "in place of n − 1"),
    "the spread of one run": ("interval", [(" / np.sqrt(len(difference))", "")], "root of their number"),
    "n in place of its root": ("interval", [("np.sqrt(len(difference))", "len(difference)")], "in place of √n"),
    "1.96 for all": ("interval", [("t * error", "1.96 * error")], "1.96 is for many"),
    "one standard error": ("interval", [("t * error", "error")], "the factor t"),
    "the whole width": ("interval", [("t * error", "2 * t * error")], "half of it"),
    "both ends": (
        "interval",
        [("difference.mean(), t * error", "difference.mean() - t * error, difference.mean() + t * error")],
        "both ends",
    ),
    "only the mean": ("interval", [("difference.mean(), t * error", "difference.mean()")], "two numbers"),
    "the best of all": ("expected_best", [("np.sum(np.sort(scores) * np.diff(share**budget))", "max(scores)")],
                        "the mean of all, not the best"),
    "not sorted": ("expected_best", [("np.sort(scores)", "np.asarray(scores)")], "in order"),
    "the highest first": ("expected_best", [("np.sort(scores)", "np.sort(scores)[::-1]")], "in order"),
    "sorted in place": ("expected_best", [("np.sort(scores)", "(scores.sort(), scores)[1]")], "work on a copy"),
    "one draw too many": ("expected_best", [("share**budget", "share ** (budget + 1)")], "one too high"),
    "one draw too few": ("expected_best", [("share**budget", "share ** max(1, budget - 1)")], "one draw less"),
    "nothing subtracted": ("expected_best", [("np.diff(share**budget)", "share[1:] ** budget")], "the one before"),
    "the budget forgotten": ("expected_best", [("share**budget", "share")], "does not depend on the budget"),
    "one share too few": (
        "expected_best",
        [("np.arange(len(scores) + 1)", "np.arange(len(scores))"), ("np.diff(share**budget)", "share**budget")],
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_a_choice_without_replacement_is_told_apart(capsys):
    from itertools import combinations

    def expected_best(scores, budget):
        return np.mean([max(drawn) for drawn in combinations(scores, min(budget, len(scores)))])

    assert points(expected_best, 6) < 6
    assert "drawn twice" in capsys.readouterr().out


def test_the_library_is_right_too():
    def interval(ours, theirs, t):
        return compare.interval(ours, theirs)

    assert points(interval, 6) == points(compare.expected_best, 6) == 6.0
