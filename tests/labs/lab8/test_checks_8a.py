"""Notebook 8a: other right answers, and what the checks compare with."""

from __future__ import annotations

import pytest

from labs.lab8_honest_benchmarks.lessons import checks_8a, noisy_curve


@pytest.mark.parametrize("runs, spread, difference", [(5, 0.03, 0.05), (10, 1.0, 1.0)])
def test_the_power_is_that_of_simulated_experiments(runs, spread, difference):
    import numpy as np

    from course_lib import statistics

    random = np.random.default_rng(0)
    draws = random.normal(0, spread, (3000, 2, runs)) + np.array([[difference], [0]])
    found = [(middle - half) > 0 for middle, half in (statistics.unpaired(*one) for one in draws)]
    assert np.mean(found) == pytest.approx(checks_8a.power(runs, spread, difference), abs=0.03)


def test_the_curve_reaches_the_target_where_it_says():
    assert noisy_curve.accuracy(noisy_curve.reached(0.8)) == pytest.approx(0.8)
