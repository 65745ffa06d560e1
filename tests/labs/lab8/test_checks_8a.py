"""Notebook 8a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import pytest

from labs.lab8_honest_benchmarks.lessons import checks_8a, noisy_curve
from labs.lab8_honest_benchmarks.lessons.checks_8a import check, points

NOTEBOOK = "8a_measure"


@pytest.mark.parametrize("name", ["ratio_interval", "runs_needed", "time_to_target"])
def test_the_solution_gets_full_points(answer, name):
    solution = answer(NOTEBOOK, name)
    assert points(solution, 4) == 4.0, str(check(solution))


LOGARITHMS = "statistics.unpaired(np.log(ours), np.log(theirs))"
BACK = "return np.exp(difference), np.exp(difference - half), np.exp(difference + half)"
MEANS = """
(a, s), (b, r) = statistics.mean(ours), statistics.mean(theirs)
return a / b, (a - s) / (b + r), (a + s) / (b - r)
"""
NORMAL = "1.96 * np.sqrt(np.var(np.log(ours), ddof=1) / len(ours) + np.var(np.log(theirs), ddof=1) / len(theirs))"
INSIDE = "norm.cdf(difference / (spread * np.sqrt(2 / enough)) - statistics.student(2 * enough - 1)) < 0.8"
GROWN = "isotonic_regression(accuracies).x"
BETWEEN = "return float(np.interp(target, grown[i - 1 : i + 1], seconds[i - 1 : i + 1]))"

WRONG = {
    "a difference of seconds": (
        "ratio_interval",
        [
            (LOGARITHMS, "statistics.unpaired(ours, theirs)"),
            (BACK, "return difference, difference - half, difference + half"),
        ],
        "a ratio has no unit",
    ),
    "theirs over ours": (
        "ratio_interval",
        [(LOGARITHMS, "statistics.unpaired(np.log(theirs), np.log(ours))")],
        "above 1",
    ),
    "logarithms never brought back": (
        "ratio_interval",
        [(BACK, "return difference, difference - half, difference + half")],
        "bring it back",
    ),
    "only the ratio": ("ratio_interval", [(BACK, "return np.exp(difference)")], "3 values are expected"),
    "difference over their mean": (
        "ratio_interval",
        [
            (LOGARITHMS, "statistics.unpaired(ours, theirs)"),
            (
                BACK,
                "b = theirs.mean(); return 1 + difference / b, *(1 + (difference + h) / b for h in (-half, half))",
            ),
        ],
        "who stands above the line must not matter",
    ),
    "ends of both intervals": ("ratio_interval", [(BACK, MEANS)], "as wide as it needs to be"),
    "a normal quantile": ("ratio_interval", [(BACK, f"half = {NORMAL}\n{BACK}")], "the spread is uncertain too"),
    "standard deviation, not error": (
        "ratio_interval",
        [(BACK, f"half = half * len(ours) ** 0.5\n{BACK}")],
        "as wide as it needs to be",
    ),
    "the shortest times": (
        "ratio_interval",
        [(BACK, "return ours.min() / theirs.min(), ours.min() / theirs.max(), ours.max() / theirs.min()")],
        "of 400 experiments",
    ),
    "sorts in place": ("ratio_interval", [(BACK, f"ours.sort()\n{BACK}")], "changed in place"),
    "as wide as the difference": (
        "runs_needed",
        [(INSIDE, "1.96 * spread * np.sqrt(2 / enough) > difference")],
        "only one of the two sides",
    ),
    "one side scatters": ("runs_needed", [("np.sqrt(2 / enough)", "np.sqrt(1 / enough)")], "only one of the two sides"),
    "of both sides together": ("runs_needed", [("return enough", "return 2 * enough")], "are enough for 80 %"),
    "spread of a run": ("runs_needed", [("np.sqrt(2 / enough)", "1 / enough")], "both sides scatter"),
    "a fraction of a run": ("runs_needed", [("return enough", "return enough + 0.5")], "a whole number"),
    "sure to find it": ("runs_needed", [("0.8", "0.99")], "are enough for 80 %"),
    "the first look": ("time_to_target", [(GROWN, "accuracies")], "One lucky look"),
    "the best so far": ("time_to_target", [(GROWN, "np.maximum.accumulate(accuracies)")], "One lucky look"),
    "the look after the target": ("time_to_target", [(BETWEEN, "return float(seconds[i])")], "who looks often, wins"),
    "a mean of five looks": (
        "time_to_target",
        [(GROWN, "np.convolve(accuracies, np.ones(5) / 5, 'full')[: len(accuracies)]")],
        "who looks often, wins",
    ),
    "number of the look": ("time_to_target", [(BETWEEN, "return i")], "the number of the look"),
    "the end where it never is": ("time_to_target", [("math.inf", "seconds[-1]")], "math.inf"),
    "nothing": ("time_to_target", [(BETWEEN, "pass")], "returns nothing"),
}


@pytest.mark.parametrize("exercise, edits, words", WRONG.values(), ids=WRONG)
def test_a_mistake_is_named(answer, exercise, edits, words):
    wrong = answer(NOTEBOOK, exercise, *edits)
    assert points(wrong, 4) < 4.0
    assert words in str(check(wrong))


def test_the_normal_approximation_is_good_enough(answer):
    """The textbook's formula with normal quantiles, which is one run short now and then."""
    textbook = "np.ceil(2 * ((1.96 + 0.8416) * spread / difference) ** 2)"
    assert points(answer(NOTEBOOK, "runs_needed", ("return enough", f"return {textbook}")), 4) == 4.0


def test_a_running_mean_in_seconds_is_as_good(answer):
    smooth = "np.array([accuracies[np.abs(seconds - x) <= 5].mean() for x in seconds])"
    assert points(answer(NOTEBOOK, "time_to_target", (GROWN, smooth)), 4) == 4.0


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
    assert points(answer(NOTEBOOK, "ratio_interval", (LOGARITHMS, LOGARITHMS.replace("unpaired", "welch"))), 3) == 3.0
