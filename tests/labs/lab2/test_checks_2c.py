"""Notebook 2c: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab2_horovod.lessons.checks_2c import check, points

NOTEBOOK = "2c_run_watch_tune"
EXERCISES = ("covered", "lateness", "steps_per_epoch", "bytes_per_step", "efficiency", "serial_fraction")

LOOP = """
for index in np.argsort(start):
    end = start[index] + seconds[index]
    total += max(0.0, end - max(start[index], latest))
    latest = max(latest, end)
"""
KEYS = '["tensor", "step"]'
MEAN = 'behind.groupby(arrivals["rank"]).mean()'
BEHIND = 'behind = arrivals["start"] - first'
SHARE = "len(range(rank, examples, ranks))"
ALL = "batches, steps, examples - ranks * batch * steps"
RING = "2 * (ranks - 1) / ranks * gradient"
RELATIVE = "alone / seconds * (ranks if weak else 1)"
FRACTION = "(a * b).sum() / (a**2).sum()"

WRONG = {
    "overlaps count twice": ("covered", (LOOP, "total = seconds.sum()"), "counts twice"),
    "gaps count too": ("covered", (LOOP, "total = np.max(start + seconds) - np.min(start)"), "gaps"),
    "only the end before": ("covered", ("max(latest, end)", "end"), "the latest end so far"),
    "not sorted": ("covered", ("np.argsort(start)", "range(len(start))"), "sort them first"),
    "milliseconds": ("covered", ("return total", "return 1000 * total"), "milliseconds"),
    "no return": ("covered", ("return total", "pass"), "returns nothing"),
    "in place": ("covered", ("total, latest = 0.0, -np.inf", "seconds += start; total, latest = 0, 0"), "in place"),
    "first arrival of all": (
        "lateness",
        (f'arrivals.groupby({KEYS})["start"].transform("min")', 'arrivals["start"].min()'),
        "very first arrival",
    ),
    "first of the step": ("lateness", (KEYS, '["step"]'), "Group by tensor too"),
    "first of the tensor": ("lateness", (KEYS, '["tensor"]'), "group by step too"),
    "compared with itself": ("lateness", (KEYS, '["rank"]'), "with itself"),
    "the sum": ("lateness", (MEAN, MEAN.replace("mean", "sum")), "return the mean"),
    "the worst": ("lateness", (MEAN, MEAN.replace("mean", "max")), "worst case"),
    "the sign": ("lateness", ('arrivals["start"] - first', 'first - arrivals["start"]'), "sign"),
    "a new column": ("lateness", (BEHIND, f'arrivals["first"] = first; {BEHIND}'), "add no columns"),
    "a row for each arrival": ("lateness", (MEAN, "behind"), "the lateness of three ranks should be"),
    "small batches forgotten": ("steps_per_epoch", ("-(-share // batch)", "share // batch"), "smaller batch"),
    "one batch too many": ("steps_per_epoch", ("-(-share // batch)", "share // batch + 1"), "no further batch"),
    "all shares alike": ("steps_per_epoch", (SHARE, "examples // ranks"), "the first ranks have one more"),
    "the most, not the least": ("steps_per_epoch", ("min(shares)", "max(shares)"), "has not so many"),
    "the last counts as full": ("steps_per_epoch", ("min(shares) // batch", "min(batches)"), "count full batches"),
    "left on one rank": ("steps_per_epoch", ("ranks * batch * steps", "batch * steps"), "on every rank"),
    "what is used": (
        "steps_per_epoch",
        ("examples - ranks * batch * steps", "ranks * batch * steps"),
        "that are used",
    ),
    "only the steps": ("steps_per_epoch", (ALL, "steps"), "batches, steps, left"),
    "elements in place of bytes": ("bytes_per_step", ("elements * itemsize", "elements"), "how many bytes"),
    "always float32": ("bytes_per_step", ("elements * itemsize", "elements * 4"), "size is an argument"),
    "one half of the ring": ("bytes_per_step", ("2 * (ranks - 1)", "(ranks - 1)"), "and then an all-gather"),
    "everybody to everybody": ("bytes_per_step", ("2 * (ranks - 1) / ranks", "(ranks - 1)"), "everybody"),
    "whole gradients travel": ("bytes_per_step", (RING, "2 * (ranks - 1) * gradient"), "a message is a chunk"),
    "twice, however many ranks": ("bytes_per_step", ("2 * (ranks - 1) / ranks", "2"), "the limit for many"),
    "the passes forgotten": ("bytes_per_step", ("exchange / passes", "exchange"), "Only one in `passes`"),
    "more passes, more bytes": ("bytes_per_step", ("exchange / passes", "exchange * passes"), "divide"),
    "no bytes returned": ("bytes_per_step", ("return exchange / passes", "pass"), "a `return` missing"),
    "the speed-up": ("efficiency", ("speedup / ranks", "speedup"), "That is the speed-up"),
    "strong for both": ("efficiency", (RELATIVE, "alone / seconds"), "Don't divide by N"),
    "weak for both": ("efficiency", ("ranks if weak else 1", "ranks"), "That is the speed-up"),
    "upside down": ("efficiency", ("alone / seconds", "seconds / alone"), "Upside down"),
    "the inverse": ("efficiency", ("speedup / ranks", "ranks / speedup"), "Upside down"),
    "multiplied": ("efficiency", ("speedup / ranks", "speedup * ranks"), "don't multiply"),
    "the first in place of one rank's": ("efficiency", ("seconds[ranks == 1]", "seconds[0]"), "wherever it stands"),
    "per cent": ("efficiency", ("speedup / ranks", "100 * speedup / ranks"), "not in per cent"),
    "halved in place": (
        "efficiency",
        ("alone = seconds[ranks == 1]", "alone = seconds[ranks == 1]; seconds /= 2"),
        "in place",
    ),
    "the parallel share": ("serial_fraction", (FRACTION, f"1 - {FRACTION}"), "parallel share"),
    "linear in S": ("serial_fraction", ("1 / speedup", "speedup"), "for 1/S, not for S"),
    "b without 1/N": ("serial_fraction", ("1 / speedup - 1 / ranks", "1 / speedup"), "b = 1/S − 1/N"),
    "divided by b²": ("serial_fraction", ("(a**2).sum()", "(b**2).sum()"), "Upside down"),
    "not divided": ("serial_fraction", (FRACTION, "(a * b).sum()"), "a² below"),
    "the mean of each": ("serial_fraction", (FRACTION, "(b[a > 0] / a[a > 0]).mean()"), "mean of"),
    "the last point": ("serial_fraction", (FRACTION, "b[-1] / a[-1]"), "use all points"),
    "an array": ("serial_fraction", (FRACTION, "b / np.maximum(a, 1e-9)"), "one number is expected"),
    "warnings": ("serial_fraction", (FRACTION, "(b / a).sum()"), "returns nan"),
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


def test_a_line_with_a_free_slope_is_not_the_law(capsys):
    def serial_fraction(ranks, speedup):
        return np.polyfit(1 / ranks, 1 / speedup, 1)[1] if len(ranks) > 1 else 0.3

    assert 0 < points(serial_fraction, 3) < 3
    assert "one number only" in capsys.readouterr().out
