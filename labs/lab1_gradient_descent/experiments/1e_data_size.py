"""Error by size of the data set and width of the network: fitted on small sets, tested on large ones.

Every run makes 400 updates, or as many as six epochs take where these are more, with the learning rate that was the
best of four for its width on 2,000 images and a seed of its own (0). The error is measured on the last 5,000 training
images, which no run trains on.
"""

from __future__ import annotations

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments
from labs.lab1_gradient_descent.lessons import figures_1e

SIZES = (125, 250, 500, 1_000, 2_000, 4_000, 8_000)
FITTED = 1_000  # the largest size on which the law is fitted
TUNED = 2_000  # images on which the learning rate is chosen
WIDTHS = (0.25, 0.5, 1.0)
RATES = (0.02, 0.05, 0.1, 0.2)
SEEDS = (1, 2, 3, 4, 5)
UPDATES, EPOCHS, BATCH = 400, 6, 64  # at least so many of either
VALIDATION = 5_000


def run(use: str, width: float, size: int, rate: float, seed: int, trainers: dict) -> dict:
    """Train once; one row of the table."""
    from labs.lab1_gradient_descent.lessons.short_training import Trainer

    trainer = trainers[width] if width in trainers else trainers.setdefault(width, Trainer(width=width))
    fashion = data.load("fashion_mnist")
    x, y = fashion.x_train[:-VALIDATION], fashion.y_train[:-VALIDATION]
    updates = max(UPDATES, EPOCHS * size // BATCH)
    trainer.train(x[:size], y[:size], seed=seed, rate=rate, updates=updates, batch=BATCH)
    loss, accuracy = trainer.score(fashion.x_train[-VALIDATION:], fashion.y_train[-VALIDATION:])
    return {
        "use": use,
        "width": width,
        "weights": trainer.model.count_params(),
        "images": size,
        "updates": updates,
        "rate": rate,
        "seed": seed,
        "error": round(1 - accuracy, 4),
        "loss": round(loss, 4),
    }


def main() -> experiments.Recording:
    rows, trainers = [], {}
    for width in WIDTHS:
        rows += [run("tuning", width, TUNED, rate, 0, trainers) for rate in RATES]
        best = min(rows[-len(RATES) :], key=lambda row: row["error"])["rate"]
        for size in SIZES:
            rows += [run("result", width, size, best, seed, trainers) for seed in SEEDS]
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    source = data.load("fashion_mnist").name
    caption = f"{source}, {len(SEEDS)} seeds, bars: 95 % intervals; lines: fitted up to {FITTED:,} images"
    return experiments.Recording(
        table,
        figures_1e.data_size(table[table["use"] == "result"], fitted=FITTED, caption=caption),
        data=f"{source}, error on the last {VALIDATION:,} training images",
        settings=f"{UPDATES} updates of {BATCH} images or {EPOCHS} epochs, momentum 0.9, cosine decay to 0",
        seeds=f"0 to choose the rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
    )
