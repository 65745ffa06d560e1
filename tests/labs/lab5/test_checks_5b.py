"""Notebook 5b: other answers, wrong and right."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab5_precision_and_memory.lessons import diagnosis_5b
from labs.lab5_precision_and_memory.lessons.checks_5b import points


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
    solution = answer("5b", "diagnosis")
    assert solution() == RIGHT
    assert diagnosis_5b.diagnosis_points(solution, 4) == 4.0
