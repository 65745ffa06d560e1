"""What stale weights cost in a pipeline that is never flushed, by number of stages, with every way's own best rate.

A network of eight dense layers (196, seven times 48, 10; ReLU) takes 2,400 batches of 16 images, three epochs. Each
batch is one update; the learning rate falls to 0 linearly. Ways:

- *flush*: plain SGD, which is what every pipeline with a flush makes, whatever its number of stages;
- *current*: never flushed, and each backward pass takes the weights of the moment;
- *stashed*: never flushed, and each backward pass takes the weights of its forward pass;
- *longer*: as *current*, eight epochs: about the time in which a pipeline of eight stages that cuts each batch into
  four micro-batches and flushes makes three, (4 + 8 − 1) / 4 · 3.

Each way tries the same rates, a factor of 2 apart, with the tuning seeds, and validation data choose (*tuning*). With
the result seeds every way runs with its own rate (*result*), and *current* and *stashed* with the flush's
(*same rate*). *longer* runs at half of its own rate, too (*half rate*): that was added after two of its five runs had
failed. *current* with eight stages runs at twice its own rate, too (*tied rate*): both do equally well with the tuning
seeds, and the smaller was taken. Only these use test data. A training whose weights are not finite any more counts as
guessing.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab7_splitting_the_model.lessons import figures_7b

WAYS = [("flush", 1), *[(way, stages) for way in ("current", "stashed") for stages in (2, 4, 8)], ("longer", 8)]
LONGER = 8  # epochs
RATES = tuple(0.003125 * 2**power for power in range(8))
TUNING_SEEDS, SEEDS = (101, 102), (1, 2, 3, 4, 5)


def run(way: str, stages: int, rate: float, seed: int, use: str) -> dict:
    """One training."""
    import numpy as np

    from course_lib.parallel import pipeline
    from labs.lab7_splitting_the_model.lessons import stale_pipeline

    problem = stale_pipeline.fashion()
    layers = pipeline.first_layers(stale_pipeline.SIZES, seed)
    epochs = LONGER if way == "longer" else stale_pipeline.EPOCHS
    with np.errstate(all="ignore"):  # some rates are too large
        found = stale_pipeline.train(
            layers, stale_pipeline.batches(problem.train, seed, epochs), stages, rate, stash=way == "stashed"
        )
    if use == "tuning":
        return {"validation accuracy": stale_pipeline.accuracy(found, problem.validation)}
    return {"test accuracy": stale_pipeline.accuracy(found, problem.test)}


def main(folder: Path) -> None:
    began = time.monotonic()
    tuning = sweep.run(
        run,
        [
            {"way": way, "stages": stages, "rate": rate, "seed": seed, "use": "tuning"}
            for way, stages in WAYS
            for rate in RATES
            for seed in TUNING_SEEDS
        ],
        tell=sweep.say,
    )
    best = sweep.best(tuning, ["way", "stages"], "rate", "validation accuracy")
    rates = {(way, stages): rate for way, stages, rate in best.itertuples(index=False)}
    results = sweep.run(run, plan_of_results(rates), tell=sweep.say)
    table = pd.concat([tuning, results])
    source = data.load("fashion_mnist").name
    experiments.write_table(
        folder / "stale_pipeline.csv",
        table.round(4),
        command="course reproduce stale_pipeline",
        data=f"{source}, first 12,800 images as 14 × 14; 5,000 for validation, 10,000 for the test",
        seeds=f"{TUNING_SEEDS[0]} and {TUNING_SEEDS[-1]} to choose the rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        seconds=round(time.monotonic() - began),
    )
    caption = f"{source}, 12,800 images · batch 16, SGD, 3 epochs unless told · {experiments.machine()}"
    figures_7b.stale(table, caption).savefig(folder / "stale_pipeline.png", dpi=150)


def plan_of_results(rates: dict[tuple[str, int], float]) -> list[dict]:
    """Every way with its own rate, some again with another, with every result seed."""
    plan = [("result", way, stages, rate) for (way, stages), rate in rates.items()]
    plan += [("same rate", way, stages, rates["flush", 1]) for way, stages in rates if way in ("current", "stashed")]
    plan += [("half rate", "longer", 8, rates["longer", 8] / 2), ("tied rate", "current", 8, 2 * rates["current", 8])]
    return [
        {"way": way, "stages": stages, "rate": rate, "seed": seed, "use": use}
        for use, way, stages, rate in plan
        for seed in SEEDS
    ]
