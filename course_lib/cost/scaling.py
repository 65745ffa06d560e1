"""Functions for the prediction of a whole run: the best group size, a fitted parameter, seconds of the run."""

from __future__ import annotations

import math
from collections.abc import Callable


def fewest_rounds(ranks: int) -> int:
    """The group size k, a power of two, with the fewest rounds of a hierarchical all-reduce: 4(k−1) + 2(N/k−1)."""
    sizes = [2**power for power in range(int(math.log2(ranks)) + 1)]
    return min(sizes, key=lambda k: 4 * (k - 1) + 2 * (ranks / k - 1))


def fit(efficiency: Callable[[float], float], published: float, low: float, high: float) -> float:
    """Find x between `low` and `high` with efficiency(x) = published, by bisection.

    Args:
        efficiency: a decreasing function.

    Raises:
        ValueError: if `published` does not lie between the efficiencies at the two ends.
    """
    if not efficiency(high) <= published <= efficiency(low):
        raise ValueError(f"no value between {low:g} and {high:g} gives {published:g}")
    width = high - low
    while width > 1e-9 * high:
        width /= 2
        if efficiency(low + width) > published:
            low += width
    return low


def training_seconds(examples: int, epochs: float, ranks: int, images: float, step: float) -> float:
    """Seconds of a training run.

    Args:
        examples: in an epoch.
        images: per step on one rank.
        step: seconds of a step.
    """
    return step * math.ceil(epochs * examples / ranks / images)
