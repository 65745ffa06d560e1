from __future__ import annotations

import numpy as np
import pytest

from labs.lab3_large_batch.lessons import critical_batch

BATCHES = 2.0 ** np.arange(2, 13)


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
