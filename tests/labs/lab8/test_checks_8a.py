"""Notebook 8a: other right answers, and what the checks compare with."""

from __future__ import annotations

import pytest

from labs.lab8_honest_benchmarks.lessons import checks_8a, noisy_curve
from labs.lab8_honest_benchmarks.lessons.checks_8a import points


def test_the_normal_approximation_is_good_enough(answer):
    """The textbook's formula with normal quantiles, which is one run short now and then."""
    textbook = "np.ceil(2 * ((1.96 + 0.8416) * spread / difference) ** 2)"
    assert points(answer("8a", "runs_needed", ("return enough", f"return {textbook}")), 4) == 4.0


def test_a_running_mean_in_seconds_is_as_good(answer):
    smooth = "np.array([accuracies[np.abs(seconds - x) <= 5].mean() for x in seconds])"
    assert points(answer("8a", "time_to_target", ("isotonic_regression(accuracies).x", smooth)), 4) == 4.0


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


def test_welchs_interval_is_right_too(answer):
    assert points(answer("8a", "ratio_interval", ("statistics.unpaired", "statistics.welch")), 3) == 3.0
