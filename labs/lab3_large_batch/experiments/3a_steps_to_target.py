"""Updates to 82 % validation accuracy by batch size: perfect scaling, the bend, the floor, and the noise scale.

Fashion-MNIST, its first 55,000 training images (so that the largest batch is still a small part of them), quick_cnn,
SGD with momentum 0.9 and a constant learning rate. Each batch size tries the same five learning rates with two seeds;
the one that needs the fewest updates then trains with five other seeds. In tuning, a rate is given up when it has made
as many updates as the best one, or 100 + 20,000 / B in a run; the results may take twice that. The accuracy is looked
at whenever the updates have grown by 8 %, from 8 updates and 2,000 images on, on 2,000 images that are not trained on.
So that small batches are judged as exactly as large ones, batch norm's moving averages look back over 1,280 images,
though over 5 updates at least. The target was chosen by the time: the largest batch should need about five seconds. A
batch of 8 was tried too and left out, as its best rate was the smallest of the five.

Beside it the gradient noise scale (arXiv:1812.06162), from the squared norms of the gradients of small and of large
batches at the same weights: before training, and on the way of three batch sizes to the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3a

if TYPE_CHECKING:
    from labs.lab3_large_batch.lessons.short_runs import Problem, Run

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
RATES = (0.03, 0.1, 0.01, 0.3, 0.003)  # in the order in which they are tried
TUNING_SEEDS, SEEDS = (101, 102), (1, 2, 3, 4, 5)
IMAGES, VALIDATION_IMAGES = 55_000, 2_000
TARGET, EARLIER_TARGETS = 0.82, (0.75, 0.8)  # validation accuracies
EVALUATION_GROWTH = 1.08  # of the updates, from one look at the accuracy to the next

NOISE_RUNS = (16, 256, 4096)  # batch sizes of the runs in which the noise is measured
NOISE_PARTS = (0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # parts of the updates to the target
NOISE_SAMPLES = {64: 64, 1024: 24}  # batch size whose gradients are measured → how many of them


def start(problem: Problem, batch: int, rate: float, seed: int) -> Run:
    """A run that has made no update yet."""
    from tensorflow import keras

    from labs.lab3_large_batch.lessons import short_runs

    momentum = max(0.8, 1 - batch / 1280)
    model = problem.model(seed, lambda: keras.layers.BatchNormalization(momentum=momentum))
    return short_runs.Run(model, keras.optimizers.SGD(rate, momentum=0.9), problem.train, seed=seed)


def train_to_target(problem: Problem, batch: int, rate: float, seed: int, max_updates: int) -> dict:
    """Train until the target, for `max_updates` at most: the updates to each accuracy, and the last accuracy."""
    run = start(problem, batch, rate, seed)
    validation = type(problem.validation)(*(part[:VALIDATION_IMAGES] for part in problem.validation))
    arrived, look, loss = {}, max(8, 2_000 // batch), 0.0
    while TARGET not in arrived and run.updates < max_updates and loss == loss:
        loss = run.train(min(look, max_updates) - run.updates, batch)
        accuracy = run.score(validation).accuracy
        for goal in (*EARLIER_TARGETS, TARGET):
            if accuracy >= goal:
                arrived.setdefault(goal, run.updates)
        look = max(look + 1, int(EVALUATION_GROWTH * look))
    before = {f"to {100 * goal:g} %": arrived.get(goal) for goal in EARLIER_TARGETS}
    return {"rate": rate, "seed": seed, **before, "updates": arrived.get(TARGET), "accuracy": round(accuracy, 4)}


def update_limit(batch: int) -> int:
    """After how many updates a rate is given up in tuning."""
    return 100 + 20_000 // batch


def tune(batch: int) -> dict:
    """All rates of a batch size, one after the other."""
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    tried, best, chosen = [], len(TUNING_SEEDS) * update_limit(batch), RATES[0]
    for rate in RATES:
        total = 0
        for seed in TUNING_SEEDS:
            max_updates = min(update_limit(batch), best - total)
            tried.append(train_to_target(problem, batch, rate, seed, max_updates))
            if tried[-1]["updates"] is None or total + tried[-1]["updates"] >= best:
                break  # it can't become the best any more
            total += tried[-1]["updates"]
        else:
            best, chosen = total, rate
    return {"tried": tried, "chosen": chosen}


def results(batch: int, rate: float) -> dict:
    """The runs of a batch size with its best rate."""
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    return {"runs": [train_to_target(problem, batch, rate, seed, 2 * update_limit(batch)) for seed in SEEDS]}


def noise(batch: int, rate: float, seed: int, updates: int) -> dict:
    """Mean squared norms of the gradients of small and large batches, at several places on the way."""
    import numpy as np

    from labs.lab3_large_batch.lessons import short_runs

    run = start(short_runs.fashion(IMAGES), batch, rate, seed)
    rows = []
    for part in NOISE_PARTS:
        if ahead := round(part * updates) - run.updates:
            run.train(ahead, batch)
        squares = {
            f"|g|² of {size}": np.mean([sum(np.sum(g**2, dtype=float) for g in run.gradient(size)) for _ in range(n)])
            for size, n in NOISE_SAMPLES.items()
        }
        rows.append({"part": part, "updates": run.updates, **squares})
    return {"rows": rows}


def main() -> experiments.Recording:
    large_first = BATCH_SIZES[::-1]
    tuned = sweep.run(tune, [{"batch": size} for size in large_first], report=sweep.print_row)
    rates = tuned.set_index("batch")["chosen"]
    tuning = _exploded(tuned.drop(columns="chosen"), "tried").assign(use="tuning")
    plan = [{"batch": size, "rate": rates[size]} for size in large_first]
    arrived = _exploded(sweep.run(results, plan, report=sweep.print_row).drop(columns="rate"), "runs").assign(
        use="result"
    )
    table = pd.concat([tuning, arrived])
    table.insert(0, "use", table.pop("use"))

    medians = arrived.groupby("batch")["updates"].median()
    plan = [
        {"batch": size, "rate": rates[size], "seed": seed, "updates": int(medians[size])}
        for size in NOISE_RUNS
        for seed in SEEDS[:3]
    ]
    squares = _exploded(sweep.run(noise, plan, report=sweep.print_row).drop(columns="updates"), "rows")

    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images"
    source = f"{source}, {VALIDATION_IMAGES:,} others for validation"
    table = table.sort_values(["use", "batch"], kind="stable")
    caption = f"{source} · quick_cnn · {len(SEEDS)} seeds · {experiments.machine()}"
    return experiments.Recording(
        {"steps_to_target": table, "steps_to_target_noise": squares},
        figures_3a.bend(table[table["use"] == "result"], squares, target=TARGET, caption=caption),
        data=source,
        seeds=f"{TUNING_SEEDS} to choose the learning rate, {SEEDS} for the results, {SEEDS[:3]} for the noise",
    )


def _exploded(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row for each entry of the lists in `column`."""
    long = table.explode(column, ignore_index=True)
    return pd.concat([long.drop(columns=column), pd.DataFrame(long[column].tolist())], axis=1)
