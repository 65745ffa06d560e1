"""Updates to a target by batch size: S(B) = S_min (1 + B_crit / B), with B_crit the critical batch size.

The model is that of McCandlish et al. 2018 (arXiv:1812.06162, equation 2.11, there with the noise scale for B_crit).
Far below the critical batch size twice the batch needs half the updates; at it twice the least number, S_min; far
above it nothing is left to win. Notebook 3a calls S_min the floor, and B_crit the bend of the curve.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fit(batches: Sequence[float], updates: Sequence[float]) -> tuple[float, float]:
    """S_min (updates) and B_crit (examples) of the curve with the least squared relative errors.

    Args:
        batches: at least two different batch sizes. updates: how many each needed, of the same length.
    """
    batches, updates = np.asarray(batches, float), np.asarray(updates, float)
    rows = np.stack([1 / updates, 1 / (batches * updates)], axis=1)
    (minimum, slope), *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
    return float(minimum), float(slope / minimum)


def updates(batch: float | np.ndarray, minimum: float, critical: float) -> float | np.ndarray:
    """S(B) = S_min (1 + B_crit / B), for one batch size or many."""
    return minimum * (1 + critical / batch)
