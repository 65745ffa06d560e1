"""Confidence intervals for the mean of a few runs, by Student's t (Student, "The probable error of a mean", 1908).

Also for the median, without an assumption about the distribution: the interval between two order statistics.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, stdtrit


def student(runs: int) -> float:
    """The two-sided 95 % quantile of Student's t for the mean of `runs` runs.

    Raises:
        ValueError: for fewer than two runs.
    """
    if runs < 2:
        raise ValueError(f"An interval needs two runs or more, not {runs}.")
    return float(stdtrit(runs - 1, 0.975))


def mean(values: ArrayLike) -> tuple[float, float]:
    """The mean of the values [n] of independent runs, and half the width of its 95 % interval.

    Raises:
        ValueError: for fewer than two runs.
    """
    values = np.asarray(values, float)
    return float(values.mean()), student(len(values)) * float(values.std(ddof=1)) / math.sqrt(len(values))


def paired(ours: ArrayLike, theirs: ArrayLike) -> tuple[float, float]:
    """The mean of ours − theirs over pairs of runs (with the same seed, say), and half the width of its 95 % interval.

    Raises:
        ValueError: for fewer than two pairs.
    """
    return mean(np.subtract(ours, theirs))


def unpaired(ours: ArrayLike, theirs: ArrayLike) -> tuple[float, float]:
    """Mean of ours − mean of theirs, for independent runs, and half the width of its 95 % interval.

    Both sides are assumed to have the same variance: the variances are pooled.

    Raises:
        ValueError: for fewer than two runs on one side.
    """
    ours, theirs = _sides(ours, theirs)
    free = len(ours) + len(theirs) - 2
    variance = ((len(ours) - 1) * ours.var(ddof=1) + (len(theirs) - 1) * theirs.var(ddof=1)) / free
    half = student(free + 1) * math.sqrt(variance * (1 / len(ours) + 1 / len(theirs)))
    return float(ours.mean() - theirs.mean()), half


def welch(ours: ArrayLike, theirs: ArrayLike) -> tuple[float, float]:
    """Like `unpaired`, for different variances (Welch 1947, doi:10.1093/biomet/34.1-2.28).

    Raises:
        ValueError: for fewer than two runs on one side.
    """
    ours, theirs = _sides(ours, theirs)
    errors = [side.var(ddof=1) / len(side) for side in (ours, theirs)]  # squared standard errors of the means
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
    """The lower and upper end of the 95 % prediction interval for one more run.

    Raises:
        ValueError: for fewer than two runs.
    """
    values = np.asarray(values, float)
    middle, _ = mean(values)
    half = student(len(values)) * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / len(values))
    return middle - half, middle + half


def median(values: ArrayLike) -> tuple[float, float, float]:
    """The median of independent runs and its interval of at least 95 % confidence: (median, low, high).

    The value of a run that did not end may be infinite. The interval from the k-th smallest to the k-th largest value
    misses the true median if fewer than k values lie on one side of it; their number has a binomial distribution.

    Raises:
        ValueError: for fewer than six runs, whose smallest and largest value give less than 95 % confidence.
    """
    values = np.sort(values)
    most = [k for k in range(len(values) // 2) if 2 * bdtr(k, len(values), 0.5) <= 0.05]
    if not most:
        raise ValueError(f"An interval for a median needs six runs or more, not {len(values)}.")
    k = most[-1]
    return float(np.median(values)), float(values[k]), float(values[-1 - k])
