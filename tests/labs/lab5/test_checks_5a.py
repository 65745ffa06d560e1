"""Notebook 5a: other right answers, and where a weight stops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course_lib import precision
from labs.lab5_precision_and_memory.lessons import checks_5a
from labs.lab5_precision_and_memory.lessons.checks_5a import points


def test_the_library_s_rounding_is_right():
    def quantise(x, exponent, mantissa):
        return precision.quantise(x, exponent, mantissa)

    assert points(quantise, 5) == 5.0


def test_another_bound_is_right():
    def bound(maxima):
        logs = np.log2(maxima[-12:])
        return float(2 ** (logs.max() + 0.5 + logs.std()))

    assert points(bound, 4) == 4.0


@pytest.mark.parametrize("target", (1.0, *checks_5a.TARGETS))
@pytest.mark.parametrize("rate", [0.1, 0.01])
@pytest.mark.parametrize("mantissa", [7, 10])
def test_a_weight_stops_where_the_derivation_says(target, rate, mantissa):
    spacing = 2.0 ** (math.floor(math.log2(target)) - mantissa)
    right = spacing / (2 * rate)
    start = target + 1.5 * right  # as in the check's message
    assert math.frexp(start)[1] == math.frexp(target)[1]  # no power of two between
    assert right - spacing <= checks_5a.descend(target, rate, mantissa, start) <= right + spacing
