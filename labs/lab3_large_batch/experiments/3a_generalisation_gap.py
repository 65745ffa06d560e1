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

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3a

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


def with_naive(chosen: list[dict]) -> list[dict]:
    """The six methods, and the large batch for as long and with the same rate as the small one."""
    (small,) = (kind for kind in chosen if (kind["batch"], kind["epochs"]) == (BATCHES[0], EPOCHS[0]))
    return [*chosen, {**small, "method": "naive", "batch": BATCHES[1]}]


def main() -> experiments.Recording:
    tries = [
        {"method": f"B = {batch:,}, {epochs} epochs", "batch": batch, "epochs": epochs, "rate": rate}
        for epochs in reversed(EPOCHS)  # the longest first, so that no core waits at the end
        for batch in BATCHES
        for rate in RATES
    ]
    table = sweep.tune_then_score(run, tries, "rate", "validation accuracy", [TUNING_SEED], SEEDS, with_naive)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images"
    caption = f"{source} · {len(SEEDS)} seeds, each a dot · {experiments.machine()}"
    return experiments.Recording(
        table,
        figures_3a.gap(table[table["use"] == "result"], caption=caption),
        data=f"{source}, last 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )
