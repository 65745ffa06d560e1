"""Notebook 3e: other answers, wrong and right."""

from __future__ import annotations

import numpy as np

from course_lib import statistics
from labs.lab3_large_batch.lessons import tuning_budget
from labs.lab3_large_batch.lessons.checks_3e import points


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
