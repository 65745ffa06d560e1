"""Notebook 3a: the solutions agree with the library."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.optimizers import noise
from labs.lab3_large_batch.lessons import critical_batch


def test_the_solutions_agree_with_the_library(answer):
    random = np.random.default_rng(3)
    small, large = random.normal(1, 2, (30, 4)), random.normal(1, 0.5, (20, 4))
    squares = [np.mean(np.sum(g**2, axis=1)) for g in (small, large)]
    assert answer("3a", "noise_scale")(small, large, 4, 64) == pytest.approx(noise.noise_scale(squares, (4, 64)))
    batches, updates = np.array([4.0, 16, 256]), np.array([900.0, 300, 40])
    assert answer("3a", "floor_and_bend")(batches, updates) == pytest.approx(critical_batch.fit(batches, updates))
