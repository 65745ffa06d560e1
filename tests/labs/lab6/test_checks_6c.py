"""Notebook 6c: other right answers; the solutions train as the library does."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import compression
from labs.lab6_beyond_synchronous.lessons import dense_training, diagnosis_6c, own_ways


@pytest.fixture
def sliced(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    dense_training.fashion.cache_clear()
    yield
    dense_training.fashion.cache_clear()


@pytest.mark.parametrize("exercise", ["send_largest", "send_velocity", "low_rank_mean"])
def test_the_learner_s_version_trains_as_the_library_s_does(exercise, answer, sliced):
    here, network, solution = compression.LocalCommunicator(), dense_training.Network(), answer("6c", exercise)
    ours, theirs = {
        "send_largest": (own_ways.Largest(solution, 0.01), compression.TopK(here, 0.01)),
        "send_velocity": (own_ways.Corrected(solution, 0.01), compression.TopK(here, 0.01, momentum=0.9)),
        "low_rank_mean": (
            own_ways.LowRank(solution, network, 2), compression.PowerSGD(here, network.shapes, 2, memory=False),
        ),
    }[exercise]  # fmt: skip
    weights = [
        dense_training.Training(way.compressed_mean, 0.02, 1, momentum=0, updates=15, batch=16).run().weights
        for way in (ours, theirs)
    ]
    np.testing.assert_allclose(*weights, rtol=0, atol=1e-5)
    assert np.abs(weights[0] - network.draw(1)).max() > 1e-3


def test_the_symptoms_are_those_that_the_reasons_name(sliced):
    seen = {number: diagnosis_6c.observe(number, 60).whole for number in range(7)}

    def found(number, line):
        (value,) = [value for name, value in seen[number].items() if line in name]
        return float(value.rstrip("%"))

    assert found(1, "waits / of") == 1.0 and all(found(number, "waits / of") > 2 for number in (0, 2, 3, 4, 5, 6))
    assert found(5, "mean size") < 1.3 and min(found(number, "mean size") for number in (1, 2)) > 2
    assert found(3, "positive") == 100 and all(found(number, "positive") < 95 for number in (0, 1, 4, 5))
    assert found(2, "update before") > 80 and found(4, "update before") < 10
