"""Local SGD and elastic averaging on real ranks, by Horovod's all-reduce; and the seconds of their updates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from labs.lab6_beyond_synchronous.lessons import local_sgd, small_network

Step = Callable[[np.ndarray, np.ndarray, np.ndarray, float, float], tuple[np.ndarray, np.ndarray]]


def _sum(numbers: np.ndarray) -> np.ndarray:
    import horovod.tensorflow as hvd

    return hvd.allreduce(numbers, op=hvd.Sum, name=f"sum of {numbers.size}").numpy()


def train(way: str, period: int, rate: float, seed: int, updates: int) -> tuple[np.ndarray, np.ndarray]:
    """A training on real ranks, each of which calls this: its weights [L], and the network that is judged, [L].

    `local_sgd.Training` computes the same in one process. way: "local" or "elastic". Every rank has a copy of the
    centre; what the springs pull is all-reduced, so that all copies move alike.
    """
    import horovod.tensorflow as hvd

    part, weights = small_network.fashion().train, small_network.start(seed)
    centre, ranks = weights.copy(), hvd.size()
    alpha = np.float32(local_sgd.PULL / ranks)
    for update, at in enumerate(local_sgd.batches(updates, seed, ranks)[:, hvd.rank()], 1):
        moves = np.float32(rate) * small_network.gradient(weights, part.images[at], part.labels[at])
        if update % period:
            weights = weights - moves
        elif way == "local":
            weights = _sum(weights - moves) / np.float32(ranks)
        else:
            pulled = alpha * (weights - centre)
            weights, centre = weights - moves - pulled, centre + _sum(pulled)
    return weights, centre if way == "elastic" else _sum(weights) / np.float32(ranks)


def train_with(step: Step, period: int, rate: float, seed: int, updates: int) -> tuple[np.ndarray, np.ndarray]:
    """As `train` by elastic averaging, with a learner's `step` of the exercise `elastic_step` in every meeting.

    A rank knows its own row of the weights only. What its spring does to the centre is added up by all-reduce.
    """
    import horovod.tensorflow as hvd

    part, weights = small_network.fashion().train, small_network.start(seed)
    centre, spring = weights.copy(), local_sgd.PULL / hvd.size() / rate
    for update, at in enumerate(local_sgd.batches(updates, seed, hvd.size())[:, hvd.rank()], 1):
        gradient = small_network.gradient(weights, part.images[at], part.labels[at])
        if update % period:
            weights = weights - np.float32(rate) * gradient
        else:
            own, moved = step(weights[None], centre, gradient[None], rate, spring)
            weights, centre = own[0].astype(np.float32), centre + _sum((moved - centre).astype(np.float32))
    return weights, centre


def time_updates(periods: Sequence[int], blocks: int, length: int) -> list[dict]:
    """Seconds of an update of local SGD on real ranks, each of which calls this; the periods take turns.

    Args:
        length: updates in a block, a multiple of all periods. blocks: that are timed for each period, after one that
            is not.

    Returns:
        A row for each block and period: period, seconds (of an update), computing (of its gradient alone).
    """
    part, weights, rows = small_network.fashion().train, small_network.start(0), []
    images, labels = part.images[: local_sgd.BATCH], part.labels[: local_sgd.BATCH]
    for block in range(blocks + 1):
        for period in periods:
            _sum(np.zeros(1, np.float32))  # begin together
            began, computing = time.perf_counter(), 0.0
            for update in range(1, length + 1):
                before = time.perf_counter()
                weights = weights - np.float32(1e-6) * small_network.gradient(weights, images, labels)
                computing += time.perf_counter() - before
                if update % period == 0:
                    weights = _sum(weights) / np.float32(2)
            seconds = (time.perf_counter() - began) / length
            if block:
                rows.append({"period": period, "seconds": seconds, "computing": computing / length})
    return rows
