from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import stragglers

TIMES = [stragglers.normal(0.05), stragglers.lognormal(0.1), stragglers.exponential(0.05)]


@pytest.mark.parametrize("time", TIMES, ids=lambda time: time.name)
def test_the_mean_is_one_and_the_formula_is_what_is_simulated(time):
    assert stragglers.expected_maximum(time, 1) == pytest.approx(1, abs=1e-4)
    for ranks in (4, 100, 2048):
        drawn = stragglers.simulate(time, ranks, steps=2000, seed=ranks)
        assert stragglers.expected_maximum(time, ranks) == pytest.approx(drawn.max(1).mean(), rel=0.01)
        assert stragglers.efficiency(drawn) == pytest.approx(1 / stragglers.expected_maximum(time, ranks), rel=0.01)


@pytest.mark.parametrize("make", [stragglers.normal, stragglers.lognormal, stragglers.exponential])
def test_the_spread_is_the_standard_deviation(make):
    drawn = stragglers.simulate(make(0.2), 1000, steps=200)
    assert drawn.std() == pytest.approx(0.2, rel=0.02)
    assert drawn.mean() == pytest.approx(1, rel=0.01)


def test_the_exponential_has_harmonic_numbers():
    harmonic = np.cumsum(1 / np.arange(1, 2049))[[0, 9, 2047]]
    maximum = stragglers.expected_maximum(stragglers.exponential(0.3), [1, 10, 2048])
    assert maximum == pytest.approx(0.7 + 0.3 * harmonic, rel=1e-4)


def test_two_normals_exactly():
    assert stragglers.expected_maximum(stragglers.normal(0.1), 2) == pytest.approx(1 + 0.1 / np.sqrt(np.pi), rel=1e-5)
