"""How sure a mean of few runs is: intervals by Student's t (Student, "The probable error of a mean", 1908).

And a median, which takes no distribution for granted: the interval between two of the values in their order.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, stdtrit


def student(runs: int) -> float:
    """The t within ± which 95 % of the values lie, for the mean of so many runs.

    Raises:
        ValueError: for fewer than two runs.
    """
    if runs < 2:
        raise ValueError(f"An interval needs two runs or more, not {runs}.")
    return float(stdtrit(runs - 1, 0.975))


def mean(values: ArrayLike) -> tuple[float, float]:
    """The mean of independent runs, and half the width of its 95 % interval.

    Raises:
        ValueError: for fewer than two runs.
    """
    values = np.asarray(values, float)
    return float(values.mean()), student(len(values)) * float(values.std(ddof=1)) / math.sqrt(len(values))


def paired(ours: ArrayLike, theirs: ArrayLike) -> tuple[float, float]:
    """The mean of ours − theirs, run by run (the same seed, say), and half the width of its 95 % interval."""
    return mean(np.subtract(ours, theirs))


def unpaired(ours: ArrayLike, theirs: ArrayLike) -> tuple[float, float]:
    """Mean of ours − mean of theirs, of runs that have nothing in common, and half the width of its 95 % interval.

    Both are taken to scatter alike: their variances are pooled.

    Raises:
        ValueError: for fewer than two runs on one side.
    """
    ours, theirs = _sides(ours, theirs)
    free = len(ours) + len(theirs) - 2
    variance = ((len(ours) - 1) * ours.var(ddof=1) + (len(theirs) - 1) * theirs.var(ddof=1)) / free
    half = student(free + 1) * math.sqrt(variance * (1 / len(ours) + 1 / len(theirs)))
    return float(ours.mean() - theirs.mean()), half


def welch(ours: ArrayLike, theirs: ArrayLike) -> tuple[float, float]:
    """As `unpaired`, where one side may scatter more than the other (Welch 1947, doi:10.1093/biomet/34.1-2.28).

    Raises:
        ValueError: for fewer than two runs on one side.
    """
    ours, theirs = _sides(ours, theirs)
    errors = [side.var(ddof=1) / len(side) for side in (ours, theirs)]  # squared, of the means
    if not sum(errors):
        return float(ours.mean() - theirs.mean()), 0.0
    free = sum(errors) ** 2 / sum(error**2 / (len(side) - 1) for error, side in zip(errors, (ours, theirs)))
    return float(ours.mean() - theirs.mean()), float(stdtrit(free, 0.975)) * math.sqrt(sum(errors))


def _sides(ours: ArrayLike, theirs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    if min(len(ours), len(theirs)) < 2:
        raise ValueError("An interval needs two runs or more on each side.")
    return ours, theirs


def band(values: ArrayLike) -> tuple[float, float]:
    """Between which two values 95 % of further runs like these fall (the prediction interval of one more run)."""
    values = np.asarray(values, float)
    middle, _ = mean(values)
    half = student(len(values)) * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / len(values))
    return middle - half, middle + half


def median(values: ArrayLike) -> tuple[float, float, float]:
    """The median of independent runs, and an interval that holds the true one with at least 95 %: (median, low, high).

    A run that never came to its end may be infinite. With n values the interval from the k-th smallest to the k-th
    largest misses the true median where fewer than k of them lie on one side of it, which is binomial.

    Raises:
        ValueError: for fewer than six runs, of which not even smallest and largest are that sure.
    """
    values = np.sort(values)
    most = [k for k in range(len(values) // 2) if 2 * bdtr(k, len(values), 0.5) <= 0.05]
    if not most:
        raise ValueError(f"An interval for a median needs six runs or more, not {len(values)}.")
    k = most[-1]
    return float(np.median(values)), float(values[k]), float(values[-1 - k])
