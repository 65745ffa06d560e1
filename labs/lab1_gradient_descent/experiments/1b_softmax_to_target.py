"""Steps and examples to a loss by batch size: softmax regression with plain SGD on Fashion-MNIST.

As in 1b: 4,096 images, and as the target the loss of 1,024 of them after 500 steps of gradient descent. Each batch size
has the best of ten learning rates, chosen on a seed of its own (0). Seconds are those of a machine, and not kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots
from labs.lab1_gradient_descent.lessons import figures_1b, first_to_target

IMAGES, PROBED, TARGET_STEPS = 4_096, 1_024, 500
SIZES = (1, 4, 16, 64, 256, 1_024, IMAGES)


class Softmax:
    """A linear model with ten outputs; its weights are an array [inputs, 10]."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        pixels = images.reshape(len(images), -1).astype(np.float32) / 255
        pixels -= pixels.mean(axis=0)
        self.x, self.y = np.column_stack([pixels[:IMAGES], np.ones(IMAGES, np.float32)]), labels[:IMAGES]

    def probabilities(self, w: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        """Of each class for each image: [rows, 10]."""
        z = self.x[rows] @ w
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)

    def loss(self, w: np.ndarray) -> float:
        """Mean cross-entropy over the first images."""
        p = self.probabilities(w, slice(PROBED))
        return float(-np.log(p[np.arange(PROBED), self.y[:PROBED]] + 1e-30).mean())

    def steps(self, batch_size: int, eta: float, seed: int) -> Iterator[np.ndarray]:
        """The weights after each step of SGD from 0, for ever; drawn without replacement."""
        w = np.zeros((self.x.shape[1], 10), np.float32)
        for epoch in itertools.count():
            order = np.random.default_rng([seed, epoch]).permutation(IMAGES)
            for rows in np.split(order, range(batch_size, IMAGES, batch_size)):
                p = self.probabilities(w, rows)
                p[np.arange(len(rows)), self.y[rows]] -= 1
                w = w - eta * (self.x[rows].T @ p / len(rows))
                yield w

    def target(self) -> float:
        """The loss after some steps of gradient descent with η = 1/λ, λ a bound on the curvature."""
        curvature = np.linalg.eigvalsh(self.x.T @ self.x / IMAGES)[-1] / 2
        run = self.steps(IMAGES, float(1 / curvature), 0)
        return self.loss(next(itertools.islice(run, TARGET_STEPS - 1, None)))


def main() -> experiments.Recording:
    fashion = data.load("fashion_mnist")
    model = Softmax(fashion.x_train, fashion.y_train)
    target = model.target()
    table = first_to_target.compare(
        model.steps, model.loss, target, SIZES, IMAGES, lambda done, what: print(what, flush=True)
    ).drop(columns="seconds")
    source = f"{fashion.name}, the first {IMAGES:,} training images"
    return experiments.Recording(
        table,
        draw(table, source, target),
        data=source,
        settings=f"target: a loss of {target:.4f}; {len(first_to_target.RATES)} rates η, 4 and halves of it",
        seeds=f"{first_to_target.TUNING_SEED} to choose η, {first_to_target.SEEDS[0]} to {first_to_target.SEEDS[-1]}",
    )


def draw(table: pd.DataFrame, caption: str, target: float) -> plots.Figure:
    """Median and range of the seeds by batch size."""
    title = f"To a loss of {target:.3f}: median and range of five seeds; ring: the best"
    return figures_1b.to_target(table, title=title, caption=caption)
