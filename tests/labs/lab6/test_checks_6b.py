"""Notebook 6b: elastic averaging by differences of its objective."""

from __future__ import annotations

import numpy as np

from labs.lab6_beyond_synchronous.lessons import diagnosis_6b


def test_no_two_mistakes_look_alike():
    seen = [tuple(diagnosis_6b.observe(mistake)) for mistake in range(7)]
    assert len(set(seen)) == 7


def test_elastic_step_descends_the_penalised_objective(answer):
    """Check values by differences of the objective itself, with quadratic losses."""
    random = np.random.default_rng(9)
    at, centre, best = (random.normal(size=shape) for shape in ((3, 4), 4, (3, 4)))
    spring, rate = 0.7, 0.1

    def objective(flat):
        x, c = flat[:12].reshape(3, 4), flat[12:]
        return sum(0.5 * ((one - goal) ** 2).sum() + spring / 2 * ((one - c) ** 2).sum() for one, goal in zip(x, best))

    flat = np.concatenate([at.ravel(), centre])
    slope = [(objective(flat + 1e-5 * unit) - objective(flat - 1e-5 * unit)) / 2e-5 for unit in np.eye(16)]
    expected = flat - rate * np.array(slope)
    weights, moved = answer("6b", "elastic_step")(at, centre, at - best, rate, spring)
    np.testing.assert_allclose(np.concatenate([weights.ravel(), moved]), expected, atol=1e-8)
