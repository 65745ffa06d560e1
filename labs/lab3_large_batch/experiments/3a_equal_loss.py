"""Is there a gap at equal training loss? The small batch, stopped earlier and later, beside the long large-batch runs.

The quick network on the first 6,400 images of Fashion-MNIST, momentum 0.9, cosine decay to 0, as in
generalisation_gap. B = 64 with η = 0.1, its best rate there for 4 epochs, is trained for 2 to 12 epochs with five
seeds, so that its training losses surround those of generalisation_gap's large-batch runs of 20 and 80 epochs, which
are taken from that table. Each large-batch run is compared with the same seed's small-batch runs, at its own training
loss: their test loss and accuracy are interpolated in the logarithm of the training loss.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3a

IMAGES, BATCH, RATE, MOMENTUM = 6_400, 64, 0.1, 0.9
EPOCHS = (12, 8, 6, 4, 3, 2)
SEEDS = (1, 2, 3, 4, 5)


def run(epochs: int, seed: int, **_: object) -> dict:
    """Train once with the small batch; losses, and accuracies as shares of 1."""
    from tensorflow import keras

    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    updates = epochs * (len(problem.train.labels) // BATCH)
    optimizer = keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(RATE, updates), MOMENTUM)
    training = short_runs.Run(problem.model(seed), optimizer, problem.train, seed=seed)
    training.train(updates, BATCH)
    row: dict = {"updates": updates}
    for name, part in (("training", problem.train), ("test", problem.test)):
        score = training.score(part)
        row |= {f"{name} loss": round(score.loss, 4), f"{name} accuracy": round(score.accuracy, 4)}
    return row


def main() -> experiments.Recording:
    plan = [{"batch": BATCH, "rate": RATE, "epochs": epochs, "seed": seed} for seed in SEEDS for epochs in EPOCHS]
    table = sweep.run(run, plan, report=sweep.print_row)
    recorded = Path(__file__).resolve().parent.parent / "recorded"
    large = pd.read_csv(recorded / "generalisation_gap.csv", comment="#")
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images"
    caption = f"{source} · {len(SEEDS)} seeds, each a dot · {experiments.machine()}"
    return experiments.Recording(
        table, figures_3a.equal_loss(table, large, caption=caption), data=source, seeds=f"{SEEDS[0]} to {SEEDS[-1]}"
    )
