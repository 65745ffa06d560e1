from __future__ import annotations

import itertools

import numpy as np
import pytest

from labs.lab3_large_batch.lessons.tuning_budget import expected_best


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_expected_best_is_the_mean_over_all_draws(budget):
    scores = [0.7, 0.1, 0.8, 0.7]
    draws = [max(draw) for draw in itertools.product(scores, repeat=budget)]
    assert expected_best(scores, budget) == pytest.approx(np.mean(draws))
