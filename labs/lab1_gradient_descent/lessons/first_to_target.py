"""Which batch size of plain SGD is the first at a loss: the comparison of 1f, in the notebook and recorded."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

Steps = Callable[[int, float, int], Iterator[np.ndarray]]  # (batch size, η, seed) → the weights after each step
RATES = tuple(2.0**k for k in range(2, -8, -1))
TUNING_SEED, SEEDS = 0, (1, 2, 3, 4, 5)
MOST_EPOCHS, MOST_STEPS = 500, 16_000
LOST = 10.0  # a loss from which no run comes back
IMAGES, PROBED, TARGET_STEPS = 4_096, 1_024, 500


class Softmax:
    """A linear model with ten outputs; its weights are an array [inputs, 10]."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        pixels = images.reshape(len(images), -1).astype(np.float32) / 255
        centred = (pixels - pixels.mean(axis=0))[:IMAGES]
        self.x, self.y = np.column_stack([centred, np.ones(len(centred), np.float32)]), labels[:IMAGES]

    def probabilities(self, w: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        """Of each class for each image: [rows, 10]."""
        z = self.x[rows] @ w
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)

    def loss(self, w: np.ndarray) -> float:
        """Mean cross-entropy over the first images."""
        p = self.probabilities(w, slice(PROBED))
        return float(-np.log(p[np.arange(len(p)), self.y[:PROBED]] + 1e-30).mean())

    def steps(self, batch_size: int, eta: float, seed: int) -> Iterator[np.ndarray]:
        """The weights after each step of SGD from 0, for ever; drawn without replacement."""
        w = np.zeros((self.x.shape[1], 10), np.float32)
        for epoch in itertools.count():
            order = np.random.default_rng([seed, epoch]).permutation(len(self.x))
            for rows in np.split(order, range(batch_size, len(self.x), batch_size)):
                p = self.probabilities(w, rows)
                p[np.arange(len(rows)), self.y[rows]] -= 1
                w = w - eta * (self.x[rows].T @ p / len(rows))
                yield w

    def target(self) -> float:
        """The loss after some steps of gradient descent with η = 1/λ, λ a bound on the curvature."""
        curvature = np.linalg.eigvalsh(self.x.T @ self.x / len(self.x))[-1] / 2
        run = self.steps(len(self.x), float(1 / curvature), 0)
        return self.loss(next(itertools.islice(run, TARGET_STEPS - 1, None)))


def run(
    steps: Steps,
    loss: Callable[[np.ndarray], float],
    target: float,
    batch_size: int,
    eta: float,
    seed: int,
    most: float,
) -> tuple[int, float] | None:
    """Steps and seconds until the loss is `target`; None where `most` examples were not enough.

    The clock runs during steps only, not while the loss is measured, which happens each time the number of steps has
    grown by 5 %.
    """
    seconds, look, begun = 0.0, 1, time.perf_counter()
    for step, w in enumerate(steps(batch_size, eta, seed), 1):
        if step < look:
            continue
        seconds += time.perf_counter() - begun
        reached = loss(w)
        if reached <= target:
            return step, seconds
        if step * batch_size >= most or not reached < LOST:
            return None
        look, begun = max(step + 1, int(1.05 * step)), time.perf_counter()


def compare(
    steps: Steps,
    loss: Callable[[np.ndarray], float],
    target: float,
    sizes: Sequence[int],
    examples: int,
    report: Callable[[float, str], object] = lambda done, what: None,
) -> pd.DataFrame:
    """A row for each batch size and seed: batch_size, eta (the best of `RATES`, on a seed of its own), steps,
    examples, seconds.

    A rate is given up when it has used more examples than the best so far, or `MOST_EPOCHS`, or `MOST_STEPS`.

    Args:
        examples: how many there are in an epoch.
        report: called with the share of the work that is done, and what comes next.
    """
    rows = []
    for number, size in enumerate(sizes):
        report(number / len(sizes), f"batch size {size:,}")
        best, most = None, min(MOST_EPOCHS * examples, MOST_STEPS * size)
        for eta in RATES:
            if found := run(steps, loss, target, size, eta, TUNING_SEED, most):
                best, most = eta, found[0] * size
        for seed in SEEDS if best else ():
            if found := run(steps, loss, target, size, best, seed, 10 * most):
                count, seconds = found
                row = {"batch_size": size, "eta": best, "seed": seed, "steps": count, "examples": count * size}
                rows.append({**row, "seconds": seconds})
    return pd.DataFrame(rows)
