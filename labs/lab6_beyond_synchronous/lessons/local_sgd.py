"""Ranks that train by themselves and meet now and then: local SGD, elastic averaging and gossip, in one process.

Each rank has weights of its own, a row of [N, L], and takes a step of SGD in every update. Then a `Meeting` says what
becomes of the rows, and which one network stands for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from labs.lab6_beyond_synchronous.lessons import gossip, small_network

RANKS, BATCH, UPDATES, EVERY = 16, 16, 400, 10
TARGET = 0.8  # of the validation images
PULL = 0.9  # EASGD's N α, as Zhang et al. chose it


class Meeting:
    """Local SGD: all take the mean of all, every `period` updates."""

    def __init__(self, period: int = 1) -> None:
        self.period = period

    def step(self, update: int, weights: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """The weights after update 1, 2, … [N, L]; moves: what each rank's own step subtracts, [N, L]."""
        weights = weights - moves
        if update % self.period:
            return weights
        return np.broadcast_to(weights.mean(0), weights.shape).copy()

    def network(self, weights: np.ndarray) -> np.ndarray:
        """What is judged, [L]: the mean of all ranks, also between meetings, when no rank has it."""
        return weights.mean(0)


class Elastic(Meeting):
    """EASGD (Zhang, Choromanska, LeCun 2015): every `period` updates springs pull the ranks and a centre together.

    Args:
        alpha: the share of its distance from the centre by which a spring moves a rank.
    """

    def __init__(self, period: int, alpha: float) -> None:
        super().__init__(period)
        self.alpha, self.centre = np.float32(alpha), np.zeros(0, np.float32)

    def step(self, update: int, weights: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """As `Meeting.step`; the centre begins where the ranks do."""
        if not len(self.centre):
            self.centre = weights.mean(0)
        if update % self.period:
            return weights - moves
        pulled = self.alpha * (weights - self.centre)
        self.centre = self.centre + pulled.sum(0)
        return weights - moves - pulled

    def network(self, weights: np.ndarray) -> np.ndarray:
        """The centre, [L]."""
        return self.centre


class Gossip(Meeting):
    """After every update each rank takes a mean of a few: `matrix(update)`, [N, N], says of whom."""

    def __init__(self, matrix: Callable[[int], np.ndarray]) -> None:
        super().__init__()
        self._matrix = matrix

    def step(self, update: int, weights: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """As `Meeting.step`."""
        return self._matrix(update).astype(np.float32) @ (weights - moves)


def meeting(way: str, period: int, seed: int, ranks: int = RANKS, pull: float = PULL) -> Meeting:
    """What `way` means: "local", "elastic" (with N α = pull), "ring", "fixed pairs" or "random pairs"."""
    if way == "elastic":
        return Elastic(period, pull / ranks)
    if way in ("ring", "fixed pairs"):
        matrix = gossip.ring(ranks) if way == "ring" else gossip.fixed_pairs(ranks)
        return Gossip(lambda update: matrix)
    if way == "random pairs":
        random = np.random.default_rng(seed)
        return Gossip(lambda update: gossip.random_pairs(ranks, random))
    return Meeting(period)


def batches(updates: int, seed: int, ranks: int = RANKS, own_classes: bool = False, batch: int = BATCH) -> np.ndarray:
    """The examples of each update and rank, ints [updates, N, batch].

    own_classes: the training images are sorted by class, and each rank has one Nth of them; else all have all.
    """
    labels = small_network.fashion().train.labels
    if not own_classes:
        return small_network.batches(updates, seed, ranks * batch).reshape(updates, ranks, batch)
    random, shares = np.random.default_rng(seed), np.array_split(np.argsort(labels, kind="stable"), ranks)
    return np.stack([random.choice(share, (updates, batch)) for share in shares], axis=1)


class Training:
    """Ranks that start alike. `run` makes all updates, or as many as the target needs."""

    def __init__(self, meet: Meeting, rate: float, seed: int, *, ranks: int = RANKS, momentum: float = 0.0,
                 updates: int = UPDATES, own_classes: bool = False) -> None:  # fmt: skip
        self.meet, self.update, self.updates = meet, 0, updates
        self.weights = np.tile(small_network.start(seed), (ranks, 1))
        self._velocity = np.zeros_like(self.weights)
        self._rate, self._momentum = np.float32(rate), np.float32(momentum)
        self._batches = batches(updates, seed, ranks, own_classes)

    def step(self) -> None:
        """One update of all ranks."""
        part = small_network.fashion().train
        here = self._batches[self.update]
        # Nesterov's momentum, as in EAMSGD: the gradient is that of the place to which the velocity leads.
        ahead = self.weights - self._momentum * self._velocity if self._momentum else self.weights
        found = [small_network.gradient(own, part.images[at], part.labels[at]) for own, at in zip(ahead, here)]
        self._velocity = self._momentum * self._velocity + self._rate * np.stack(found)
        self.update += 1
        self.weights = self.meet.step(self.update, self.weights, self._velocity)

    def run(self, target: float | None = None) -> tuple[list[tuple[int, float]], float]:
        """(update, validation accuracy) every EVERY updates, until `target`; and the mean distance to consensus."""
        seen, distances, validation = [], [], small_network.fashion().validation
        with np.errstate(all="ignore"):
            while self.update < self.updates and np.isfinite(self.weights).all():
                self.step()
                if self.update % EVERY == 0:
                    seen.append((self.update, self.accuracy(validation)))
                    distances.append(gossip.distance(self.weights))
                    if target is not None and seen[-1][1] >= target:
                        break
        return seen, float(np.mean(distances)) if distances else float("nan")

    def accuracy(self, part: small_network.Part) -> float:
        """Of the network that stands for all."""
        return small_network.accuracy(self.meet.network(self.weights), part)
