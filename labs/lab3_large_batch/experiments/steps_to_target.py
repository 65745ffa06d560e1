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

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from course_lib import experiments, plots, sweep

if TYPE_CHECKING:
    from course_lib.trial import Problem, Run

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
RATES = (0.03, 0.1, 0.01, 0.3, 0.003)  # in the order in which they are tried
TUNING_SEEDS, SEEDS = (101, 102), (1, 2, 3, 4, 5)
IMAGES, LOOKED_AT = 55_000, 2_000
TARGET, BEFORE, GROWTH = 0.82, (0.75, 0.8), 1.08  # the target, accuracies on the way, and how seldom to look

NOISE_OF = (16, 256, 4096)  # batch sizes that train
NOISE_AT = (0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # parts of the updates to the target
NOISE_FROM = {64: 64, 1024: 24}  # batch sizes that are measured: how many of each


def start(problem: Problem, batch: int, rate: float, seed: int) -> Run:
    """A run that has made no update yet."""
    from tensorflow import keras

    from course_lib import trial

    momentum = max(0.8, 1 - batch / 1280)
    model = problem.model(seed, lambda: keras.layers.BatchNormalization(momentum=momentum))
    return trial.Run(model, keras.optimizers.SGD(rate, momentum=0.9), problem.train, seed=seed)


def arrive(problem: Problem, batch: int, rate: float, seed: int, most: int) -> dict:
    """Train until the target, for `most` updates at most: the updates to each accuracy, and the accuracy seen last."""
    run = start(problem, batch, rate, seed)
    looked_at = type(problem.validation)(*(part[:LOOKED_AT] for part in problem.validation))
    arrived, look, loss = {}, max(8, 2_000 // batch), 0.0
    while TARGET not in arrived and run.updates < most and loss == loss:
        loss = run.train(min(look, most) - run.updates, batch)
        accuracy = run.score(looked_at).accuracy
        for goal in (*BEFORE, TARGET):
            if accuracy >= goal:
                arrived.setdefault(goal, run.updates)
        look = max(look + 1, int(GROWTH * look))
    before = {f"to {100 * goal:g} %": arrived.get(goal) for goal in BEFORE}
    return {"rate": rate, "seed": seed, **before, "updates": arrived.get(TARGET), "accuracy": round(accuracy, 4)}


def limit(batch: int) -> int:
    return 100 + 20_000 // batch


def tune(batch: int) -> dict:
    """All rates of a batch size, one after the other."""
    from course_lib import trial

    problem = trial.fashion(IMAGES)
    tried, best, chosen = [], len(TUNING_SEEDS) * limit(batch), RATES[0]
    for rate in RATES:
        total = 0
        for seed in TUNING_SEEDS:
            most = min(limit(batch), best - total)
            tried.append(arrive(problem, batch, rate, seed, most))
            if tried[-1]["updates"] is None or total + tried[-1]["updates"] >= best:
                break  # it can't become the best any more
            total += tried[-1]["updates"]
        else:
            best, chosen = total, rate
    return {"tried": tried, "chosen": chosen}


def results(batch: int, rate: float) -> dict:
    """The runs of a batch size with its best rate."""
    from course_lib import trial

    problem = trial.fashion(IMAGES)
    return {"runs": [arrive(problem, batch, rate, seed, 2 * limit(batch)) for seed in SEEDS]}


def noise(batch: int, rate: float, seed: int, updates: int) -> dict:
    """Mean squared norms of the gradients of small and large batches, at several places on the way."""
    import numpy as np

    from course_lib import trial

    run = start(trial.fashion(IMAGES), batch, rate, seed)
    rows = []
    for part in NOISE_AT:
        if ahead := round(part * updates) - run.updates:
            run.train(ahead, batch)
        squares = {
            f"|g|² of {size}": np.mean([sum(np.sum(g**2, dtype=float) for g in run.gradient(size)) for _ in range(n)])
            for size, n in NOISE_FROM.items()
        }
        rows.append({"part": part, "updates": run.updates, **squares})
    return {"rows": rows}


def main(folder: Path) -> None:
    began = time.monotonic()
    large_first = BATCH_SIZES[::-1]
    tuned = sweep.run(tune, [{"batch": size} for size in large_first], tell=sweep.say)
    rates = tuned.set_index("batch")["chosen"]
    tuning = _spread(tuned.drop(columns="chosen"), "tried").assign(use="tuning")
    plan = [{"batch": size, "rate": rates[size]} for size in large_first]
    arrived = _spread(sweep.run(results, plan, tell=sweep.say).drop(columns="rate"), "runs").assign(use="result")
    table = pd.concat([tuning, arrived])
    table.insert(0, "use", table.pop("use"))

    medians = arrived.groupby("batch")["updates"].median()
    plan = [
        {"batch": size, "rate": rates[size], "seed": seed, "updates": int(medians[size])}
        for size in NOISE_OF
        for seed in SEEDS[:3]
    ]
    squares = _spread(sweep.run(noise, plan, tell=sweep.say).drop(columns="updates"), "rows")

    from course_lib import data

    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, {LOOKED_AT:,} others for validation"
    facts = {
        "command": "course reproduce steps_to_target",
        "data": source,
        "seeds": f"{TUNING_SEEDS} to choose the learning rate, {SEEDS} for the results, {SEEDS[:3]} for the noise",
        "seconds": round(time.monotonic() - began),
    }
    experiments.write_table(folder / "steps_to_target.csv", table.sort_values(["use", "batch"], kind="stable"), **facts)
    experiments.write_table(folder / "steps_to_target_noise.csv", squares, **facts)
    caption = f"{source} · quick_cnn · {len(SEEDS)} seeds · {experiments.machine()}"
    draw(table, squares, caption).savefig(folder / "steps_to_target.png", dpi=150)


def _spread(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row for each entry of the lists in `column`."""
    long = table.explode(column, ignore_index=True)
    return pd.concat([long.drop(columns=column), pd.DataFrame(long[column].tolist())], axis=1)


def draw(table: pd.DataFrame, squares: pd.DataFrame, caption: str) -> plots.Card:
    """Updates by batch size with the fitted curve, and the noise scale on the way."""
    from course_lib.plots import large_batch

    return large_batch.bend(table[table["use"] == "result"], squares, target=TARGET, caption=caption)
