"""Notebook 2c, running and watching: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.assess.exercises.tuning import check, points

NOTEBOOK = "2c_run_watch_tune"
EXERCISES = ("covered", "lateness", "steps_per_epoch")

LOOP = """    total, latest = 0.0, -np.inf
    for index in np.argsort(start):
        end = start[index] + seconds[index]
        total += max(0.0, end - max(start[index], latest))
        latest = max(latest, end)
    return total
"""

FIRST = 'arrivals.groupby(["tensor", "step"])["start"].transform("min")'
SHARE = "len(range(rank, examples, ranks))"
ALL = "batches, steps, examples - ranks * batch * steps"

WRONG = {
    "overlaps count twice": ("covered", (LOOP, "    return seconds.sum()\n"), "counts twice"),
    "gaps count too": ("covered", (LOOP, "    return np.max(start + seconds) - np.min(start)\n"), "gaps"),
    "only the end before": ("covered", ("max(latest, end)", "end"), "the latest end so far"),
    "not sorted": ("covered", ("np.argsort(start)", "range(len(start))"), "sort them first"),
    "milliseconds": ("covered", ("return total", "return 1000 * total"), "milliseconds"),
    "no return": ("covered", ("    return total\n", ""), "returns nothing"),
    "in place": ("covered", ("    total, latest", "    seconds += start\n    total, latest"), "work on a copy"),
    "first arrival of all": ("lateness", (FIRST, 'arrivals["start"].min()'), "very first arrival"),
    "first of the step": ("lateness", ('["tensor", "step"]', '["step"]'), "Group by tensor too"),
    "first of the tensor": ("lateness", ('["tensor", "step"]', '["tensor"]'), "group by step too"),
    "compared with itself": ("lateness", ('["tensor", "step"]', '["rank"]'), "with itself"),
    "the sum": ("lateness", (".mean()", ".sum()"), "return the mean"),
    "the worst": ("lateness", (".mean()", ".max()"), "worst case"),
    "the sign": ("lateness", ('arrivals["start"] - first', 'first - arrivals["start"]'), "sign"),
    "a new column": ("lateness", ("    behind =", '    arrivals["first"] = first\n    behind ='), "add no columns"),
    "a row for each arrival": ("lateness", ('.groupby(arrivals["rank"]).mean()', ""), "three ranks are late"),
    "small batches forgotten": ("steps_per_epoch", ("-(-share // batch)", "share // batch"), "smaller batch"),
    "one batch too many": ("steps_per_epoch", ("-(-share // batch)", "share // batch + 1"), "no further batch"),
    "all shares alike": ("steps_per_epoch", (SHARE, "examples // ranks"), "the first ranks have one more"),
    "the most, not the least": ("steps_per_epoch", ("min(shares)", "max(shares)"), "has not so many"),
    "the last counts as full": ("steps_per_epoch", ("min(shares) // batch", "min(batches)"), "full batches"),
    "left on one rank": ("steps_per_epoch", ("- ranks * batch", "- batch"), "on every rank"),
    "what is used": ("steps_per_epoch", ("examples - ranks", "ranks"), "that are used"),
    "only the steps": ("steps_per_epoch", (ALL, "steps"), "(batches, steps, left)"),
}


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise, capsys):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert capsys.readouterr() == ("", "")
    assert all(verdict.passed for verdict in check(solution).verdicts)


@pytest.mark.parametrize(("exercise", "edit", "word"), WRONG.values(), ids=WRONG)
def test_a_mistake_costs_points_and_is_named(answer, exercise, edit, word, capsys):
    assert points(answer(NOTEBOOK, exercise, edit), 6) < 6
    said = capsys.readouterr()
    assert word in said.out
    assert said.err == ""  # nbgrader gives nothing for a cell that warns


@pytest.mark.parametrize("exercise", EXERCISES)
def test_doing_nothing_earns_nothing(exercise):
    for result in (None, 0, 0.0, [], ""):

        def lazy(*arguments, result=result):
            return result

        lazy.__name__ = exercise
        assert points(lazy, 6) == 0.0


def test_another_way_is_right_too():
    def covered(start, seconds):
        grid = np.unique(np.concatenate([start, start + seconds]))
        middle = (grid[1:] + grid[:-1]) / 2
        inside = ((middle > start[:, None]) & (middle < (start + seconds)[:, None])).any(axis=0)
        return float(np.diff(grid)[inside].sum())

    def lateness(arrivals):
        wide = arrivals.pivot(index=["tensor", "step"], columns="rank", values="start")
        return wide.sub(wide.min(axis=1), axis=0).mean().to_dict()

    assert points(covered, 6) == points(lateness, 6) == 6.0
