"""Notebook 7c: other answers, wrong and right, and what the checks compare with."""

from __future__ import annotations

import math

import pytest

from labs.lab7_splitting_the_model.lessons import checks_7c, movement, systolic
from labs.lab7_splitting_the_model.lessons.checks_7c import points
from tests.labs.lab7.mistakes_7c import MISTAKES


def test_three_equal_blocks_get_a_part(answer):
    edits, *_ = MISTAKES["order"]["three equal blocks"]
    assert 1.5 < points(answer("7c", "order", *edits.items()), 5) < 3.5


def test_other_good_orders_are_right():
    def order(sizes, words):
        """The best of many, tried with a model of the words."""
        best = None
        for a, b, c in (("i", "p", "j"), ("i", "j", "p"), ("p", "j", "i")):
            for side in range(1, sizes[a] + 1):
                for other in range(1, sizes[b] + 1):
                    if side * other + 2 * (side + other) > words:
                        break
                    whole = math.prod(sizes.values())
                    words_moved = whole / side + whole / other + sizes[a] * sizes[b]
                    if best is None or words_moved < best[0]:
                        best = words_moved, [(a, side), (b, other), (c, 1), (b, 1), (a, 1)]
        return best[1]

    assert points(order, 5) == 5.0


def test_infinity_is_none():
    def enough(*layer):
        return checks_7c.WIDE.get(layer, math.inf)

    assert points(enough, 3) == 3.0


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


def test_the_simulation_is_no_formula(capsys):
    def cycles(batch, tiles, side, buffered):
        return systolic.layer(batch, tiles, side, buffered).cycles

    assert points(cycles, 4) < 4
    assert "too many to simulate" in capsys.readouterr().out
