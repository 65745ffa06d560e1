"""Which rule gives a large batch its learning rate: none, √ and linear, with and without warm-up, and LEGW.

The quick network on Fashion-MNIST, SGD with momentum 0.9, eight epochs at each batch size, the rate falling to 0 as a
cosine. 12,288 images, so that every batch size divides them and the largest is left with 24 updates; a base of 16,
so that the rules are followed over a factor of 256.

Each batch size tries the same ten rates on validation data: the base with one seed, which chooses what the rules
start from, each larger batch with three seeds; from 256 on both without warm-up and with. Then all rules, and the best
rate of each batch size, train with five other seeds; these are judged on the test data. At the largest batch its best
rate without warm-up also gets four times the epochs.
"""

from __future__ import annotations

import math

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3b

IMAGES, EPOCHS, MOMENTUM = 12_288, 8, 0.9
BATCHES = (16, 64, 256, 1024, 4096)
BASE, LARGEST = BATCHES[0], BATCHES[-1]
RATES = tuple(2.0**k for k in range(-8, 2))
BASE_SEED = 0  # chooses the rate of BASE
TUNING_SEEDS, SEEDS = (101, 102, 103), (1, 2, 3, 4, 5)
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


def tries(rule: str, batch: int, warm_up: float) -> list[dict]:
    """Every rate, for one batch size."""
    setting = {"rule": rule, "batch": batch, "warm_up": warm_up, "epochs": EPOCHS}
    return [{**setting, "eta": eta} for eta in RATES]


def scored(base: dict, chosen: list[dict]) -> list[dict]:
    """What trains with the result seeds: every batch size with its best rate, the rules, the largest for longer."""
    largest = next(row for row in chosen if row["rule"] == "tuned" and row["batch"] == LARGEST)
    return [base, *rules(base["eta"]), *chosen, *({**largest, "epochs": epochs} for epochs in LONGER_EPOCHS)]


def main() -> experiments.Recording:
    at_base = [{**one, "seed": BASE_SEED, "use": "tuning"} for one in tries("tuned", BASE, 0)]
    first = sweep.run(run, at_base, report=sweep.print_row)
    by = ["rule", "batch", "warm_up", "epochs"]
    base = sweep.best(first, by, "eta", "validation").to_dict("records")[0]
    larger = [one for batch in BATCHES[1:] for one in tries("tuned", batch, 0)]
    warm = [batch for batch in BATCHES if batch >= MIN_WARM_UP_BATCH]
    larger += [one for batch in warm for one in tries("tuned, warm-up", batch, WARM_UP)]
    rest = sweep.tune_then_score(
        run, larger, "eta", "validation", TUNING_SEEDS, SEEDS, lambda chosen: scored(base, chosen)
    )
    table = pd.concat([first, rest], ignore_index=True)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    return experiments.Recording(
        table,
        figures_3b.rules(table, caption=f"{source} · {experiments.machine()}"),
        data=source,
        seeds=f"{BASE_SEED} for the base, {sweep.describe_seeds(TUNING_SEEDS, SEEDS)}",
    )
