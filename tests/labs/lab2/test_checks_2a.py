"""Notebook 2a: the ring for any number of ranks, length and type; what is right and no ring."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.collectives import simulated


def try_ring(ring, ranks, length, dtype):
    """The ring's sums against np.sum, and its messages against the bound."""
    random = np.random.default_rng([ranks, length])
    values = list(random.integers(0, 10, (ranks, length)).astype(dtype))  # sums below 100: exact in every type
    outcome = simulated.run(ring, values)
    for result in outcome.results:
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.sum(values, axis=0))
    sent = np.zeros(ranks)
    for message in outcome.messages:
        assert message.target == (message.source + 1) % ranks
        sent[message.source] += message.payload.nbytes
    itemsize, rounds = np.dtype(dtype).itemsize, 2 * (ranks - 1)
    assert (len(outcome.messages), outcome.trace.rounds, outcome.unread) == (ranks * rounds, rounds, 0)
    # 2(N−1)/N of the array from each rank; where N does not divide the length, on average.
    assert sent.sum() == rounds * length * itemsize
    assert sent.max() <= rounds * -(-length // ranks) * itemsize


@pytest.mark.parametrize("ranks", range(1, 10))
def test_the_ring_is_right_for_any_length_at_the_least_cost(answer, ranks):
    ring = answer("2a", "ring_all_reduce")
    for length in range(51):
        try_ring(ring, ranks, length, np.float64)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int8", "uint8"])
def test_the_ring_is_right_for_each_type_that_horovod_reduces(answer, dtype):
    ring = answer("2a", "ring_all_reduce")
    for ranks in (1, 2, 5, 9):
        for length in (0, 3, 10, 50):
            try_ring(ring, ranks, length, dtype)
