"""Notebook 3b: the solutions agree with the library."""

from __future__ import annotations

import pytest

from course_lib.optimizers import schedules


def test_the_solutions_agree_with_the_library(answer):
    scaled, linear, root = answer("3b", "scaled_rate"), ("same examples", "mean"), ("one update", "covariance")
    assert scaled(0.1, 96, 64, linear) == pytest.approx(schedules.linear_scaling(0.1, 96, 64))
    assert scaled(0.1, 96, 64, root) == pytest.approx(schedules.sqrt_scaling(0.1, 96, 64))
    assert answer("3b", "legw")(0.1, 0.5, 96, 64) == pytest.approx(schedules.legw(0.1, 0.5, 96, 64))
    warm = schedules.WarmUp(0.8, 5, start=0.1)
    assert [answer("3b", "warm_up")(t, 0.8, 5, 0.1) for t in range(8)] == pytest.approx(
        [float(warm(t)) for t in range(8)]
    )
    stages = schedules.growth(0.1, 64, (3, 6, 8), 4, 1024)
    assert answer("3b", "growth")(0.1, 64, (3, 6, 8), 4, 1024) == [pytest.approx(stage) for stage in stages]
    assert answer("3b", "updates")(stages, 9, 12_345) == 3 * 192 + 3 * 48 + 3 * 12
