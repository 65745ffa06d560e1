"""Compressed gradients on real ranks against the emulation of notebook 6c."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.compression import LocalCommunicator
from course_lib.ranks import launch
from labs.lab6_beyond_synchronous.lessons import dense_training

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
UPDATES, RATE, SEED = 12, 0.05, 3
ENV = {**launch.ONE_THREAD, "COURSE_SLICE": "511"}
WAYS = (("dense", 1), ("memory", 0.01), ("warm-up", 0.001), ("signs", 1), ("low rank", 2))


@pytest.fixture(scope="module")
def real():
    def function():
        import horovod.tensorflow as hvd

        from labs.lab6_beyond_synchronous.lessons import horovod_wire

        hvd.init()
        return {way: horovod_wire.train(*way, RATE, SEED, UPDATES) for way in WAYS}

    return launch.call(function, 2, env=ENV)


@pytest.fixture(scope="module")
def emulated():
    """In a process of its own: in this one the numbers of threads, and with them last bits, were settled before."""

    def function():
        wires = {way: LocalCommunicator() for way in WAYS}
        found = {way: dense_training.train(*way, RATE, SEED, UPDATES, wire) for way, wire in wires.items()}
        return {way: (twin.weights, twin.network.draw(SEED), wires[way].sent(2)) for way, twin in found.items()}

    return launch.call(function, 1, env=ENV)[0]


@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_compute_what_their_emulation_does(way, real, emulated):
    expected, start, expected_sent = emulated[way]
    assert not np.array_equal(expected, start)
    for weights, sent in (found[way] for found in real):
        np.testing.assert_array_equal(weights, expected)  # bit for bit
        assert sent == expected_sent
