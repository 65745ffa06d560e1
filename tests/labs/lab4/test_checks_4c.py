"""Notebook 4c: answers of another kind."""

from __future__ import annotations

import numpy as np

from labs.lab4_communication.lessons.checks_4c import check, points


def test_a_number_of_numpys_is_a_number():
    def training_seconds(examples, epochs, ranks, images, step):
        return np.ceil(np.float64(examples) * epochs / (ranks * images)) * step

    assert points(training_seconds, 3) == 3.0


def test_a_guess_without_a_prediction_is_named():
    def calibrate(predict, published, low, high):
        return (low + high) / 3

    def outside(predict, published, low, high):
        return high + 1

    outside.__name__ = "calibrate"
    assert "`predict` is never called" in check(calibrate).verdicts[0].reason
    assert "outside of the interval" in check(outside).verdicts[0].reason
