"""Which rule gives a large batch its learning rate: none, √ and linear, with and without warm-up, and LEGW.

The quick network on Fashion-MNIST, SGD with momentum 0.9, eight epochs at each batch size, the rate falling to 0 as a
cosine. 12,288 images, so that every batch size divides them and the largest is left with 24 updates; a base of 16,
so that the rules are followed over a factor of 256.

First each batch size tries the same seven rates without warm-up, the largest also with: one seed each, judged on
validation data. The best rate at the smallest batch is what the rules start from. Then all rules, and the best rate
of each batch size, train with three other seeds; these are judged on the test data. At the largest batch its best
rate also gets four times the epochs.
"""

from __future__ import annotations

import math

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3b

IMAGES, EPOCHS, MOMENTUM = 12_288, 8, 0.9
BATCHES = (16, 64, 256, 1024, 4096)
BASE, LARGEST = BATCHES[0], BATCHES[-1]
RATES = tuple(2.0**k for k in range(-8, -1))
TUNING_SEED, SEEDS = 0, (1, 2, 3)
WARM_UP = 2  # epochs, a quarter of the run
LEGW_WARM_UP = 1 / 64  # epochs at BASE: 12 updates there and everywhere, half of the run at the largest batch
MIN_WARM_UP_BATCH = 256  # a smaller batch makes so many updates that its start hardly matters
LONGER_EPOCHS = (32,)  # epochs


def run(use: str, rule: str, batch: int, eta: float, warm_up: float, epochs: int, seed: int) -> dict:
    """Train once. In `warm_up` epochs the rate rises in equal increments from η / k, for a batch of k · BASE, to η."""
    from tensorflow import keras

    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    each = IMAGES // batch
    updates, rising = epochs * each, round(warm_up * each)
    rate = schedules.cosine(eta, updates, rising, start=eta * BASE / batch)
    optimizer = keras.optimizers.SGD(rate, momentum=MOMENTUM)
    training = short_runs.Run(problem.model(seed), optimizer, problem.train, seed=seed)
    training.train(updates - each, batch)
    loss = training.train(each, batch)
    row = {"updates": updates, "loss": round(loss, 4)}
    if math.isfinite(loss):  # a run that diverged has no score
        row["validation"] = round(training.score(problem.validation).accuracy, 4)
        if use == "result":
            row["test"] = round(training.score(problem.test).accuracy, 4)
    return row


def rules(eta: float) -> list[dict]:
    """What each rule does with the rate that is best at BASE, at every larger batch size."""
    from course_lib.optimizers import schedules

    rows = []
    for batch in BATCHES[1:]:
        linear, square_root = schedules.linear_scaling(eta, batch, BASE), schedules.sqrt_scaling(eta, batch, BASE)
        slow_start = schedules.legw(eta, LEGW_WARM_UP, batch, BASE)
        for rule, rate, warm_up in (
            ("the same rate", eta, 0),
            ("linear", linear, 0),
            ("linear, warm-up", linear, WARM_UP),
            ("√", square_root, 0),
            ("√, warm-up", square_root, WARM_UP),
            ("LEGW", *slow_start),
        ):
            rows.append({"rule": rule, "batch": batch, "eta": rate, "warm_up": warm_up, "epochs": EPOCHS})
    return [row for row in rows if row["batch"] >= MIN_WARM_UP_BATCH or not row["warm_up"]]


def scored(chosen: list[dict]) -> list[dict]:
    """What trains with the result seeds: the rules, every batch size with its best rate, the largest for longer."""
    base = next(row["eta"] for row in chosen if row["batch"] == BASE)
    largest = next(row for row in chosen if row["rule"] == "tuned" and row["batch"] == LARGEST)
    return [*rules(base), *chosen, *({**largest, "epochs": epochs} for epochs in LONGER_EPOCHS)]


def main() -> experiments.Recording:
    tuned = [*(("tuned", batch, 0) for batch in BATCHES), ("tuned, warm-up", LARGEST, WARM_UP)]
    tries = [
        {"rule": rule, "batch": batch, "eta": eta, "warm_up": warm_up, "epochs": EPOCHS}
        for rule, batch, warm_up in tuned
        for eta in RATES
    ]
    table = sweep.tune_then_score(run, tries, "eta", "validation", [TUNING_SEED], SEEDS, scored)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    return experiments.Recording(
        table,
        figures_3b.rules(table, caption=f"{source} · {experiments.machine()}"),
        data=source,
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )
