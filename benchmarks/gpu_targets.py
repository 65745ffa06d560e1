"""Compute the accuracy of the assessment's reference on many ranks, for the targets of the profile `gpu`.

    COURSE_DATA_DIR=... python benchmarks/gpu_targets.py [--ranks 8] [--epochs 24]

One process does the computation of all ranks. In each step it computes the gradients of each rank's 128 images, with
the batch statistics of these images, and averages them. Adds a row to benchmarks/results/gpu_targets.csv. It takes five
minutes on two cores.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf

from course_lib import data, models
from course_lib.notebook import experiments

TABLE = Path(__file__).parent / "results" / "gpu_targets.csv"
BATCH, RATE, SEED, MEASURED = 128, 0.1, 1, 10_000  # as in assessment/reference; images for measuring accuracy


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--epochs", type=int, default=24)
    chosen = arguments.parse_args()
    began = time.perf_counter()
    row = {"ranks": chosen.ranks, "epochs": chosen.epochs, **trained(chosen.ranks, chosen.epochs)}
    known = pd.read_csv(TABLE, comment="#").to_dict("records") if TABLE.exists() else []
    experiments.write_table(
        TABLE,
        pd.DataFrame([*known, row]),
        command="python benchmarks/gpu_targets.py",
        data="cifar10",
        seeds=SEED,
        seconds=round(time.perf_counter() - began),
    )
    print(row)


def trained(ranks: int, epochs: int) -> dict[str, float]:
    """Return the accuracy of the reference's recipe on `ranks` ranks."""
    tf.keras.utils.set_random_seed(SEED)
    cifar = data.load("cifar10")
    images = len(cifar.x_train) - len(cifar.x_train) // 10
    steps = images // (BATCH * ranks)
    model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
    rate = tf.keras.optimizers.schedules.CosineDecay(
        RATE, (epochs - 1) * steps, warmup_target=RATE * ranks, warmup_steps=steps
    )
    optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)
    optimizer.build(model.trainable_variables)
    loss = tf.keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        gradients = []
        for part, labels in zip(tf.split(x, ranks), tf.split(y, ranks)):
            with tf.GradientTape() as tape:
                value = loss(labels, model(tf.image.random_flip_left_right(part), training=True))
            gradients.append(tape.gradient(value, model.trainable_variables))
        means = [tf.add_n(of_ranks) / ranks for of_ranks in zip(*gradients)]
        optimizer.apply_gradients(zip(means, model.trainable_variables))

    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(images)
        for first in range(0, steps * BATCH * ranks, BATCH * ranks):
            chosen = order[first : first + BATCH * ranks]
            step(cifar.x_train[chosen], cifar.y_train[chosen])
    return {
        "train accuracy": accuracy(model, cifar.x_train[:MEASURED], cifar.y_train[:MEASURED]),
        "test accuracy": accuracy(model, cifar.x_test, cifar.y_test),
    }


def accuracy(model: tf.keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    """Return the share of images that the model classifies correctly."""
    return round(float(np.mean(model.predict(x, batch_size=500, verbose=0).argmax(1) == y)), 4)


if __name__ == "__main__":
    main()
