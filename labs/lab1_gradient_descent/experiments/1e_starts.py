"""Twenty starts of one network: how far their losses and accuracies lie apart, and how the loss bends on the way.

All runs see the same 6,400 images; seed 1 to 20 draws the first weights and the order. On the way of seed 1 the
largest and the smallest eigenvalue of the Hessian of the loss of 500 training images are measured: in inference mode,
and as training sees this loss, with batch norm by the statistics of the 500.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.models import landscape
from course_lib.notebook import experiments
from labs.lab1_gradient_descent.lessons import figures_1e

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow import keras

    from labs.lab1_gradient_descent.lessons.short_training import Trainer

STARTS = tuple(range(1, 21))
IMAGES, VALIDATION, UPDATES, RATE = 6_400, 2_000, 300, 0.05
BENT = 500  # images of the Hessian
LIMIT = 2 * (1 + 0.9) / RATE  # above this eigenvalue momentum diverges on a quadratic
LOOKS = (0, 10, 30, 100, 300)  # updates after which the Hessian is looked at


class InTraining:
    """A model that normalises by its batch, whatever it is asked for."""

    def __init__(self, model: keras.Model) -> None:
        self.model, self.trainable_variables = model, model.trainable_variables

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        return self.model(x, training=True)


def eigenvalues(trainer: Trainer, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The smallest and the largest eigenvalue of the Hessian where the network stands, in inference and in training."""
    size = sum(int(np.prod(v.shape)) for v in trainer.model.trainable_variables)
    before, found = trainer.model.get_weights(), {}
    for model, mode in ((trainer.model, ""), (InTraining(trainer.model), ", training")):
        ends = lanczos(landscape.hessian_product(model, x, y), size, np.random.default_rng(0))
        found.update({name + mode: float(f"{value:.4g}") for name, value in zip(("smallest", "largest"), ends)})
    trainer.model.set_weights(before)  # training mode has moved batch norm's averages
    return found


def lanczos(
    product: Callable[[np.ndarray], np.ndarray], size: int, rng: np.random.Generator, steps: int = 60
) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric matrix, from the space of v, H v, H² v, …

    Power iteration finds the largest only: next to it the smallest ones are all alike.
    """
    basis = [rng.standard_normal(size)]
    basis[0] /= np.linalg.norm(basis[0])
    inside = np.zeros((steps, steps))  # H as this space sees it
    for step in range(steps):
        turned = product(basis[step])
        for _ in range(2):  # the second time for what rounding has left
            along = np.array([v @ turned for v in basis])
            turned = turned - along @ np.array(basis)
            inside[: step + 1, step] += along
        inside[step, : step + 1] = inside[: step + 1, step]
        basis.append(turned / np.linalg.norm(turned))
    values = np.linalg.eigvalsh(inside)
    return float(values[0]), float(values[-1])


def run(seed: int, trainer: Trainer, fashion: data.Dataset, looks: tuple[int, ...] = ()) -> tuple[dict, list[dict]]:
    """One start: its row, and those of the looks at the Hessian."""
    x, y = fashion.x_train[:IMAGES], fashion.y_train[:IMAGES]
    bends = []

    def look(update: int) -> None:
        if update in looks:
            loss = trainer.score(x, y)[0]
            bends.append({"updates": update, "loss": round(loss, 4), **eigenvalues(trainer, x[:BENT], y[:BENT])})
            print(bends[-1], flush=True)

    if 0 in looks:
        trainer.start(seed)
        look(0)
    trainer.train(x, y, seed=seed, rate=RATE, updates=UPDATES, after=look)
    loss, accuracy = trainer.score(x, y)
    held_out = trainer.score(fashion.x_train[-VALIDATION:], fashion.y_train[-VALIDATION:])
    row = {"seed": seed, "training loss": round(loss, 5), "training accuracy": round(accuracy, 4)}
    return {**row, "validation loss": round(held_out[0], 4), "validation accuracy": round(held_out[1], 4)}, bends


def main() -> experiments.Recording:
    from labs.lab1_gradient_descent.lessons.short_training import Trainer

    trainer, fashion = Trainer(), data.load("fashion_mnist")
    rows, bends = [], []
    for seed in STARTS:
        row, seen = run(seed, trainer, fashion, LOOKS if seed == STARTS[0] else ())
        rows.append(row)
        bends += seen
        print(row, flush=True)
    caption = f"{fashion.name}, {IMAGES:,} images · {UPDATES:,} updates of 64, η = {RATE}, momentum 0.9"
    return experiments.Recording(
        {"starts": pd.DataFrame(rows), "starts_curvature": pd.DataFrame(bends)},
        figures_1e.starts(pd.DataFrame(rows), pd.DataFrame(bends), limit=LIMIT, caption=caption),
        data=f"{fashion.name}, first {IMAGES:,} training images, validation on the last {VALIDATION:,}",
        seeds=f"{STARTS[0]} to {STARTS[-1]}",
        settings=f"{UPDATES:,} updates of 64, rate {RATE}, momentum 0.9, cosine decay; Hessian of {BENT:,} images",
    )
