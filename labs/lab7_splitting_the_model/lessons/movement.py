"""How many words a loop nest moves between a memory and a cache in front of it, and how many it must move at least.

A *projective* nest (Dinh, Demmel 2020, arXiv:2003.00119) runs over all values of its loops, in any order. Each array is
indexed by some of the loops: C[i, j] += A[i, p] * B[p, j] has the loops i, p, j and the arrays "ip", "pj", "ij".
Loops are single letters.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Order = Sequence[tuple]  # (loop, step), outermost first; see `visited`


@dataclass(frozen=True)
class Nest:
    """A projective loop nest.

    sizes: loop → how many values it takes; arrays: name → the loops that index it, as in {"A": "ip"}.
    """

    sizes: Mapping[str, int]
    arrays: Mapping[str, str]

    @property
    def iterations(self) -> int:
        """How often the innermost statement runs."""
        return math.prod(self.sizes.values())

    def words(self, array: str) -> int:
        """Words of one array."""
        return math.prod(self.sizes[loop] for loop in self.arrays[array])

    @property
    def footprint(self) -> int:
        """Words of all arrays: what every order has to fetch at least once."""
        return sum(map(self.words, self.arrays))


def matrix_product(rows: int, inner: int, columns: int) -> Nest:
    """C[i, j] += A[i, p] · B[p, j]; a dense layer with a batch of `rows`, `inner` inputs and `columns` outputs."""
    return Nest({"i": rows, "p": inner, "j": columns}, {"A": "ip", "B": "pj", "C": "ij"})


def matrix_vector(rows: int, columns: int) -> Nest:
    """y[i] += A[i, j] · x[j]."""
    return Nest({"i": rows, "j": columns}, {"A": "ij", "x": "j", "y": "i"})


def all_pairs(targets: int, sources: int) -> Nest:
    """f[i] += interaction(a[i], b[j]): every particle with every other, one word for each."""
    return Nest({"i": targets, "j": sources}, {"f": "i", "a": "i", "b": "j"})


def pointwise_convolution(images: int, pixels: int, inputs: int, outputs: int) -> Nest:
    """A 1 × 1 convolution: out[n, x, k] += in[n, x, c] · w[c, k], with x running over the pixels of an image."""
    return Nest({"n": images, "x": pixels, "c": inputs, "k": outputs}, {"in": "nxc", "weights": "ck", "out": "nxk"})


def visited(nest: Nest, order: Order) -> dict[str, np.ndarray]:
    """The values of each loop, iteration by iteration: loop → [iterations].

    Args:
        order: pairs (loop, step), outermost first. ("i", 8) goes through i in blocks of 8, and a later ("i", 1) through
            the values of a block. Every loop needs a step of 1 somewhere.

    Raises ValueError for an order that leaves something open.
    """
    complete = {loop for loop, step in order if step == 1}
    if complete != set(nest.sizes) or any(step < 1 or int(step) != step for _, step in order):
        raise ValueError(f"an order needs whole steps, and one of 1 for each of {', '.join(nest.sizes)}")
    grids = np.indices(tuple(nest.sizes.values())).reshape(len(nest.sizes), -1)
    values = dict(zip(nest.sizes, grids))
    turns = np.lexsort([values[loop] // step for loop, step in reversed(order)])
    return {loop: grid[turns] for loop, grid in values.items()}


def moved(nest: Nest, order: Order, words: int) -> dict[str, int]:
    """Words that are fetched into a cache of `words` words: array → words.

    The cache holds single words and gives up the one that was used least recently (LRU). In each iteration the arrays
    are touched in the order of `nest.arrays`. A word of a result is fetched like any other; writing it back is not
    counted.
    """
    loops, start, columns = visited(nest, order), 0, []
    for array, indices in nest.arrays.items():
        address = np.zeros(nest.iterations, np.int64)
        for loop in indices:
            address = address * nest.sizes[loop] + loops[loop]
        columns.append(address + start)
        start += nest.words(array)
    trace = np.stack(columns, axis=1).ravel().tolist()
    fetched, cache, count = [0] * len(columns), OrderedDict(), len(columns)
    for turn, address in enumerate(trace):
        if address in cache:
            cache.move_to_end(address)
            continue
        fetched[turn % count] += 1
        cache[address] = None
        if len(cache) > words:
            cache.popitem(last=False)
    return dict(zip(nest.arrays, fetched))


@dataclass(frozen=True)
class Inequality:
    """At most ∏ |array|^s · ∏ length^t iterations can be done with given parts of the arrays (Hölder, Brascamp, Lieb).

    arrays: array → exponent s; loops: loop → exponent t of its length.
    """

    arrays: Mapping[str, float]
    loops: Mapping[str, float]


def inequality(nest: Nest, words: int) -> Inequality:
    """The inequality that allows the fewest iterations when each array's part has `words` words, by linear programming.

    Valid are all exponents ≥ 0 for which each loop's t, plus the s of the arrays that it indexes, is at least 1 (Christ
    et al. 2013, arXiv:1308.0068, without t; Dinh, Demmel 2020 for short loops).
    """
    from scipy.optimize import linprog  # takes longer to import than all else

    loops, arrays = list(nest.sizes), list(nest.arrays)
    cost = [1.0] * len(arrays) + [math.log(nest.sizes[loop], words) for loop in loops]
    covers = [[loop in nest.arrays[array] for array in arrays] + [loop == other for other in loops] for loop in loops]
    found = linprog(cost, A_ub=-np.array(covers, float), b_ub=-np.ones(len(loops)))
    exponents = np.round(found.x, 9)
    return Inequality(dict(zip(arrays, exponents)), dict(zip(loops, exponents[len(arrays) :])))


def least_words(nest: Nest, words: int) -> float:
    """Words that every order has to fetch, whatever a cache of `words` words keeps.

    The larger of two bounds. Every word of every array is needed at least once. And between two moments at which
    X − `words` words are fetched, at most X can be used, which is enough for χ(X) iterations by the inequality with
    Σ |array| ≤ X. So all iterations take (X − words) · (iterations / χ(X) − 1) words or more, for each X; the best of
    many is taken. For a large matrix product that is 2 · iterations / √words − 2 · words (Smith et al. 2019,
    arXiv:1702.02017).
    """
    found = inequality(nest, words)
    used = {array: s for array, s in found.arrays.items() if s > 0}
    total = sum(used.values())
    if not used:
        return float(nest.footprint)
    sizes = np.geomspace(words, max(nest.footprint, 100 * words), 2000)
    log = total * np.log(sizes) + sum(s * math.log(s / total) for s in used.values())
    log += sum(t * math.log(nest.sizes[loop]) for loop, t in found.loops.items())
    return float(max(nest.footprint, np.max((sizes - words) * (nest.iterations / np.exp(log) - 1))))


def tiled(nest: Nest, tile: Mapping[str, int]) -> list[tuple[str, int]]:
    """The order that goes from tile to tile, and through the iterations of each: loop → length of a tile.

    The longest lengths are outermost: an array that only they index stays in the cache while the others come by.
    """
    lengths = {loop: max(1, int(tile[loop])) for loop in nest.sizes}
    outer = sorted(lengths.items(), key=lambda item: -item[1])
    return [*outer, *((loop, 1) for loop in nest.sizes)]
