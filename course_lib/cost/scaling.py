"""What the prediction of a run needs beside that of a step: the best groups, a fitted parameter, seconds of the run."""

from __future__ import annotations

import math
from collections.abc import Callable


def fewest_rounds(ranks: int) -> int:
    """The power of two k for which a hierarchical all-reduce has the fewest rounds, 4(k−1) + 2(N/k−1)."""
    sizes = [2**power for power in range(int(math.log2(ranks)) + 1)]
    return min(sizes, key=lambda k: 4 * (k - 1) + 2 * (ranks / k - 1))


def fit(efficiency: Callable[[float], float], published: float, low: float, high: float) -> float:
    """The parameter between `low` and `high` at which `efficiency`, which falls with it, equals `published`.

    Raises:
        ValueError: if it does not lie between the efficiencies at the two ends.
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
    """Seconds of a training run: as many steps of ranks · images as all epochs together need."""
    return step * math.ceil(epochs * examples / ranks / images)
