"""Lab 3: the solutions agree with the library; what its tables are read with."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from course_lib.optimizers import schedules
from labs.lab3_large_batch.lessons import critical_batch, gradient_noise, matched
from labs.lab3_large_batch.lessons.tuning_budget import expected_best

BATCHES = 2.0 ** np.arange(2, 13)


def test_the_noise_and_the_floor_are_those_of_the_library(answer):
    random = np.random.default_rng(3)
    small, large = random.normal(1, 2, (30, 4)), random.normal(1, 0.5, (20, 4))
    squares = [np.mean(np.sum(g**2, axis=1)) for g in (small, large)]
    assert answer("3a", "noise_scale")(small, large, 4, 64) == pytest.approx(
        gradient_noise.noise_scale(squares, (4, 64))
    )
    batches, updates = np.array([4.0, 16, 256]), np.array([900.0, 300, 40])
    assert answer("3a", "floor_and_bend")(batches, updates) == pytest.approx(critical_batch.fit(batches, updates))


def test_rates_and_batches_are_those_of_the_library(answer):
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


def test_the_fit_finds_the_curve_again():
    assert critical_batch.fit(BATCHES, critical_batch.updates(BATCHES, 30, 400)) == pytest.approx((30, 400))


def test_errors_count_relative_to_the_updates():
    random = np.random.default_rng(0)
    noisy = critical_batch.updates(BATCHES, 30, 400) * random.lognormal(0, 0.05, (200, len(BATCHES)))
    minima, critical = np.transpose([critical_batch.fit(BATCHES, row) for row in noisy])
    assert np.median(minima) == pytest.approx(30, rel=0.02)
    assert np.median(critical) == pytest.approx(400, rel=0.02)


def test_at_the_critical_batch_size_it_takes_twice_the_minimum():
    assert critical_batch.updates(400, 30, 400) == 60
    assert critical_batch.updates(1, 30, 400) == pytest.approx(2 * critical_batch.updates(2, 30, 400), rel=0.01)


def test_a_run_is_compared_at_its_own_loss_with_its_own_seed():
    theirs = pd.DataFrame(
        {"seed": [1, 1, 2, 2], "loss": [0.1, 0.4, 0.1, 0.4], "accuracy": [90.0, 80.0, 0.0, 0.0], "epochs": [8, 2, 8, 2]}
    )
    ours = pd.DataFrame({"seed": [1, 1, 3], "loss": [0.2, 0.9, 0.2], "accuracy": [84.0, 90.0, 84.0], "epochs": 80})
    (row,) = matched.differences(ours, theirs, "loss", ["accuracy"]).to_dict("records")
    # 0.9 lies outside, seed 3 has no partner, and 0.2 is half-way between 0.1 and 0.4 in its logarithm
    assert row == {"seed": 1, "loss": 0.2, "accuracy": pytest.approx(-1), "epochs": 80}


def test_without_a_partner_the_columns_are_still_there():
    empty = pd.DataFrame({"seed": [], "loss": [], "accuracy": []})
    assert list(matched.differences(empty, empty, "loss", ["accuracy"])) == ["seed", "loss", "accuracy"]


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_expected_best_is_the_mean_over_all_draws(budget):
    scores = [0.7, 0.1, 0.8, 0.7]
    draws = [max(draw) for draw in itertools.product(scores, repeat=budget)]
    assert expected_best(scores, budget) == pytest.approx(np.mean(draws))
