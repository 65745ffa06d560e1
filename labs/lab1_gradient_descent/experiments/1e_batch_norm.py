"""With and without batch norm: which learning rates train, and what dropout adds.

First part, `use` rate: 6,400 images, 150 updates, seven learning rates, three seeds. Second part, `use` dropout: 500
images, 300 updates, so that the network knows them by heart, with and without dropout of 0.3, with the rate that was
best in the first part. Accuracy on the last 2,000 training images.
"""

from __future__ import annotations

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments
from labs.lab1_gradient_descent.lessons import figures_1e

RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SEEDS, DROPOUT_SEEDS = (1, 2, 3), (1, 2, 3, 4, 5)
VALIDATION = 2_000
PARTS = {"rate": (6_400, 150), "dropout": (500, 300)}  # images, updates


def run(use: str, normalise: bool, dropout: float, rate: float, seed: int, trainers: dict) -> dict:
    """Train once; one row of the table."""
    from labs.lab1_gradient_descent.lessons.short_training import Trainer

    form = {"normalise": normalise, "dropout": dropout}
    key = tuple(form.values())
    trainer = trainers[key] if key in trainers else trainers.setdefault(key, Trainer(**form))
    fashion = data.load("fashion_mnist")
    size, updates = PARTS[use]
    trainer.train(fashion.x_train[:size], fashion.y_train[:size], seed=seed, rate=rate, updates=updates)
    accuracy = trainer.score(fashion.x_train[-VALIDATION:], fashion.y_train[-VALIDATION:])[1]
    known = trainer.score(fashion.x_train[:size][:VALIDATION], fashion.y_train[:size][:VALIDATION])[1]
    return {
        "use": use,
        "batch norm": normalise,
        "dropout": dropout,
        "rate": rate,
        "seed": seed,
        "training accuracy": round(known, 4),
        "validation accuracy": round(accuracy, 4),
    }


def main() -> experiments.Recording:
    rows, trainers = [], {}
    for normalise in (True, False):
        for rate in RATES:
            rows += [run("rate", normalise, 0.0, rate, seed, trainers) for seed in SEEDS]
            print(rows[-1], flush=True)
        mine = pd.DataFrame([row for row in rows if row["use"] == "rate" and row["batch norm"] == normalise])
        best = float(mine.groupby("rate")["validation accuracy"].mean().idxmax())
        for dropout in (0.0, 0.3):
            rows += [run("dropout", normalise, dropout, best, seed, trainers) for seed in DROPOUT_SEEDS]
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    source = data.load("fashion_mnist").name
    caption = f"{source} · 6,400 images, 150 updates of 64, momentum 0.9 · {len(SEEDS)} seeds"
    return experiments.Recording(
        table,
        figures_1e.rates(table[table["use"] == "rate"], caption=caption),
        data=f"{source}, accuracy on the last {VALIDATION:,} training images",
        settings="batches of 64, momentum 0.9, cosine decay to 0; "
        + "; ".join(f"{use}: {size:,} images, {updates} updates" for use, (size, updates) in PARTS.items()),
        seeds=f"{SEEDS[0]} to {SEEDS[-1]} for the rates, {DROPOUT_SEEDS[0]} to {DROPOUT_SEEDS[-1]} for dropout",
    )
