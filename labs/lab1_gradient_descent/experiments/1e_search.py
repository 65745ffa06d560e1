"""Random search: forty short trials of learning rate, width, dropout and batch size.

Each trial draws its settings, trains on 3,200 images for two epochs, and is scored on the last 2,000 training images.
What a search of k trials finds is read from the table, by drawing k of the forty again and again.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import experiments
from labs.lab1_gradient_descent.lessons import figures_1e

TRIALS, IMAGES, EPOCHS, VALIDATION = 40, 3_200, 2, 2_000
WIDTHS, DROPOUTS, BATCHES = (0.5, 1.0, 2.0), (0.0, 0.3), (16, 64, 256, 1024)


def run(trial: int, trainers: dict) -> dict:
    """One trial with settings drawn by its number; one row of the table."""
    from labs.lab1_gradient_descent.lessons.short_training import Trainer

    rng = np.random.default_rng([7, trial])
    rate = float(f"{10 ** rng.uniform(-3.5, 0.5):.3g}")
    form = {"width": float(rng.choice(WIDTHS)), "dropout": float(rng.choice(DROPOUTS))}
    batch = int(rng.choice(BATCHES))
    key = tuple(form.values())
    trainer = trainers[key] if key in trainers else trainers.setdefault(key, Trainer(**form))
    fashion = data.load("fashion_mnist")
    updates = EPOCHS * IMAGES // batch
    trainer.train(
        fashion.x_train[:IMAGES], fashion.y_train[:IMAGES], seed=trial, rate=rate, updates=updates, batch=batch
    )  # fmt: skip
    accuracy = trainer.score(fashion.x_train[-VALIDATION:], fashion.y_train[-VALIDATION:])[1]
    return {"trial": trial, "rate": rate, **form, "batch size": batch, "validation accuracy": round(accuracy, 4)}


def main() -> experiments.Recording:
    trainers, rows = {}, []
    for trial in range(TRIALS):
        rows.append(run(trial, trainers))
        print(rows[-1], flush=True)
    source = data.load("fashion_mnist").name
    caption = f"{TRIALS} trials, {source}, {IMAGES:,} images"
    return experiments.Recording(
        pd.DataFrame(rows),
        figures_1e.search(pd.DataFrame(rows), caption=caption),
        data=f"{source}, first {IMAGES:,} training images, accuracy on {VALIDATION:,}",
        settings=f"{EPOCHS} epochs, momentum 0.9, cosine decay to 0; rate 10^-3.5 to 10^0.5, widths {WIDTHS}, "
        f"dropout {DROPOUTS}, batch sizes {BATCHES}",
        seeds=f"0 to {TRIALS - 1}, one for each trial",
    )
