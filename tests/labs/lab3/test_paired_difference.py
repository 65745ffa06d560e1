from __future__ import annotations

import itertools

import numpy as np
import pytest

from labs.lab3_large_batch.lessons.paired_difference import expected_best, interval


def test_interval_of_a_paired_difference():
    mean, half = interval([0.84, 0.86, 0.85], [0.83, 0.84, 0.82])
    assert mean == pytest.approx(0.02)
    assert half == pytest.approx(4.303 * 0.01 / 3**0.5)


@pytest.mark.parametrize("pairs", [2, 5, 10])
def test_the_interval_holds_the_truth_in_95_percent(pairs):
    random = np.random.default_rng(0)
    seeds = random.normal(size=(4000, pairs))  # what the seed does to both cancels
    ours, theirs = seeds + random.normal(0.3, 0.1, seeds.shape), seeds + random.normal(0, 0.1, seeds.shape)
    intervals = [interval(a, b) for a, b in zip(ours, theirs)]
    assert np.mean([abs(mean - 0.3) < half for mean, half in intervals]) == pytest.approx(0.95, abs=0.012)


def test_one_pair_has_no_interval():
    with pytest.raises(ValueError, match="not for 1"):
        interval([0.8], [0.7])


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_expected_best_is_the_mean_over_all_draws(budget):
    scores = [0.7, 0.1, 0.8, 0.7]
    draws = [max(draw) for draw in itertools.product(scores, repeat=budget)]
    assert expected_best(scores, budget) == pytest.approx(np.mean(draws))
