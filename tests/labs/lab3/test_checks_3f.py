"""Notebook 3f: another wrong answer."""

from __future__ import annotations

import numpy as np

from labs.lab3_large_batch.lessons.checks_3f import points


def test_the_smallest_eigenvalue_is_not_the_largest(capsys):
    def power_iteration(product, v, steps):
        matrix = np.array([product(e) for e in np.eye(len(v))])
        values, vectors = np.linalg.eigh(matrix)
        return float(values[0]), vectors[:, 0]

    assert points(power_iteration, 3) < 3
    assert "smallest" in capsys.readouterr().out
