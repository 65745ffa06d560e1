from __future__ import annotations

import numpy as np
import pytest

from labs.lab1_gradient_descent.lessons.checks_1a import check, points

NOTEBOOK = "1a_linear_model"
EXERCISES = ("years", "loss", "gradient", "update", "stop")

DAY = "seconds = work * 1e15 * day / rate"
ERROR = "error = w * x + b - y"
SLOPE = "dw, db = slope(w, b)"
STEP = "return w - eta * dw, b - eta * db"
VERDICT = 'return "converged" if len(quiet) == patience and quiet.all() else ""'

# Exercise, edits of its solution, the points of 12 that remain, a word of the reason.
MISTAKES = {
    "diverged from the smallest loss": ("stop", [("losses[0]", "min(losses)")], 8.4, "[5.0, 0.001, 3.0] ends below"),
    "a day without its seconds": ("years", [(DAY, "seconds = work * 1e15 / rate")], 0, "seconds of the day"),
    "days in place of years": ("years", [("seconds / day / 365", "seconds / day")], 0, "number of days"),
    "tera in place of peta": ("years", [("1e15", "1e12")], 0, "10¹²"),
    "years without brackets": ("years", [("seconds / day / 365", "seconds / 24 * 60 * 60 / 365")], 0, "Brackets"),
    "years multiplied": ("years", [("seconds / day / 365", "seconds / 60 * 60 * 24 * 365")], 0, "Brackets"),
    "days divided into years at once": ("years", [("seconds / day / 365", "seconds / 365")], 0, "divided by 365"),
    "hours of minutes": ("years", [(DAY, "seconds = work * 1e15 * 24 * 60 / rate")], 0, "factor 60"),
    "an hour for a day": ("years", [(DAY, "seconds = work * 1e15 * 60 * 60 / rate")], 0, "hours are"),
    "work and rate exchanged": ("years", [("return seconds / day / 365", "return day * 365 / seconds")], 0, "inverse"),
    "loss without 1/m": ("loss", [("np.mean", "np.sum")], 6, "divide by the number of examples"),
    "loss with 1/(2m)": ("loss", [("np.mean(error**2)", "0.5 * np.mean(error**2)")], 0, "not 1/(2m)"),
    "loss without the square": ("loss", [("error**2", "error")], 0, "square each"),
    "loss without the square, y first": ("loss", [("error**2", "-error")], 0, "y minus prediction: square each"),
    "absolute error": ("loss", [("error**2", "np.abs(error)")], 0, "absolute errors"),
    "square of the mean": ("loss", [("np.mean(error**2)", "np.mean(error) ** 2")], 6, "square of the mean"),
    "root of the mean square": ("loss", [("np.mean(error**2)", "np.mean(error**2) ** 0.5")], 0, "root"),
    "plus y": ("loss", [(ERROR, "error = w * x + b + y")], 0, "sign"),
    "loss without b": ("loss", [(ERROR, "error = w * x - y")], 0, "Is b in your prediction?"),
    "loss of each example": ("loss", [("np.mean(error**2)", "error**2")], 0, "mean over the examples"),
    "loss without a return": ("loss", [("return np.mean(error**2)", "np.mean(error**2)")], 0, "`return`"),
    "loss in words": ("loss", [("np.mean(error**2)", "'low'")], 0, "the loss should be 6.25; it is 'low'"),
    "gradient with the wrong sign": ("gradient", [(ERROR, "error = y - w * x - b")], 0, "sign of ∂L/∂w"),
    "gradient without 1/m": ("gradient", [("np.mean", "np.sum")], 6, "divide by their number m"),
    "gradient without the 2": (
        "gradient",
        [("2 * np.mean(error * x)", "np.mean(error * x)"), ("2 * np.mean(error)", "np.mean(error)")],
        0,
        "factor 2 is missing",
    ),
    "∂L/∂w without x": ("gradient", [("error * x", "error")], 6, "inner derivative"),
    "∂L/∂w with w": ("gradient", [("error * x", "error * w")], 6, "is x, not w"),
    "∂L/∂w without b": ("gradient", [("error * x", "(error - b) * x")], 6, "b is left out"),
    "∂L/∂b with x": ("gradient", [("np.mean(error)", "np.mean(error * x)")], 6, "no factor x here"),
    "wrong sign in ∂L/∂b only": ("gradient", [("2 * np.mean(error)", "-2 * np.mean(error)")], 6, "sign of ∂L/∂b"),
    "means multiplied": ("gradient", [("np.mean(error * x)", "np.mean(error) * np.mean(x)")], 9, "error times x"),
    "gradient swapped": ("gradient", [("return dw, db", "return db, dw")], 0, "swapped"),
    "gradient of each example": (
        "gradient",
        [("2 * np.mean(error * x)", "2 * error * x")],
        6,
        "mean over the examples",
    ),
    "gradient without a return": ("gradient", [("return dw, db", "dw, db")], 0, "`return`"),
    "only one derivative": ("gradient", [("return dw, db", "return dw")], 0, "two numbers"),
    "x changed in place": ("gradient", [(ERROR, "x *= w\nerror = x + b - y")], 0, "changed in place"),
    "uphill": ("update", [(STEP, "return w + eta * dw, b + eta * db")], 0, "uphill"),
    "nothing moved": ("update", [(STEP, "return w, b")], 0, "Nothing moved"),
    "η applied twice": (
        "update",
        [("eta * dw", "eta * eta * dw"), ("eta * db", "eta * eta * db")],
        0,
        "η is in it twice",
    ),
    "two steps": ("update", [("eta * dw", "2 * eta * dw"), ("eta * db", "2 * eta * db")], 0, "Two steps"),
    "η forgotten": ("update", [("eta * dw", "dw"), ("eta * db", "db")], 0, "η is missing"),
    "the step only": ("update", [(STEP, "return -eta * dw, -eta * db")], 0, "only the step"),
    "the slope elsewhere": ("update", [("slope(w, b)", "slope(b, w)")], 0, "at another place"),
    "w moved before the gradient of b": (
        "update",
        [(SLOPE, "w = w - eta * slope(w, b)[0]\nb = b - eta * slope(w, b)[1]"), (STEP, "return w, b")],
        6,
        "w was updated before",
    ),
    "b moved before the gradient of w": (
        "update",
        [(SLOPE, "b = b - eta * slope(w, b)[1]\nw = w - eta * slope(w, b)[0]"), (STEP, "return w, b")],
        6,
        "b was updated before",
    ),
    "nan never ends": (
        "stop",
        [("not np.isfinite(losses[-1]) or losses[-1] > 1000 * losses[0]", "losses[-1] > 1000 * losses[0]")],
        8.4,
        "nan",
    ),
    "diverged at the first rise": (
        "stop",
        [("losses[-1] > 1000 * losses[0]", "losses[-1] > losses[0]")],
        4.8,
        "rising",
    ),
    "a rise counts as settled": ("stop", [("np.abs(np.diff(recent))", "np.diff(recent)")], 8.4, "size of the change"),
    "an absolute change": (
        "stop",
        [("tolerance * np.abs(recent[:-1])", "tolerance")],
        3.6,
        "tolerance × the loss before",
    ),
    "a small loss counts as settled": (
        "stop",
        [("quiet = np.abs(np.diff(recent)) <= tolerance * np.abs(recent[:-1])", "quiet = recent[1:] <= tolerance")],
        3.6,
        "has converged",
    ),
    "stops at a rise": ("stop", [("quiet.all()", "(quiet.all() or losses[-1] > losses[-2])")], 8.4, "rise"),
    "the ends of the window": (
        "stop",
        [("quiet.all()", "abs(recent[-1] - recent[0]) <= tolerance * recent[0]")],
        8.4,
        "look at every step",
    ),
    "a change against the first loss": (
        "stop",
        [("tolerance * np.abs(recent[:-1])", "tolerance * losses[0]")],
        8.4,
        "not with the first loss",
    ),
    "one quiet step is enough": ("stop", [("quiet.all()", "quiet.any()")], 8.4, "in a row"),
    "too few losses": ("stop", [("len(quiet) == patience and quiet.all()", "quiet.all()")], 8.4, "go on"),
    "True and False": ("stop", [(VERDICT, "return bool(len(quiet) == patience and quiet.all())")], 3.6, "should be"),
    "None to go on": (
        "stop",
        [(VERDICT, 'return "converged" if len(quiet) == patience and quiet.all() else None')],
        8.4,
        "None",
    ),
    "the list grows": (
        "stop",
        [
            (
                "recent = np.array(losses[-patience - 1 :])",
                "losses.append(1.0)\nrecent = np.array(losses[-patience - 2 : -1])",
            )
        ],
        3.6,
        "changes the list of losses",
    ),
    "all of the history": (
        "stop",
        [("losses[-patience - 1 :]", "losses"), ("len(quiet) == patience", "len(quiet) >= patience")],
        3.6,
        "last three",
    ),
}


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_all_points(answer, exercise, capsys):
    assert points(answer(NOTEBOOK, exercise), 12) == 12.0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("exercise", "edits", "remain", "word"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_costs_points_and_is_named(answer, exercise, edits, remain, word, capsys):
    assert points(answer(NOTEBOOK, exercise, *edits), 12) == pytest.approx(remain, abs=0.1)
    said = capsys.readouterr()
    assert word in said.out
    assert said.err == ""  # nbgrader gives nothing for a cell that warns


@pytest.mark.parametrize("exercise", EXERCISES)
def test_doing_nothing_earns_nothing(exercise):
    for result in (None, 0.0, "", [], (0.0, 0.0)):

        def lazy(*arguments, result=result, **settings):
            return result

        lazy.__name__ = exercise
        assert points(lazy, 12) == 0.0


@pytest.mark.parametrize("exercise", EXERCISES)
def test_results_may_be_of_any_kind_of_number(answer, exercise):
    original = answer(NOTEBOOK, exercise)

    def other(*arguments, **settings):
        result = original(*arguments, **settings)
        return result if isinstance(result, str) else np.array(result)

    other.__name__ = exercise
    assert points(other, 12) == 12.0


def test_a_year_may_have_a_leap_day(answer):
    assert points(answer(NOTEBOOK, "years", ("365", "365.25")), 12) == 12.0


def test_the_check_tells_each_part_of_the_gradient(answer):
    report = str(check(answer(NOTEBOOK, "gradient", ("np.mean(error * x)", "np.mean(error)"))))
    assert [line[0] for line in report.splitlines()] == ["·", "✓", "·", "✓"]
