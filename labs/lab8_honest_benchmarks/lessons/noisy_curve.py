"""A training's accuracy as it is measured: a curve that is known, and the noise of a finite number of test images."""

from __future__ import annotations

import numpy as np

END_S, START, TOP, SCALE_S = 100.0, 0.4, 0.9, 20.0
IMAGES = 1000  # test images: at accuracy p the measured share has the deviation √(p (1 − p) / IMAGES)


def accuracy(seconds: float | np.ndarray) -> float | np.ndarray:
    """The true accuracy after so many seconds, from START up to TOP."""
    return TOP - (TOP - START) * np.exp(-np.asarray(seconds) / SCALE_S)


def reached(target: float) -> float:
    """When the true accuracy reaches `target`, in seconds."""
    return float(SCALE_S * np.log((TOP - START) / (TOP - target)))


def looks(every: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A run that is looked at every so many seconds: (seconds [k], measured accuracy [k])."""
    random = np.random.default_rng(seed)
    seconds = np.arange(random.uniform(0, every), END_S, every)
    return seconds, random.binomial(IMAGES, accuracy(seconds)) / IMAGES
