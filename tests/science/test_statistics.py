"""Student's t against published quantiles, and the intervals against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_ind

from course_lib import statistics

RUNS = np.random.default_rng(0).normal(5, 2, (4000, 2, 6))  # so many experiments, of twice six runs


@pytest.mark.parametrize(("runs", "t"), [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262), (20, 2.093), (10**6, 1.960)])
def test_quantiles_of_the_tables(runs, t):
    assert statistics.student(runs) == pytest.approx(t, abs=5e-4)


def test_an_interval_by_hand():
    # 1, 2, 3: mean 2, standard deviation 1, t 4.303
    assert statistics.mean([1, 2, 3]) == pytest.approx((2, 4.303 / 3**0.5), abs=1e-3)
    assert statistics.paired([2, 4, 6], [1, 2, 3]) == statistics.mean([1, 2, 3])
    # 1, 3 against 2, 6: variances 2 and 8, pooled 5, t of two degrees of freedom
    assert statistics.unpaired([1, 3], [2, 6]) == pytest.approx((-2, 4.303 * 5**0.5), abs=1e-3)
    assert statistics.band([1, 2, 3]) == pytest.approx(
        (2 - 4.303 * (4 / 3) ** 0.5, 2 + 4.303 * (4 / 3) ** 0.5), abs=1e-3
    )


def test_welchs_interval_is_that_of_scipy():
    ours, theirs = [2.83, 2.29, 2.68, 2.65, 2.44], [-0.50, 0.82, 2.60, 1.30]
    low, high = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert statistics.welch(ours, theirs) == pytest.approx(((low + high) / 2, (high - low) / 2))
    assert statistics.welch([1, 3], [2, 4]) == pytest.approx(statistics.unpaired([1, 3], [2, 4]))
    assert statistics.welch([0.9, 0.9], [0.8, 0.8]) == pytest.approx((0.1, 0.0))


def test_nineteen_of_twenty_intervals_hold_what_they_promise():
    means = [abs(middle - 5) < half for middle, half in (statistics.mean(one) for one, _ in RUNS)]
    differences = [abs(found) < half for found, half in (statistics.unpaired(*both) for both in RUNS)]
    bands = [
        low < other[0] < high
        for (low, high), (_, other) in ((statistics.band(one), (one, other)) for one, other in RUNS)
    ]
    for kept in (means, differences, bands):
        assert np.mean(kept) == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("pairs", [2, 5, 10])
def test_an_interval_of_pairs_holds_the_truth_in_95_percent(pairs):
    random = np.random.default_rng(0)
    seeds = random.normal(size=(4000, pairs))  # what the seed does to both cancels
    ours, theirs = seeds + random.normal(0.3, 0.1, seeds.shape), seeds + random.normal(0, 0.1, seeds.shape)
    intervals = [statistics.paired(a, b) for a, b in zip(ours, theirs)]
    assert np.mean([abs(mean - 0.3) < half for mean, half in intervals]) == pytest.approx(0.95, abs=0.012)


def test_one_run_has_no_interval():
    for refused in (
        lambda: statistics.mean([1.0]),
        lambda: statistics.unpaired([1.0], [1.0, 2.0]),
        lambda: statistics.welch([1.0], [1.0, 2.0]),
    ):
        with pytest.raises(ValueError, match="two runs or more"):
            refused()


# Of n values in their order, between which two the median lies with 95 % (Conover)
@pytest.mark.parametrize(("runs", "low", "high"), [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15)])
def test_a_median_lies_between_two_of_the_values(runs, low, high):
    assert statistics.median(range(runs, 0, -1)) == ((runs + 1) / 2, low, high)


def test_a_median_of_runs_that_never_end():
    endless = float("inf")
    assert statistics.median([1, 2, 3, 4, 5, endless]) == (3.5, 1, endless)
    assert statistics.median([1, 2, 3, endless, endless, endless])[0] == endless


def test_five_runs_have_no_interval_for_their_median():
    with pytest.raises(ValueError, match="six runs or more, not 5"):
        statistics.median(range(5))
