"""The largest batch, four times the epochs, and a rate that was chosen for them: does it reach B = 1,024?

The quick network on the first 12,288 images of Fashion-MNIST, SGD with momentum 0.9 and cosine decay to 0, without
warm-up, as in rate_scaling. B = 4,096 for 32 epochs and B = 1,024 for 8: 96 updates each. Both try the same four
rates, rate_scaling's best for B = 1,024 among them, with the tuning seed on validation data; the best one trains with
three other seeds, which are judged on the test images.
"""

from __future__ import annotations

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3b

IMAGES, MOMENTUM = 12_288, 0.9
SETTINGS = ((4096, 32), (1024, 8))  # batch, epochs; the longer one first, so that no core waits at the end
RATES = (0.015625, 0.03125, 0.0625, 0.125)
TUNING_SEED, SEEDS = 0, (1, 2, 3)


def run(use: str, batch: int, epochs: int, eta: float, seed: int) -> dict:
    """Train once; accuracies as shares of 1."""
    from tensorflow import keras

    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    each = len(problem.train.labels) // batch
    optimizer = keras.optimizers.SGD(schedules.cosine(eta, epochs * each), momentum=MOMENTUM)
    training = short_runs.Run(problem.model(seed), optimizer, problem.train, seed=seed)
    training.train((epochs - 1) * each, batch)
    row = {"updates": epochs * each, "loss": round(training.train(each, batch), 4)}
    row["validation"] = round(training.score(problem.validation).accuracy, 4)
    if use == "result":
        row["test"] = round(training.score(problem.test).accuracy, 4)
    return row


def main() -> experiments.Recording:
    tries = [{"batch": batch, "epochs": epochs, "eta": eta} for batch, epochs in SETTINGS for eta in RATES]
    table = sweep.tune_then_score(run, tries, "eta", "validation", [TUNING_SEED], SEEDS)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    figure = figures_3b.longer(table, caption=f"{source} · {experiments.machine()}")
    return experiments.Recording(table, figure, data=source, seeds=sweep.describe_seeds([TUNING_SEED], SEEDS))
