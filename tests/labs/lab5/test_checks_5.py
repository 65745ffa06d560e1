"""Lab 5: other answers, wrong and right, and what the checks compare with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labs.lab5_precision_and_memory.lessons import (
    checks_5a,
    checks_5d,
    pruning,
    sparse_regression,
)


@pytest.mark.parametrize("target", (1.0, *checks_5a.TARGETS))
@pytest.mark.parametrize("rate", [0.1, 0.01])
@pytest.mark.parametrize("mantissa", [7, 10])
def test_a_weight_stops_where_the_derivation_says(target, rate, mantissa):
    spacing = 2.0 ** (math.floor(math.log2(target)) - mantissa)
    right = spacing / (2 * rate)
    start = target + 1.5 * right  # as in the check's message
    assert math.frexp(start)[1] == math.frexp(target)[1]  # no power of two between
    assert right - spacing <= checks_5a.descend(target, rate, mantissa, start) <= right + spacing


def test_the_simple_schedules_stand_in_the_order_that_the_text_tells():
    start, middle, steadily, cubic = (
        sparse_regression.errors(share).mean()
        for share in (
            lambda update, updates, final: final,
            lambda update, updates, final: final * (update >= updates / 2),
            lambda update, updates, final: final * update / (updates - 1),
            lambda update, updates, final: pruning.cubic(final)(update, updates),
        )
    )
    assert cubic < 0.01 < steadily < middle < start


def test_sizes_agree_with_scipy_where_it_takes_the_same_indices():
    import scipy.sparse

    dense = np.zeros((300, 70_000), np.float32)
    dense[np.random.default_rng(0).integers(300, size=99_000), np.arange(99_000) % 70_000] = 1
    made = scipy.sparse.csr_matrix(dense)
    found = checks_5d.reference_sizes(300, 70_000, made.nnz, 4)["compressed rows"]
    assert found == made.data.nbytes + made.indices.nbytes + made.indptr.nbytes
