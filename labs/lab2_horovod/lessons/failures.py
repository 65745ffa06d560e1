"""What failures cost a training that writes checkpoints and, when a rank fails, goes back to the last one."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def young(write: ArrayLike, mtbf: ArrayLike, ranks: ArrayLike = 1) -> np.ndarray:
    """The interval between checkpoints, in seconds, that loses the least time: √(2 δ M / N) (Young 1974).

    Args:
        write: δ, seconds to write a checkpoint.
        mtbf: M, mean time between failures of one rank, seconds.
        ranks: N, all of which stop when one fails.
    """
    return np.sqrt(2 * np.asarray(write, float) * mtbf / ranks)


def simulate(
    intervals: ArrayLike, write: float, restart: float, mtbf: float, ranks: int, *, failures: int = 4000, seed: int = 0
) -> np.ndarray:
    """The share of the time that is lost, by simulation: failures come at random, on average every M/N seconds.

    Args:
        intervals: seconds of work between two checkpoints [k].
        write, mtbf, ranks: as in `young`; restart: R, seconds from a failure until work goes on.
    """
    gaps = np.random.default_rng(seed).exponential(mtbf / ranks, failures)
    intervals = np.asarray(intervals, float)[..., None]
    kept = np.floor(gaps / (intervals + write)) * intervals  # work that a checkpoint was written of
    return 1 - kept.sum(-1) / (gaps + restart).sum()
