"""Two processes on shared memory: what one alone does, what a lock keeps, what is lost without one."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab6_beyond_synchronous.lessons import hogwild, ratings

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

SPARSE = ratings.Sparse.drawn, {"examples": 20_000, "values": 4}


def test_alone_is_the_serial_algorithm():
    draw, settings = SPARSE
    problem = draw(**settings)
    weights, count, touched = problem.start(), np.zeros(problem.size, int), 0
    for example in np.random.default_rng(0).permutation(problem.examples):
        touched += problem.step(weights, count, example)
    run = hogwild.run("alone", draw, settings)
    assert run.weights == pytest.approx(weights) and run.lost == 0.0
    assert touched == count.sum() == 10 * problem.examples
    assert run.per_second > 100


def test_a_lock_loses_nothing():
    run = hogwild.run("locked", *SPARSE)
    assert run.lost == 0.0


@pytest.mark.alone  # two processes at the same time need two cores
def test_without_a_lock_some_is_lost_and_the_loss_is_as_good():
    draw, settings = SPARSE
    run = hogwild.run("lock-free", draw, settings, epochs=5)  # a worker may have run before the other got a core
    assert 0 < run.lost < 0.2
    problem = draw(**settings)
    alone = hogwild.run("alone", draw, settings, epochs=5)
    losses = [problem.loss(weights) for weights in (problem.start(), run.weights, alone.weights)]
    assert max(losses[1:]) < losses[0] - 0.1  # the last steps of a constant rate make them differ by a few hundredths
