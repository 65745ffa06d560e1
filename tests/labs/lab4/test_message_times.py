"""Two models of a superstep, on times that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost.allreduce import Link
from labs.lab4_communication.lessons import message_times


def test_g_and_l_are_found_where_the_model_holds():
    sizes = np.array([1e3, 1e4, 1e6])
    assert message_times.bsp(sizes, 3e-3 + 2e-9 * sizes + 5e-5, 3e-3) == pytest.approx((2e-9, 5e-5))


def test_both_models_of_a_superstep():
    seconds = [1e-3 + 1e-9 * size + 1e-4 for size, _ in message_times.STEPS]
    table = message_times.compare(1e-3, seconds, Link(2e-5, 1e9))
    assert list(table["used"]) == ["fit", "fit", "fit", "test", "test"]
    assert table["BSP, µs"].to_numpy() == pytest.approx(1e6 * np.array(seconds))
    # One message and the barrier's, 20 µs each; 15 more with sixteen writes. BSP knows no writes.
    assert table["α–β, µs"][3] == pytest.approx(1e3 + 40 + 131.073)
    assert table["α–β, µs"][4] - table["α–β, µs"][3] == pytest.approx(15 * 20)
    assert table["BSP, µs"][4] == table["BSP, µs"][3]
