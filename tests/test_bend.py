from __future__ import annotations

import numpy as np
import pytest

from course_lib import bend

BATCHES = 2.0 ** np.arange(2, 13)


def test_the_fit_finds_floor_and_bend_again():
    assert bend.fit(BATCHES, bend.updates(BATCHES, 30, 400)) == pytest.approx((30, 400))


def test_errors_count_relative_to_the_updates():
    random = np.random.default_rng(0)
    noisy = bend.updates(BATCHES, 30, 400) * random.lognormal(0, 0.05, (200, len(BATCHES)))
    floors, bends = np.transpose([bend.fit(BATCHES, row) for row in noisy])
    assert np.median(floors) == pytest.approx(30, rel=0.02)
    assert np.median(bends) == pytest.approx(400, rel=0.02)


def test_at_the_bend_it_takes_twice_the_floor():
    assert bend.updates(400, 30, 400) == 60
    assert bend.updates(1, 30, 400) == pytest.approx(2 * bend.updates(2, 30, 400), rel=0.01)
