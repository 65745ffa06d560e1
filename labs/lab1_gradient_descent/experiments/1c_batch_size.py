"""Which batch size is the first at 85 % validation accuracy: the small CNN on Fashion-MNIST.

First the learning rate of each batch size is chosen, out of the same five for all, by one run each: the rate that
needs the fewest epochs, and among equals the one with the higher accuracy. Then each batch size trains with its
rate and with five other seeds. A run ends at the target or after 25 s; the accuracy is measured after each epoch on
2,000 images that are neither trained on nor in the test set.
"""

from __future__ import annotations

import math
import time

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments
from labs.lab1_gradient_descent.lessons import figures_1c

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024)
RATES = (0.005, 0.01, 0.02, 0.04, 0.08)
TUNING_SEED, SEEDS = 0, (1, 2, 3, 4, 5)
IMAGES, VALIDATION = 6_400, 2_000
TARGET, LIMIT = 0.85, 25.0  # seconds


def run(batch_size: int, rate: float, seed: int) -> dict:
    """Train until the target or the limit; one row of the table."""
    from tensorflow import keras

    from course_lib import models
    from labs.lab1_gradient_descent.lessons import timed_fit

    fashion = data.load("fashion_mnist")
    x, y = fashion.x_train, fashion.y_train
    keras.utils.set_random_seed(seed)
    model = models.small_cnn(x.shape[1:], len(fashion.classes))
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )  # fmt: skip
    accuracies: list[float] = []
    seconds: list[float] = []

    def note(epoch: int, logs: dict) -> None:
        accuracies.append(logs["val_accuracy"])
        seconds.append(time.perf_counter() - start)
        model.stop_training |= accuracies[-1] >= TARGET

    start = time.perf_counter()
    model.fit(
        timed_fit.batches(x[:IMAGES], y[:IMAGES], batch_size),
        epochs=1000,
        validation_data=timed_fit.batches(x[-VALIDATION:], y[-VALIDATION:], 500, shuffle=False),
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=note), timed_fit.Limit(LIMIT)],
        verbose=0,
    )
    return {
        "batch size": batch_size,
        "learning rate": rate,
        "seed": seed,
        "reached": accuracies[-1] >= TARGET,
        "epochs": len(accuracies),
        "steps": len(accuracies) * math.ceil(IMAGES / batch_size),
        "seconds": round(seconds[-1], 2),
        "accuracy": round(accuracies[-1], 4),
    }


def best_rate(tuning: pd.DataFrame) -> dict[int, float]:
    """The rate for each batch size: of the runs that arrived (of all, if none did) the one with the fewest epochs."""
    order = tuning.sort_values(["reached", "epochs", "accuracy"], ascending=[False, True, False], kind="stable")
    return order.groupby("batch size")["learning rate"].first().to_dict()


def main() -> experiments.Recording:
    rows = []
    plan = [(size, rate, TUNING_SEED) for size in BATCH_SIZES for rate in RATES]
    for chosen in (False, True):
        if chosen:
            rates = best_rate(pd.DataFrame(rows))
            plan = [(size, rates[size], seed) for seed in SEEDS for size in BATCH_SIZES]
        for size, rate, seed in plan:
            rows.append({"use": "result" if chosen else "tuning", **run(size, rate, seed)})
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    table = pd.DataFrame(rows)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last {VALIDATION:,} for validation"
    caption = f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"
    return experiments.Recording(
        table,
        figures_1c.to_target(
            table[table["use"] == "result"],
            target=TARGET,
            caption=caption,
        ),
        data=source,
        seeds=f"{TUNING_SEED} to choose the learning rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
    )
