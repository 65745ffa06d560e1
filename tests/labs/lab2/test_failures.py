"""What failures cost: Young's interval against the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab2_horovod.lessons.failures import simulate, young


def test_young_by_hand():
    assert young(30, 5.8 * 365.25 * 86_400, 16_384) == pytest.approx(818.7, rel=1e-3)
    assert young(2, 100) == 20


def test_the_simulation_agrees_with_the_first_order_where_little_is_lost():
    write, restart, mtbf, ranks = 1.0, 5.0, 1e6, 10
    intervals = young(write, mtbf, ranks) * np.array([0.5, 1, 2])
    formula = write / intervals + (intervals / 2 + restart) * ranks / mtbf
    assert simulate(intervals, write, restart, mtbf, ranks, failures=40_000) == pytest.approx(formula, rel=0.03)


def test_young_s_interval_is_the_best_of_many():
    intervals = np.geomspace(20, 2e4, 61)
    lost = simulate(intervals, 2.0, 10.0, 1e6, 10, failures=100_000)
    assert intervals[lost.argmin()] == pytest.approx(young(2.0, 1e6, 10), rel=0.3)


def test_everything_is_lost_when_no_interval_ends():
    assert simulate(1e9, 1, 1, 1000, 1) == 1
