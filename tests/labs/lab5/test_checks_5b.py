"""Notebook 5b: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab5_precision_and_memory.lessons import diagnosis_5b
from labs.lab5_precision_and_memory.lessons.checks_5b import check, points

NOTEBOOK = "5b_gradients_in_four_bits"


@pytest.mark.parametrize("exercise", ["mean_of_all", "factor", "choose"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


CAST = "result = cast(x)"
MEAN = "cast(total / np.float32(me.size))"
KEPT = "result[chunk[me.rank]] = mine"
LARGEST = "np.abs(gradient).max()"
FACTOR = "2.0 ** np.floor(np.log2(top / (ranks * largest)))"
ONE_ALL_ZERO = "if largest == 0:\n    return 1.0"
NUMBERS = '{"ring": 2 * (ranks - 1) / ranks, "twice": 2 * (ranks - 1) / ranks, "once": ranks - 1}'
BEST = "min(affordable, key=lambda choice: error(*choice))"
WRONG = {
    "two numbers": (
        "factor",
        [(f"largest_of_all({LARGEST})", "max(largest_of_all(gradient.max()), largest_of_all(-gradient.min()))")],
        "each rank sends one number",
    ),
    "parts not cast": ("mean_of_all", [(CAST, "result = x.copy()")], "whatever travels has to be `cast`"),
    "the mean not cast": ("mean_of_all", [(MEAN, "total / np.float32(me.size)")], "whatever travels has to be `cast`"),
    "the sum cast": ("mean_of_all", [(MEAN, "cast(total) / np.float32(me.size)")], "whatever travels"),
    "the sum cast, then divided and cast": (
        "mean_of_all", [(MEAN, "cast(cast(total) / np.float32(me.size))")], "their mean, rounded, is",
    ),
    "parts divided": (
        "mean_of_all",
        [(CAST, "result = cast(x / np.float32(me.size))"), (MEAN, "cast(total)")],
        "the parts are divided before they are rounded",
    ),
    "a sum": ("mean_of_all", [(MEAN, "cast(total)")], "the mean is asked for"),
    "keeps what it did not send": (
        "mean_of_all", [(KEPT, "result[chunk[me.rank]] = total / np.float32(me.size)")], "return different numbers",
    ),
    "own part not cast": (
        "mean_of_all", [("total = result[chunk[me.rank]] + sum(me.receive(rank) for rank in others)",
                         "total = x[chunk[me.rank]] + sum(me.receive(rank) for rank in others)")], "rank 0 returns",
    ),
    "works in place": ("mean_of_all", [(CAST, "x[:] = cast(x); result = x")], "in place"),
    "equal chunks only": (
        "mean_of_all",
        [("collectives.chunks(len(x), me.size)", "np.arange(me.size + 1) * (len(x) // me.size)")],
        "do all numbers belong to a rank",
    ),
    "no abs": ("factor", [(LARGEST, "gradient.max()")], "a negative number can be large"),
    "own largest": ("factor", [("largest = largest_of_all(np.abs(gradient).max())", f"largest = {LARGEST}")],
                    "none can know what the others have"),
    "asked, and not used": (
        "factor",
        [("largest = largest_of_all(np.abs(gradient).max())",
          f"largest_of_all({LARGEST})\nlargest = {LARGEST}")],
        "can't be added up",
    ),
    "N forgotten": ("factor", [("ranks * largest", "largest")], "but not the sum"),
    "not a power of two": ("factor", [(FACTOR, "top / (ranks * largest)")], "Which factors round nothing"),
    "rounded up": ("factor", [("np.floor", "np.ceil")], "but not the sum"),
    "rounded": ("factor", [("np.floor", "np.round")], "but not the sum"),
    "too careful": ("factor", [("ranks * largest", "ranks ** 2 * largest")], "octaves below the top"),
    "the mean size": ("factor", [(LARGEST, "np.abs(gradient).mean()")], "beyond the top at once"),
    "zeros divide": ("factor", [(ONE_ALL_ZERO, "pass")], "nothing but zeros"),
    "zeros don't ask": (
        "factor",
        [("largest = largest_of_all(np.abs(gradient).max())",
          "if not gradient.any():\n    return 1.0\nlargest = largest_of_all(np.abs(gradient).max())")],
        "every rank has to",
    ),
    "asks with all": ("factor", [("largest_of_all(np.abs(gradient).max())", "largest_of_all(np.abs(gradient)).max()")],
                      "One is enough"),
    "returns nothing": ("factor", [(f"return {FACTOR}", FACTOR)], "is a `return` missing"),
    "once counts as little": ("choose", [(NUMBERS, NUMBERS.replace("ranks - 1}", "1}"))], "are allowed"),
    "the ring counts as one": (
        "choose", [(NUMBERS, '{"ring": 1, "twice": 1, "once": ranks - 1}')], "are allowed",
    ),
    "always twice": ("choose", [(NUMBERS, '{"twice": 2 * (ranks - 1) / ranks}')], "a mean need not travel"),
    "always the ring": ("choose", [(NUMBERS, '{"ring": 2 * (ranks - 1) / ranks}')], "Another way does better"),
    "always once": ("choose", [(NUMBERS, '{"once": ranks - 1}')], "it can spend on bits"),
    "half of the budget": ("choose", [("int(budget / sent)", "max(3, int(budget / sent) // 2)")],
                           "budget is not spent"),
    "the most exponent bits": (
        "choose", [(BEST, "max(affordable, key=lambda one: (one[0] == 'twice', one[1][0]))")], "split otherwise",
    ),
    "the worst": ("choose", [(BEST, BEST.replace("min", "max"))], "has an error of"),
    "a format alone": ("choose", [(BEST, f"{BEST}[1][0]")], "2 values are expected"),
    "no such way": ("choose", [(BEST, f"('tree', {BEST}[1])")], "there is no way"),
    "one exponent bit": ("choose", [(BEST, "('twice', (1, 2))")], "2 to 8 bits of exponent"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_ways_that_send_too_much_are_told_apart(capsys):
    from labs.lab5_precision_and_memory.lessons import narrow_wire

    def mean_of_all(me, x, cast):
        return cast(me.all_reduce(cast(x)) / np.float32(me.size))

    assert points(mean_of_all, 6) == 4.5
    assert "not everybody needs all" in capsys.readouterr().out

    def mean_of_all(me, x, cast):
        if me.rank:
            me.send(cast(x), 0)
            return me.receive(0)
        mean = cast(sum((me.receive(rank) for rank in range(1, me.size)), cast(x)) / np.float32(me.size))
        for rank in range(1, me.size):
            me.send(mean, rank)
        return mean

    assert points(mean_of_all, 6) == 4.5
    assert "one rank does the work of all" in capsys.readouterr().out

    def mean_of_all(me, x, cast):
        return narrow_wire.ring_mean(me, x, cast)

    assert points(mean_of_all, 6) < 6
    assert "each partial sum is rounded" in capsys.readouterr().out

    def mean_of_all(me, x, cast):
        for rank in range(me.size):
            if rank != me.rank:
                me.receive(rank)
        return x

    assert points(mean_of_all, 6) < 1
    assert "Send to all first" in capsys.readouterr().out


def test_other_right_answers_are_right():
    def factor(gradient, ranks, top, largest_of_all):
        _, exponent = np.frexp(float(largest_of_all(max(gradient.max(), -gradient.min()))) * ranks)
        return float(np.ldexp(top, -int(exponent)))

    def choose(budget, ranks, error):
        way, each = ("once", budget) if ranks == 2 else ("twice", int(budget * ranks / (2 * (ranks - 1))))
        exponent = min((2, 3, 4, 5), key=lambda e: error(way, (e, max(0, each - 1 - e))) if e < each else np.inf)
        return way, (exponent, each - 1 - exponent)

    assert points(factor, 3) == 3.0
    assert points(choose, 3) == 3.0


RIGHT = {"A": 3, "B": 4, "C": 1, "D": 2}


@pytest.mark.parametrize(
    "answered, word",
    [
        ({**RIGHT, "A": 2}, "gone apart"),
        ({**RIGHT, "A": 6}, "the same weights"),
        ({**RIGHT, "B": 2}, "too short, not too long"),
        ({**RIGHT, "B": 5}, "which numbers are those lengths"),
        ({**RIGHT, "C": 3}, "long before a sum overflows"),
        ({**RIGHT, "D": 1}, "there was room"),
        ({**RIGHT, "D": 5}, "compare the tensors"),
        ({"A": 3, "B": 4, "C": 1}, "D has no diagnosis"),
        ([3, 4, 1, 2], "for each training"),
        (None, "is a `return` missing"),
    ],
)
def test_a_wrong_diagnosis_is_told_why(answered, word, capsys):
    def diagnosis():
        return answered

    assert diagnosis_5b.diagnosis_points(diagnosis, 4) < 4
    assert word in capsys.readouterr().out


def test_the_right_diagnosis_is_right(answer):
    solution = answer(NOTEBOOK, "diagnosis")
    assert solution() == RIGHT
    assert diagnosis_5b.diagnosis_points(solution, 4) == 4.0
