"""Compressed gradients on real ranks against the emulation of notebook 6c."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.compression import Here
from course_lib.ranks import launch
from labs.lab6_beyond_synchronous.lessons import dense_training

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
UPDATES, RATE, SEED = 12, 0.05, 3
WAYS = (("dense", 1), ("memory", 0.01), ("warm-up", 0.001), ("signs", 1), ("low rank", 2))


@pytest.fixture(scope="module", autouse=True)
def sliced():
    """Of this process, and of the ranks, which inherit its environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_SLICE", "511")
        for variable, value in launch.ONE_THREAD.items():
            patch.setenv(variable, value)
        dense_training.fashion.cache_clear()
        yield
    dense_training.fashion.cache_clear()


@pytest.fixture(scope="module")
def real():
    def function():
        import horovod.tensorflow as hvd

        from labs.lab6_beyond_synchronous.lessons import horovod_wire

        hvd.init()
        return {way: horovod_wire.train(*way, RATE, SEED, UPDATES) for way in WAYS}

    return launch.call(function, 2, env=launch.ONE_THREAD)


@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_compute_what_their_emulation_does(way, real):
    wire = Here()
    twin = dense_training.train(*way, RATE, SEED, UPDATES, wire)
    assert not np.array_equal(twin.weights, twin.network.draw(SEED))
    for weights, sent in (found[way] for found in real):
        np.testing.assert_array_equal(weights, twin.weights)  # bit for bit
        assert sent == wire.sent(2)
