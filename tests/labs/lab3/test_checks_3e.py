"""Notebook 3e: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import statistics
from labs.lab3_large_batch.lessons import tuning_budget
from labs.lab3_large_batch.lessons.checks_3e import check, points

NOTEBOOK = "3e_shoot_out"


@pytest.mark.parametrize("exercise", ["choose", "interval", "expected_best", "interaction"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


MEANS = 'scores.groupby(runs["rate"]).mean()'
DIFFERENCE = "np.asarray(ours) - np.asarray(theirs)"
RESULT = "difference.mean(), t * error"
WRONG = {
    "chosen on the test images": ("choose", [('runs["validation"]', 'runs["test"]')], "must not look at them"),
    "the luckiest seed": ("choose", [(MEANS, MEANS.replace("mean", "max"))], "the mean over a rate's seeds"),
    "the most careful": ("choose", [(MEANS, MEANS.replace("mean", "min"))], "best *worst* seed"),
    "diverged runs left out": ("choose", [('runs["validation"].fillna(0)', 'runs["validation"]')], "not be left out"),
    "the accuracy in place of the rate": ("choose", [(f"{MEANS}.idxmax()", f"{MEANS}.max()")], "the rate itself"),
    "the row in place of the rate": ("choose", [(MEANS, "scores")], "none of the rates"),
    "the largest of equals": (
        "choose",
        [(f"{MEANS}.idxmax()", f"{MEANS}.sort_index(ascending=False).idxmax()")],
        "of equals the smallest",
    ),
    "the worst": ("choose", [(f"{MEANS}.idxmax()", f"{MEANS}.idxmin()")], "the worst rate"),
    "all means": ("choose", [(f"{MEANS}.idxmax()", MEANS)], "one number is expected"),
    "no return": ("choose", [(f"return {MEANS}.idxmax()", f"{MEANS}.idxmax()")], "is a `return` missing"),
    "the table changed": ("choose", [("scores =" + ' runs["validation"].fillna(0)',
                                      'scores = runs["validation"] = runs["validation"].fillna(0)')], "on a copy"),
    "seeds not paired": (
        "interval",
        [("difference.std(ddof=1)", "np.hypot(np.std(ours, ddof=1), np.std(theirs, ddof=1))")],
        "no seeds in common",
    ),
    "theirs minus ours": ("interval", [(DIFFERENCE, "np.asarray(theirs) - np.asarray(ours)")], "wrong sign"),
    "n in place of n - 1": ("interval", [("difference.std(ddof=1)", "difference.std()")], "in place of n − 1"),
    "the spread of one run": ("interval", [("np.sqrt(len(difference))", "1")], "root of their number"),
    "n in place of its root": ("interval", [("np.sqrt(len(difference))", "len(difference)")], "in place of √n"),
    "1.96 for all": ("interval", [("t * error", "1.96 * error")], "1.96 is for many"),
    "one standard error": ("interval", [("t * error", "error")], "the factor t"),
    "the whole width": ("interval", [("t * error", "2 * t * error")], "half of it"),
    "both ends": ("interval", [(RESULT, "difference.mean() - t * error, difference.mean() + t * error")], "both ends"),
    "only the mean": ("interval", [(RESULT, "difference.mean()")], "2 values are expected"),
    "the best of all": ("expected_best", [("np.sum(np.sort(scores) * np.diff(share**budget))", "max(scores)")],
                        "the mean of all, not the best"),
    "not sorted": ("expected_best", [("np.sort(scores)", "np.asarray(scores)")], "not sorted"),
    "the highest first": ("expected_best", [("np.sort(scores)", "np.sort(scores)[::-1]")], "in order"),
    "sorted in place": ("expected_best", [("np.sort(scores)", "(scores.sort(), scores)[1]")], "changed in place"),
    "one draw too many": ("expected_best", [("share**budget", "share ** (budget + 1)")], "one too high"),
    "one draw too few": ("expected_best", [("share**budget", "share ** max(1, budget - 1)")], "one draw less"),
    "counted from 0": (
        "expected_best",
        [("np.arange(len(scores) + 1) / len(scores)", "(np.arange(len(scores) + 1) - 1) / len(scores)")],
        "i counts from 1",
    ),
    "nothing subtracted": ("expected_best", [("np.diff(share**budget)", "share[1:] ** budget")], "the one before"),
    "the budget forgotten": ("expected_best", [("share**budget", "share")], "does not depend on the budget"),
    "whole shares": ("expected_best", [("np.arange(len(scores) + 1) / len(scores)",
                                        "np.arange(len(scores) + 1) // (len(scores) + 1)")], "come out as 0"),
    "one share too few": ("expected_best", [("len(scores) + 1", "len(scores)")], "raised ValueError"),
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
        return statistics.paired(ours, theirs)

    assert points(interval, 6) == points(tuning_budget.expected_best, 6) == 6.0


def gains(runs, one, other):
    corner = runs.groupby([one, other, "seed"])["test"].mean()
    return corner[1, 1] - corner[0, 1], corner[1, 0] - corner[0, 0], corner[1, 1] - corner[0, 0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda on, off, both: (on + off) / 2, "gains on average"),
        (lambda on, off, both: on, "take away what it gains"),
        (lambda on, off, both: off, "how much more it gains"),
        (lambda on, off, both: off - on, "turned round"),
        (lambda on, off, both: (on - off) / 2, "that is half of it"),
        (lambda on, off, both: 2 * (on - off), "take their mean"),
        (lambda on, off, both: both, "both together"),
        (lambda on, off, both: (on - off).mean(), "3 seeds"),
    ],
)
def test_mistakes_in_an_interaction_are_named(wrong, said):
    def interaction(runs, one, other):
        return wrong(*gains(runs, one, other))

    assert said in check(interaction).verdicts[0].reason


def test_an_interaction_that_sorts_the_table_in_place_is_refused():
    def interaction(runs, one, other):
        runs.sort_values("seed", inplace=True)
        on, off, _ = gains(runs, one, other)
        return (on - off).to_numpy()

    assert "work on a copy" in check(interaction).verdicts[0].reason
