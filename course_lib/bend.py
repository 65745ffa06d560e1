"""Updates to a target by batch size: a floor, and the batch size at which the curve bends towards it.

The model is that of McCandlish et al. 2018 (arXiv:1812.06162, equation 2.11, there with the noise scale for the bend):
S(B) = S_min (1 + B_c / B). Far below the bend B_c twice the batch needs half the updates; at the bend twice the floor;
far above it nothing is left to win.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fit(batches: Sequence[float], updates: Sequence[float]) -> tuple[float, float]:
    """The floor S_min (updates) and the bend B_c (examples) of the curve with the least squared relative errors.

    Args:
        batches: at least two different batch sizes. updates: how many each needed, of the same length.
    """
    batches, updates = np.asarray(batches, float), np.asarray(updates, float)
    rows = np.stack([1 / updates, 1 / (batches * updates)], axis=1)
    (floor, slope), *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
    return float(floor), float(slope / floor)


def updates(batch: float | np.ndarray, floor: float, bend: float) -> float | np.ndarray:
    """S(B) = floor · (1 + bend / batch)."""
    return floor * (1 + bend / batch)
