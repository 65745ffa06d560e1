"""Notebook 7a: a small network with a mixture of experts on Fashion-MNIST, in one process, trained by SGD.

Images of 14 × 14 pixels, a dense layer, four experts with a top-1 gate, a dense layer. With a single expert there is no
gate. Each batch is one rank's: an expert takes at most CAPACITY_FACTOR · batch / experts of its images in training, and
all of them in a test.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from course_lib import data
from labs.lab7_splitting_the_model.lessons.experts import Expert, places, softmax

WIDTH, HIDDEN, CLASSES = 32, 64, 10
CAPACITY_FACTOR = 1.25
EPOCHS, BATCH, TRAIN, VALIDATION = 8, 128, 25_600, 5_000


@lru_cache(maxsize=1)
def fashion() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images [n, 196] around 0 and labels [n] for train, validation and test."""
    found = data.load("fashion_mnist")

    def small(x: np.ndarray) -> np.ndarray:
        return (x.reshape(len(x), 14, 2, 14, 2).mean((2, 4)).reshape(len(x), -1) / 255 - 0.29) / 0.3

    end = TRAIN + VALIDATION
    return {
        "train": (small(found.x_train[:TRAIN]), found.y_train[:TRAIN]),
        "validation": (small(found.x_train[TRAIN:end]), found.y_train[TRAIN:end]),
        "test": (small(found.x_test), found.y_test),
    }


class Network:
    """The network, with float64 weights drawn from `seed`."""

    def __init__(self, seed: int, experts: int) -> None:
        random = np.random.default_rng(seed)
        self.into, self.out = (random.normal(0, a**-0.5, (a, b)) for a, b in ((196, WIDTH), (WIDTH, CLASSES)))
        self.gate = random.normal(0, WIDTH**-0.5, (WIDTH, experts))
        self.experts = [Expert(WIDTH, HIDDEN, 100 * seed + number) for number in range(experts)]

    def _through(self, x: np.ndarray, capacity: int) -> tuple:
        h = np.maximum(x @ self.into, 0)
        p = softmax(h @ self.gate)
        choice, made = p.argmax(1), np.zeros(h.shape)
        kept = places(choice, len(self.experts), capacity)
        for number, expert in enumerate(self.experts):
            mine = kept & (choice == number)
            made[mine] = expert.forward(h[mine])
        top = p[np.arange(len(x)), choice][:, None]
        return h, p, choice, kept, made, top, (h + top * made) @ self.out

    def step(self, x: np.ndarray, y: np.ndarray, rate: float, alpha: float) -> tuple[np.ndarray, float]:
        """One update. Returns the images that chose each expert, and the share that found no room."""
        n, many = len(x), len(self.experts)
        h, p, choice, kept, made, top, logits = self._through(x, int(CAPACITY_FACTOR * n / many) if many > 1 else n)
        slope = softmax(logits)
        slope[np.arange(n), y] -= 1
        slope /= n
        by_h2 = slope @ self.out.T
        by_out = (h + top * made).T @ slope
        by_h = by_h2.copy()
        for number, expert in enumerate(self.experts):
            mine = kept & (choice == number)
            by_h[mine] += expert.backward((top * by_h2)[mine])
        counts = np.bincount(choice, minlength=many)
        if many > 1:
            by_p = np.tile(alpha * many * counts / n**2, (n, 1))
            by_p[np.arange(n), choice] += (by_h2 * made).sum(1)
            by_gate = p * (by_p - (by_p * p).sum(1, keepdims=True))
            by_h += by_gate @ self.gate.T
            self.gate = self.gate - rate * h.T @ by_gate
        self.into = self.into - rate * x.T @ (by_h * (h > 0))
        self.out = self.out - rate * by_out
        for expert in self.experts:
            expert.update(rate)
        return counts, 1 - kept.mean()

    def accuracy(self, x: np.ndarray, y: np.ndarray) -> float:
        """Share of right answers, with room for all."""
        return float((self._through(x, len(x))[-1].argmax(1) == y).mean())


def train(experts: int, alpha: float, rate: float, seed: int, epochs: int = EPOCHS) -> tuple[Network, dict[str, Any]]:
    """A trained network; of the last epoch, the share of dropped images and that of the fullest expert.

    The rate falls to 0 by half a cosine.
    """
    x, y = fashion()["train"]
    network, random = Network(seed, experts), np.random.default_rng(seed)
    steps = len(x) // BATCH
    with np.errstate(all="ignore"):
        for epoch in range(epochs):
            order, counts, dropped = random.permutation(len(x)), np.zeros(experts), 0.0
            for number in range(steps):
                now = rate * (1 + np.cos(np.pi * (epoch * steps + number) / (epochs * steps))) / 2
                some = order[number * BATCH : (number + 1) * BATCH]
                chosen, lost = network.step(x[some], y[some], now, alpha)
                counts, dropped = counts + chosen, dropped + lost / steps
    return network, {"dropped": dropped, "fullest": counts.max() / counts.sum()}
