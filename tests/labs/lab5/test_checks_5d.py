"""Notebook 5d: other right answers, and what the checks compare with."""

from __future__ import annotations

import numpy as np

from labs.lab5_precision_and_memory.lessons import pruning, sparse_regression
from labs.lab5_precision_and_memory.lessons.checks_5d import points, reference_sizes


def test_other_measures_of_strength_and_other_schedules_are_right():
    def stays(kernel, density, grain):
        axes = {"weights": (), "rows": 1, "filters": (0, 1, 2)}[grain]
        strength = (kernel**2).sum(axes, keepdims=True)
        order = np.argsort(np.argsort(-strength, axis=None)).reshape(strength.shape)
        return np.zeros(kernel.shape) + (order < max(1, round(density * strength.size)))

    def pruned_share(update, updates, final):
        return final * (1 - (1 - min(1, update / (0.8 * updates))) ** 4)

    assert points(stays, 4) == 4.0
    assert points(pruned_share, 4) == 4.0


def test_a_fair_schedule_gets_a_part():
    def pruned_share(update, updates, final):
        return final * min(1.0, update / (0.75 * updates))

    assert 2.0 < points(pruned_share, 4) < 4.0


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
    found = reference_sizes(300, 70_000, made.nnz, 4)["compressed rows"]
    assert found == made.data.nbytes + made.indices.nbytes + made.indptr.nbytes
