"""The best explicit momentum of 1 to 16 asynchronous workers, which bring momentum of their own.

A network with one hidden layer (196-32-10, ReLU) takes 200 batches of 256 images: large batches and few updates, so
that momentum helps. The learning rate falls linearly to 0. Each worker's time is exponential, as Mitliagkas et al.
assume.

`rate` is η / (1 − β), which is how far a constant gradient goes in the end, so that all momenta try the same rates.
Every (workers, momentum) tries the same eight rates with the tuning seeds, and the loss on validation data chooses.
Only the result seeds use test data.
"""

from __future__ import annotations

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab6_beyond_synchronous.lessons import figures_6a

WORKERS = (1, 2, 4, 8, 16)
MOMENTA = (-0.8, -0.5, 0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
RATES = tuple(0.02 * 2**power for power in range(8))
UPDATES, BATCH = 200, 256
TUNING_SEEDS, SEEDS = (101, 102), tuple(range(1, 9))


def run(workers: int, momentum: float, rate: float, seed: int, use: str) -> dict:
    """One training."""
    from labs.lab6_beyond_synchronous.lessons import small_network, staleness

    problem = small_network.fashion()
    weights = staleness.train("asynchronous", workers, momentum, rate, seed, UPDATES, BATCH)
    row = {"validation loss": small_network.loss(weights, problem.validation)}
    return {**row, "test loss": small_network.loss(weights, problem.test)} if use == "result" else row


def main() -> experiments.Recording:
    plan = [
        {"workers": workers, "momentum": momentum, "rate": rate, "seed": seed, "use": "tuning"}
        for workers in WORKERS
        for momentum in MOMENTA
        for rate in RATES
        for seed in TUNING_SEEDS
    ]
    tuning = sweep.run(run, plan, report=sweep.print_row)
    scores = tuning.assign(score=-tuning["validation loss"])
    chosen = sweep.best(scores, ["workers", "momentum"], "rate", "score").to_dict("records")
    results = sweep.run(
        run,
        [{**setting, "seed": seed, "use": "result"} for seed in SEEDS for setting in chosen],
        report=sweep.print_row,
    )
    table = pd.concat([tuning, results])
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(4),
        figures_6a.momenta(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"),
        data=f"{source}, first 20,000 images, 14 x 14 pixels; 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds(TUNING_SEEDS, SEEDS),
    )
