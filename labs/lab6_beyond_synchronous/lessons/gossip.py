"""Gossip: each rank averages with few others. Whom, as a matrix; how far the ranks are from consensus.

Row i of a matrix [N, N] is what rank i takes of whom. All are doubly stochastic: rows sum to 1, so that ranks which
agree stay where they are, and columns too, so that the mean of all never moves (Boyd et al. 2006).
"""

from __future__ import annotations

import numpy as np


def ring(ranks: int) -> np.ndarray:
    """A third of oneself and of both neighbours, [N, N]; at least three ranks."""
    one = np.eye(ranks)
    return (one + np.roll(one, 1, 0) + np.roll(one, -1, 0)) / 3


def fixed_pairs(ranks: int) -> np.ndarray:
    """The mean with one partner that is always the same, [N, N]; an even number of ranks."""
    return np.kron(np.eye(ranks // 2), np.full((2, 2), 0.5))


def random_pairs(ranks: int, random: np.random.Generator) -> np.ndarray:
    """The mean with a partner drawn anew, [N, N]; all ranks are in pairs, so their number is even."""
    order = random.permutation(ranks)
    return fixed_pairs(ranks)[np.ix_(order, order)]


def distance(weights: np.ndarray) -> float:
    """To consensus: the root of the mean squared distance of the rows [N, L] from their mean."""
    return float(np.sqrt(((weights - weights.mean(0)) ** 2).sum(1).mean()))
