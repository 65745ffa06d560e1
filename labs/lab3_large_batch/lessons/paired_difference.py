"""Which of two methods is better, from few runs: the interval of a paired difference, and what tuning alone gains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# Of Student's t: 95 % of its values are within ± this, by degrees of freedom (the number of pairs − 1).
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 14: 2.145, 19: 2.093}


def interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The mean of ours − theirs, and half the width of its 95 % confidence interval.

    Args:
        ours, theirs: scores [seeds]; those in the same place come from the same seed.

    Raises:
        ValueError: for fewer than two pairs, or a number of pairs that `T95` does not have.
    """
    gain = np.subtract(ours, theirs)
    pairs = len(gain)
    if pairs - 1 not in T95:
        raise ValueError(f"Student's t is at hand for {', '.join(str(n + 1) for n in T95)} pairs, not for {pairs}.")
    return float(gain.mean()), float(T95[pairs - 1] * gain.std(ddof=1) / math.sqrt(pairs))


def expected_best(scores: Sequence[float], budget: int) -> float:
    """The mean of the best of `budget` scores, drawn from `scores` with replacement (arXiv:1909.03004, section 3).

    Args:
        scores: of settings that were tried; the higher the better.
        budget: how many settings one can afford to try.
    """
    # The best is at most the i-th smallest of n with probability (i / n)^budget.
    n = len(scores)
    at_most = [(i / n) ** budget for i in range(n + 1)]
    return float(sum(score * (at_most[i + 1] - at_most[i]) for i, score in enumerate(sorted(scores))))
