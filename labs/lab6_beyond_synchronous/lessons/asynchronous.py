"""Asynchronous SGD in one process: who hands in when is drawn, and the updates that follow are made exactly.

Each of N workers reads the weights, calculates a gradient and hands it in. The weights take it at once, and the worker
reads them again. Nobody waits. What the weights become depends only on the order in which the gradients arrive, so the
order is drawn first (`arrivals`), and then followed (`async_sgd`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.cost.stragglers import StepTime


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The order in which gradients arrive. Before the first of them all workers have read the first weights.

    worker: whose gradient each update takes, ints [updates]; time: when, [updates], in mean steps of one worker.
    """

    workers: int
    worker: np.ndarray
    time: np.ndarray

    @property
    def staleness(self) -> np.ndarray:
        """How many updates lie between the reading of the weights and each gradient's own update, ints [updates]."""
        read, staleness = [0] * self.workers, []
        for update, worker in enumerate(self.worker):
            staleness.append(update - read[worker])
            read[worker] = update + 1
        return np.array(staleness, int)


def arrivals(time: StepTime, workers: int, updates: int, seed: int = 0, slower: Sequence[float] = ()) -> Arrivals:
    """Let `workers` work until `updates` gradients have arrived.

    Args:
        time: how long a worker takes from reading to handing in; messages take no time.
        slower: by which factor each worker takes longer than that, [workers]; empty: none does.

    Raises:
        ValueError: for no worker, or another number of factors than of workers.
    """
    factors = list(slower) or [1.0] * workers
    if workers < 1 or len(factors) != workers:
        raise ValueError(f"{len(factors)} factors for {workers} workers: give one for each of one worker or more.")
    steps = iter(time.draw(np.random.default_rng(seed), (workers + updates,)).tolist())
    due = [(factors[worker] * next(steps), worker) for worker in range(workers)]
    heapq.heapify(due)
    order = []
    for step in steps:
        now, worker = due[0]
        order.append((worker, now))
        heapq.heapreplace(due, (now + factors[worker] * step, worker))
    return Arrivals(workers, *map(np.array, zip(*order)))


def async_sgd(
    gradient: Callable[[np.ndarray, int], np.ndarray],
    start: np.ndarray,
    arrived: Arrivals,
    rate: float | Callable[[int], float],
    momentum: float = 0.0,
    after_update: Callable[[int, np.ndarray], object] | None = None,
) -> np.ndarray:
    """The weights after all gradients have arrived: v ← βv + ηg, w ← w − v, where g was taken at older weights.

    Args:
        gradient: (weights [n], update 0, 1, 2, …) → their gradient on that update's batch, [n].
        start: the first weights, [n].
        rate: η, or a function of the gradient's staleness, which is 0 for one that is not stale.
        momentum: β, which the server applies.
        after_update: called with the number of updates and the weights, first with 0 and then after each update.
    """
    weights, velocity = start, np.zeros_like(start)
    held = [start] * arrived.workers
    if after_update:
        after_update(0, weights)
    for update, (worker, staleness) in enumerate(zip(arrived.worker, arrived.staleness)):
        eta = rate(int(staleness)) if callable(rate) else float(rate)
        velocity = momentum * velocity + eta * gradient(held[worker], update)
        weights = held[worker] = weights - velocity
        if after_update:
            after_update(update + 1, weights)
    return weights
