"""Trainings of the small network by simulated workers, as the recorded experiments of 6a need them."""

from __future__ import annotations

import numpy as np

from course_lib.cost import stragglers
from labs.lab6_beyond_synchronous.lessons import small_network
from labs.lab6_beyond_synchronous.lessons.asynchronous import arrivals, async_sgd

RANDOM, EVEN = stragglers.exponential(1.0), stragglers.lognormal(0.2)  # a worker's time for a gradient


def train(
    way: str, workers: int, momentum: float, rate: float, seed: int, updates: int, size: int = small_network.BATCH
) -> np.ndarray:
    """The weights after `updates` batches of `size` images, taken in one of the ways of the experiment `staleness`.

    Args:
        rate: η / (1 − β) at the start; it falls linearly to 0.
    """
    if way == "synchronous":
        updates, size, workers = updates // workers, size * workers, 1
    images, labels = small_network.fashion().train
    batches = small_network.batches(updates, seed, size)
    eta = rate * (1 - momentum)

    def gradient(weights: np.ndarray, update: int) -> np.ndarray:
        chosen = batches[update]
        return (1 - update / updates) * small_network.gradient(weights, images[chosen], labels[chosen])

    arrived = arrivals(EVEN if way == "even" else RANDOM, workers, updates, seed)
    of_staleness = (lambda stale: eta / (stale + 1)) if way == "aware" else eta
    with np.errstate(all="ignore"):  # rates that are too large are tried, too
        return async_sgd(gradient, small_network.start(seed), arrived, of_staleness, momentum)


def explicit(workers: float, alone: float) -> float:
    """The momentum that N workers should get if `alone` is the best for one: so that all ages are the same.

    With momentum β a gradient's effect is β / (1 − β) updates old, on average, when it comes; a geometric staleness
    with mean N − 1 adds to that. NaN where a momentum above −1 can't make up for the staleness.
    """
    age = alone / (1 - alone) - (workers - 1)
    return age / (1 + age) if age > -0.5 else float("nan")
