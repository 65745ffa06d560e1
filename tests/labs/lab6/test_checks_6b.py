"""Notebook 6b: elastic averaging by its check values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from labs.lab6_beyond_synchronous.lessons import diagnosis_6b


def test_no_two_mistakes_look_alike():
    seen = [tuple(diagnosis_6b.observe(mistake)) for mistake in range(7)]
    assert len(set(seen)) == 7


def test_elastic_step_descends_the_penalised_objective(answer):
    """Check values by differences of the objective itself, with quadratic losses."""
    random = np.random.default_rng(9)
    at, centre, best, spring, rate = (
        random.normal(size=(3, 4)),
        random.normal(size=4),
        random.normal(size=(3, 4)),
        0.7,
        0.1,
    )

    def objective(flat):
        x, c = flat[:12].reshape(3, 4), flat[12:]
        return sum(0.5 * ((one - goal) ** 2).sum() + spring / 2 * ((one - c) ** 2).sum() for one, goal in zip(x, best))

    flat = np.concatenate([at.ravel(), centre])
    slope = [(objective(flat + 1e-5 * unit) - objective(flat - 1e-5 * unit)) / 2e-5 for unit in np.eye(16)]
    expected = flat - rate * np.array(slope)
    weights, moved = answer("6b", "elastic_step")(at, centre, at - best, rate, spring)
    np.testing.assert_allclose(np.concatenate([weights.ravel(), moved]), expected, atol=1e-8)


def elastic_averaging(weights, centre, best, rate, spring, steps):
    """EASGD number by number in fractions, as arXiv:1412.6651 has it; losses are (x − best)² / 2."""
    alpha, seen = rate * spring, []
    for _ in range(steps):
        springs = [[alpha * (a - b) for a, b in zip(row, centre)] for row in weights]
        weights = [
            [a - rate * (a - goal) - pulled for a, goal, pulled in zip(*rows)] for rows in zip(weights, best, springs)
        ]
        centre = [b + sum(row[place] for row in springs) for place, b in enumerate(centre)]
        seen.append(([[float(a) for a in row] for row in weights], [float(b) for b in centre]))
    return seen


WEIGHTS, CENTRE, BEST = [[1, -2], [3, 0.5], [-1, 4]], [0, 1], [[0, 0], [1, 1], [2, -1]]
CHECK_VALUES = [  # η = .1, ρ = 1.5
    ([[0.75, -1.35], [2.35, 0.625], [-0.55, 3.05]], [0.45, 0.925]),
    ([[0.63, -0.87375], [1.93, 0.7075], [-0.145, 2.32625]], [0.63, 0.8575]),
    ([[0.567, -0.5266875], [1.642, 0.75925], [0.18575, 1.7733125]], [0.70875, 0.795625]),
]


def test_check_values_of_elastic_averaging(answer):
    exact = [[[Fraction(a) for a in row] for row in rows] for rows in (WEIGHTS, BEST)]
    centre = [Fraction(b) for b in CENTRE]
    assert elastic_averaging(exact[0], centre, exact[1], Fraction(1, 10), Fraction(3, 2), 3) == CHECK_VALUES
    step, weights, centre = answer("6b", "elastic_step"), np.array(WEIGHTS, float), np.array(CENTRE, float)
    for expected in CHECK_VALUES:
        weights, centre = step(weights, centre, weights - np.array(BEST), 0.1, 1.5)
        np.testing.assert_allclose(weights, expected[0], rtol=1e-12)
        np.testing.assert_allclose(centre, expected[1], rtol=1e-12)
