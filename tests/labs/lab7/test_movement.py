"""Words that loop nests move, and the bound below which none can stay."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labs.lab7_splitting_the_model.lessons import movement

PLAIN = [("i", 1), ("j", 1), ("p", 1)]


def test_an_order_visits_every_iteration_once_block_by_block():
    nest = movement.matrix_product(4, 1, 3)
    loops = movement.visited(nest, [("i", 2), ("j", 1), ("p", 1), ("i", 1)])
    assert list(zip(loops["i"], loops["j"]))[:6] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert len(set(zip(*loops.values()))) == nest.iterations == 12


@pytest.mark.parametrize(
    "order", [[("i", 1), ("j", 1)], [*PLAIN, ("k", 1)], [("i", 2), ("j", 1), ("p", 1)], [("i", 0.5), *PLAIN]]
)
def test_an_order_that_leaves_something_open_is_refused(order):
    with pytest.raises(ValueError, match="an order needs"):
        movement.visited(movement.matrix_product(2, 2, 2), order)


def test_words_are_counted_by_hand():
    nest = movement.matrix_vector(2, 3)  # y0 A00 x0 …: every word of A once
    by_rows = [("i", 1), ("j", 1)]
    assert movement.moved(nest, by_rows, 100) == {"A": 6, "x": 3, "y": 2}
    assert movement.moved(nest, by_rows, 3) == {"A": 6, "x": 6, "y": 2}  # A, x, y: only y is kept
    assert movement.moved(nest, by_rows, 1) == {"A": 6, "x": 6, "y": 6}
    assert movement.moved(nest, [("j", 1), ("i", 1)], 3) == {"A": 6, "x": 3, "y": 6}


def test_least_recently_used_goes_and_not_first_in():
    nest = movement.Nest({"i": 3, "j": 1}, {"a": "j", "b": "i"})  # a b0 a b1 a b2
    assert movement.moved(nest, [("i", 1), ("j", 1)], 2) == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("nest", "arrays", "loops"),
    [
        (movement.matrix_product(999, 999, 999), (0.5, 0.5, 0.5), (0, 0, 0)),
        (movement.matrix_product(3, 999, 999), (0, 1, 0), (1, 0, 0)),
        (movement.matrix_vector(999, 999), (1, 0, 0), (0, 0)),
        (movement.matrix_product(2, 2, 2), (0, 0, 0), (1, 1, 1)),
    ],
)
def test_the_exponents_of_nests_that_one_knows(nest, arrays, loops):
    found = movement.inequality(nest, 256)
    assert tuple(found.arrays.values()) == pytest.approx(arrays) and tuple(found.loops.values()) == pytest.approx(loops)


@pytest.mark.parametrize("seed", range(8))
def test_the_inequality_holds_for_drawn_sets_of_iterations(seed):
    random = np.random.default_rng(seed)
    nest = movement.matrix_product(6, 5, 4)
    points = np.argwhere(random.random((6, 5, 4)) < random.random())
    used = {
        name: len(np.unique(points[:, ["ipj".index(k) for k in loops]], axis=0)) for name, loops in nest.arrays.items()
    }
    found = movement.inequality(nest, int(random.integers(4, 30)))
    most = math.prod(used[name] ** s for name, s in found.arrays.items())
    most *= math.prod(nest.sizes[loop] ** t for loop, t in found.loops.items())
    assert len(points) <= most * (1 + 1e-9)


@pytest.mark.parametrize("words", [4, 16, 50, 400])
@pytest.mark.parametrize(
    "nest",
    [
        movement.matrix_product(9, 11, 10),
        movement.matrix_product(2, 30, 20),
        movement.matrix_vector(25, 30),
        movement.all_pairs(40, 30),
        movement.pointwise_convolution(2, 20, 3, 5),
    ],
)
def test_no_order_stays_below_the_bound(nest, words):
    least = movement.least_words(nest, words)
    assert least >= nest.footprint
    random = np.random.default_rng(words)
    for _ in range(4):
        loops = list(nest.sizes)
        outer = [(loops[k], int(random.integers(1, 8))) for k in random.permutation(len(loops))]
        inner = [(loops[k], 1) for k in random.permutation(len(loops))]
        assert sum(movement.moved(nest, [*outer, *inner], words).values()) >= least


def test_the_bound_of_a_large_product_is_the_known_one():
    nest, words = movement.matrix_product(10_000, 10_000, 10_000), 1_024
    assert movement.least_words(nest, words) == pytest.approx(2 * nest.iterations / words**0.5 - 2 * words, rel=1e-3)


def test_what_fits_moves_once():
    nest = movement.matrix_product(3, 4, 5)
    assert movement.least_words(nest, 100) == nest.footprint == 12 + 20 + 15
    assert sum(movement.moved(nest, PLAIN, 100).values()) == nest.footprint


def test_tiles_become_an_order():
    nest = movement.matrix_product(4, 4, 4)
    assert movement.tiled(nest, {"i": 2.9, "p": 0, "j": 4})[:3] == [("j", 4), ("i", 2), ("p", 1)]
    assert len(movement.visited(nest, movement.tiled(nest, {"i": 2, "p": 3, "j": 1}))["i"]) == 64
