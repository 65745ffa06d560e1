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

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab7_splitting_the_model.lessons import figures_7b

FLOWING = ("current", "stashed")
WAYS = [("flush", 1), *[(way, stages) for way in FLOWING for stages in (2, 4, 8)], ("longer", 8)]
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


def main() -> experiments.Recording:
    tries = [{"way": way, "stages": stages, "rate": rate} for way, stages in WAYS for rate in RATES]
    table = sweep.tune_then_score(run, tries, "rate", "validation accuracy", TUNING_SEEDS, SEEDS, with_other_rates)
    source = data.load("fashion_mnist").name
    caption = f"{source}, 12,800 images · batch 16, SGD, 3 epochs unless told · {experiments.machine()}"
    return experiments.Recording(
        table.round(4),
        figures_7b.stale(table, caption),
        data=f"{source}, first 12,800 images as 14 × 14; 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds(TUNING_SEEDS, SEEDS),
    )


def with_other_rates(chosen: list[dict]) -> list[dict]:
    """Every way with its own rate, some again with another."""
    rates = {(one["way"], one["stages"]): one["rate"] for one in chosen}
    flush = [{**one, "use": "same rate", "rate": rates["flush", 1]} for one in chosen if one["way"] in FLOWING]
    return [
        *chosen,
        *flush,
        {"use": "half rate", "way": "longer", "stages": 8, "rate": rates["longer", 8] / 2},
        {"use": "tied rate", "way": "current", "stages": 8, "rate": 2 * rates["current", 8]},
    ]
