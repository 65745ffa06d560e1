"""Notebook 2c's measurements: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.assess.exercises.scaling import check, points

NOTEBOOK = "2c_run_watch_tune"


@pytest.mark.parametrize("exercise", ["bytes_per_step", "efficiency", "serial_fraction"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 3) == 3.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


WRONG = {
    "elements in place of bytes": ("bytes_per_step", [("elements * itemsize", "elements")], "how many bytes"),
    "always float32": ("bytes_per_step", [("elements * itemsize", "elements * 4")], "size is an argument"),
    "one half of the ring": ("bytes_per_step", [("2 * (ranks - 1)", "(ranks - 1)")], "and then an all-gather"),
    "everybody to everybody": ("bytes_per_step", [("2 * (ranks - 1) / ranks", "(ranks - 1)")], "everybody"),
    "whole gradients travel": ("bytes_per_step", [(" / ranks * gradient", " * gradient")], "a message is a chunk"),
    "twice, however many ranks": ("bytes_per_step", [("2 * (ranks - 1) / ranks", "2")], "the limit for many"),
    "the passes forgotten": ("bytes_per_step", [("exchange / passes", "exchange")], "Only one in `passes`"),
    "more passes, more bytes": ("bytes_per_step", [("exchange / passes", "exchange * passes")], "divide"),
    "nothing returned": ("bytes_per_step", [("return exchange", "exchange = exchange")], "a `return`"),
    "the speed-up": ("efficiency", [("return speedup / ranks", "return speedup")], "That is the speed-up"),
    "strong for both": ("efficiency", [(" * (ranks if weak else 1)", "")], "Don't divide by N"),
    "weak for both": ("efficiency", [("(ranks if weak else 1)", "ranks")], "That is the speed-up"),
    "upside down": ("efficiency", [("alone / seconds *", "seconds / alone *")], "Upside down"),
    "the inverse": ("efficiency", [("speedup / ranks", "ranks / speedup")], "Upside down"),
    "the first in place of one rank's": ("efficiency", [("seconds[ranks == 1]", "seconds[0]")], "wherever it stands"),
    "per cent": ("efficiency", [("speedup / ranks", "100 * speedup / ranks")], "not in per cent"),
    "in place": ("efficiency", [("alone = seconds[ranks == 1]", "alone = seconds[ranks == 1]; seconds /= 2")], "copy"),
    "the parallel share": ("serial_fraction", [("return (a", "return 1 - (a")], "parallel share"),
    "linear in S": ("serial_fraction", [("1 / speedup - ", "speedup - ")], "for 1/S, not for S"),
    "b without 1/N": ("serial_fraction", [("1 / speedup - 1 / ranks", "1 / speedup")], "b = 1/S − 1/N"),
    "divided by b²": ("serial_fraction", [("(a**2).sum()", "(b**2).sum()")], "Upside down"),
    "not divided": ("serial_fraction", [(" / (a**2).sum()", "")], "a² below"),
    "the mean of each": (
        "serial_fraction",
        [("(a * b).sum() / (a**2).sum()", "(b[a > 0] / a[a > 0]).mean()")],
        "mean of",
    ),
    "the last point": ("serial_fraction", [("(a * b).sum() / (a**2).sum()", "b[-1] / a[-1]")], "use all points"),
    "an array": (
        "serial_fraction",
        [("(a * b).sum() / (a**2).sum()", "b / np.maximum(a, 1e-9)")],
        "one number is expected",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 3) < 3
    assert word in capsys.readouterr().out


def test_a_line_with_a_free_slope_is_not_the_law(capsys):
    def serial_fraction(ranks, speedup):
        return np.polyfit(1 / ranks, 1 / speedup, 1)[1] if len(ranks) > 1 else 0.3

    assert 0 < points(serial_fraction, 3) < 3
    assert "one number only" in capsys.readouterr().out
