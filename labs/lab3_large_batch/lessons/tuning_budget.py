"""What a budget of trials gains by tuning alone."""

from __future__ import annotations

from collections.abc import Sequence


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
