"""The generalisation gap: a small and a large batch after the same epochs, and what longer training gives back.

The quick network trains with batches of 64 and of 1,280, for 4, 20 and 80 epochs: 80 epochs with the large batch
are as many updates as 4 with the small one. Momentum 0.9, cosine decay to 0. Each of these six methods tries the same
six learning rates with one tuning seed, on validation data; its best one then runs with five other seeds. A seventh,
the naive one, trains the large batch for 4 epochs with the small one's rate. Test data are used by those runs only.

How the sizes were chosen: 6,400 images make the longest run 15 seconds of one core, and are few enough for the
network to fit them closely in 80 epochs. They were chosen before any test accuracy was seen. Batch norm's moving
averages have momentum 0.8; in a first look, averages estimated anew changed accuracies by 0.003 at most.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots, sweep

BATCHES = (64, 1_280)
EPOCHS = (4, 20, 80)
RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
TUNING_SEED, SEEDS = 100, (1, 2, 3, 4, 5)
IMAGES = 6_400
MOMENTUM = 0.9


def run(use: str, method: str, batch: int, epochs: int, rate: float, seed: int) -> dict:
    """Train once; loss and accuracy on training and validation images, for results on the test images too."""
    from tensorflow import keras

    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    updates = epochs * (len(problem.train.labels) // batch)
    decay = keras.optimizers.schedules.CosineDecay(rate, updates)
    training = short_runs.Run(problem.model(seed), keras.optimizers.SGD(decay, MOMENTUM), problem.train, seed=seed)
    training.train(updates, batch)
    scores = {"training": training.score(problem.train), "validation": training.score(problem.validation)}
    if use == "result":
        scores["test"] = training.score(problem.test)
    finite = scores["training"].loss < 10  # else it diverged, and its accuracy is missing
    row: dict = {"updates": updates}
    for name, score in scores.items():
        row[f"{name} loss"] = round(score.loss, 4) if finite else None
        row[f"{name} accuracy"] = round(score.accuracy, 4) if finite else None
    return row


def main(folder: Path) -> None:
    began = time.monotonic()
    kinds = [
        {"method": f"B = {batch:,}, {epochs} epochs", "batch": batch, "epochs": epochs}
        for epochs in reversed(EPOCHS)  # the longest first, so that no core waits at the end
        for batch in BATCHES
    ]
    tuning = sweep.run(
        run, [{"use": "tuning", **kind, "rate": rate, "seed": TUNING_SEED} for kind in kinds for rate in RATES],
        tell=sweep.say,
    )  # fmt: skip
    rates = sweep.best(tuning, ["method"], "rate", "validation accuracy").set_index("method")["rate"]
    kinds = [{**kind, "rate": rates[kind["method"]]} for kind in kinds]
    (small,) = (kind for kind in kinds if (kind["batch"], kind["epochs"]) == (BATCHES[0], EPOCHS[0]))
    kinds.append({**small, "method": "naive", "batch": BATCHES[1]})
    results = sweep.run(
        run, [{"use": "result", **kind, "seed": seed} for kind in kinds for seed in SEEDS], tell=sweep.say
    )  # fmt: skip
    table = pd.concat([tuning, results])
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images"
    experiments.write_table(
        folder / "generalisation_gap.csv",
        table,
        command="course reproduce generalisation_gap",
        data=f"{source}, last 5,000 for validation, 10,000 for the test",
        seeds=f"{TUNING_SEED} to choose the learning rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        seconds=round(time.monotonic() - began),
    )
    caption = f"{source} · {len(SEEDS)} seeds, each a dot · {experiments.machine()}"
    draw(table, caption).savefig(folder / "generalisation_gap.png", dpi=150)


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Test accuracy by epochs and by training loss, for both batch sizes."""
    from labs.lab3_large_batch.lessons import figures_3a

    return figures_3a.gap(table[table["use"] == "result"], caption=caption)
