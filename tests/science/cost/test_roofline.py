from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import roofline


def test_the_roof_is_memory_up_to_the_ridge_and_the_peak_beyond_it():
    peak, bandwidth = 200e9, 50e9
    assert roofline.ridge(peak, bandwidth) == 4
    assert roofline.attainable(1, peak, bandwidth) == 50e9
    assert roofline.attainable(4, peak, bandwidth) == 200e9
    assert np.array_equal(roofline.attainable(np.array([2, 100]), peak, bandwidth), [100e9, 200e9])


def test_a_dense_layers_work_traffic_and_intensity():
    assert roofline.dense_flops(2, 3, 5) == 60
    assert roofline.dense_bytes(2, 3, 5) == 4 * (6 + 15 + 10)
    # float32: half a FLOP for each byte and image while the weights are most of the bytes
    for batch in (1, 2, 8):
        assert roofline.dense_intensity(batch, 8192, 8192) == pytest.approx(batch / 2, rel=0.01)
    assert roofline.dense_intensity(10**9, 784, 10) == pytest.approx(2 * 784 * 10 / 4 / 794, rel=1e-3)


def test_the_best_of_several_times_is_of_one_call():
    calls = []
    seconds = roofline.best_time(lambda: calls.append(np.ones(10_000).sum()), repeats=3, at_least=1e-3)
    assert 0 < seconds < 1e-3
    assert len(calls) > 3


def test_what_is_measured_is_a_rate():
    assert roofline.measure_peak(size=128, repeats=1) > 1e7
    assert roofline.measure_bandwidth(size=2**20, repeats=1) > 1e7
    assert roofline.measure_dense(4, 64, 32, repeats=1) > 0
    assert roofline.last_level_cache() >= 2**15
