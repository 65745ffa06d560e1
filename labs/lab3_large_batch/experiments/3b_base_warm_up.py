"""LEGW tunes rate and warm-up once, for a small batch. Can a small batch tell which warm-up is best?

The quick network on the first 12,288 images of Fashion-MNIST, B = 16, eight epochs, SGD with momentum 0.9 and the rate
that rate_scaling found for this batch, cosine decay to 0 after a warm-up in equal increments from 0. Without warm-up,
with 12 updates (what rate_scaling's LEGW starts from), 96 and 768 updates, three seeds each, judged on validation data.
"""

from __future__ import annotations

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3b

IMAGES, EPOCHS, MOMENTUM = 12_288, 8, 0.9
BATCH, RATE = 16, 0.03125
WARM_UPS = (0, 12, 96, 768)  # updates
SEEDS = (1, 2, 3)


def run(warm_up: int, seed: int) -> dict:
    """Train once; validation accuracy as a share of 1."""
    from tensorflow import keras

    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    updates = EPOCHS * (len(problem.train.labels) // BATCH)
    optimizer = keras.optimizers.SGD(schedules.cosine(RATE, updates, warm_up), momentum=MOMENTUM)
    training = short_runs.Run(problem.model(seed), optimizer, problem.train, seed=seed)
    training.train(updates, BATCH)
    return {"updates": updates, "validation": round(training.score(problem.validation).accuracy, 4)}


def main() -> experiments.Recording:
    plan = [{"warm_up": warm_up, "seed": seed} for warm_up in WARM_UPS for seed in SEEDS]
    table = sweep.run(run, plan, report=sweep.print_row)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    figure = figures_3b.base_warm_up(table, caption=f"{source} · {experiments.machine()}")
    return experiments.Recording(table, figure, data=source, seeds=", ".join(map(str, SEEDS)))
