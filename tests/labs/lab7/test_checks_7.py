"""Lab 7: other answers, wrong and right, and what the checks compare with."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from labs.lab7_splitting_the_model.lessons import checks_7b, checks_7c, movement, systolic


def test_the_best_plan_is_the_best_of_all():
    random = np.random.default_rng(0)
    for layers, stages in ((6, 3), (8, 2), (9, 5), (4, 4), (3, 1)):
        seconds = random.integers(1, 9, layers).tolist()
        every = itertools.combinations(range(1, layers), stages - 1)
        assert checks_7b.fastest(seconds, stages) == min(checks_7b.slowest(seconds, plan) for plan in every)


def test_delays_are_counted():
    assert [checks_7b.counted_delay(4, stage, ticks=True) for stage in range(4)] == [6, 4, 2, 0]
    assert [checks_7b.counted_delay(4, stage, ticks=False) for stage in range(4)] == [3, 2, 1, 0]


@pytest.mark.parametrize("layer", [*checks_7c.WIDE, *checks_7c.NARROW])
def test_the_smallest_batch_is_the_smallest(layer):
    inputs, outputs, arithmetic, word = layer
    found = checks_7c.WIDE.get(layer)

    def memory_over_arithmetic(batch):
        return word * (inputs * outputs + batch * (inputs + outputs)) / (arithmetic * batch * inputs * outputs)

    if found is None:
        assert memory_over_arithmetic(10**9) >= 1
    else:
        assert memory_over_arithmetic(found) <= 1 + 1e-9 < memory_over_arithmetic(found - 1)


@pytest.mark.parametrize("buffered", [False, True])
def test_the_cycles_are_what_the_array_takes(answer, buffered):
    known = {**checks_7c.BUFFERED, **checks_7c.STARVED} if buffered else checks_7c.ONE_BY_ONE
    cycles = answer("7c", "cycles")
    for case, expected in known.items():
        assert cycles(*case, buffered) == expected
        if case != checks_7c.ENDLESS:
            assert systolic.layer(*case, buffered).cycles == expected
    for case in ((16, 3, 16), (9, 4, 8)):
        assert systolic.layer(*case, buffered).cycles == cycles(*case, buffered)


def test_tile_and_inequality_have_the_same_optimum(answer):
    exponents = answer("7c", "exponents")
    for nest, words in (*checks_7c.PRODUCTS, *checks_7c.SHORTER, *checks_7c.OTHERS):
        assert sum(exponents(nest, words).values()) == pytest.approx(checks_7c.most(nest, words))


def test_the_words_of_a_product_are_at_least_those_by_its_shortest_loop():
    for batch in (1, 3, 7, 20, 200):
        sums = checks_7c.most(movement.matrix_product(batch, 500, 500), 256)
        assert 256 ** (sums - 1) == pytest.approx(min(16, batch))
