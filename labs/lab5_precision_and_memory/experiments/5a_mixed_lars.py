"""LARS in mixed precision: float32, bfloat16 and float16, with a scaled loss or not, and with norms in float16.

The course's quick network (three convolutions with batch norm) is trained by LARS for 15 epochs with a batch of 1,280,
momentum 0.9 and a trust coefficient of 0.02, on kernels only. Tensors go through 16 bits and back (`mixed_lars`),
master weights stay in float32. *scaled loss*: dynamic, from 2^15, doubled after 50 clean steps. *norms too*: LARS's
norms are taken in float16, of gradients that still have the scale in them.

Every way tries the same learning rates with the tuning seed, and validation data choose. Tuning uses no test data.
"""

from __future__ import annotations

from course_lib import data
from course_lib.data.splits import Problem
from course_lib.notebook import experiments, sweep
from labs.lab5_precision_and_memory.lessons import figures_5a

IMAGES = 12_800
WAYS = (
    "float32", "bfloat16", "float16", "float16, scaled loss", "float16, norms too", "float16, scaled loss, norms too",
)  # fmt: skip
RATES = (0.1, 0.3, 1.0, 3.0, 10.0)
TUNING_SEED, SEEDS = 101, (1, 2, 3, 4, 5)
EVERY = 3  # epochs between two looks at the validation loss


def run(way: str, rate: float, seed: int, use: str) -> dict:
    """One training."""
    from labs.lab5_precision_and_memory.lessons import mixed_lars

    problem, row = Problem.fashion(IMAGES), {}
    updates = len(problem.train.labels) // mixed_lars.BATCH
    for state in mixed_lars.train(problem.train, rate, seed, mixed_lars.WAYS[way]):
        if use == "result" and state.updates % (EVERY * updates) == 0:
            row[f"loss at {state.updates // updates}"] = mixed_lars.evaluate(state.model, problem.validation)[0]
    row |= {"left out": state.left_out, "last scale": state.scale}
    row["validation accuracy"] = mixed_lars.evaluate(state.model, problem.validation)[1]
    return row if use == "tuning" else {**row, "test accuracy": mixed_lars.evaluate(state.model, problem.test)[1]}


def main() -> experiments.Recording:
    tries = [{"way": way, "rate": rate} for way in WAYS for rate in RATES]
    table = sweep.tune_then_score(run, tries, "rate", "validation accuracy", [TUNING_SEED], SEEDS)
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(5),
        figures_5a.mixed_lars(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"),
        data=f"{source}, first {IMAGES:,} images; 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )
