"""A small dense recurrent network against a large pruned one with as many weights that are not 0.

An LSTM reads an image of 14 × 14 pixels row by row. With 32 units its two kernels have 5,888 weights, with 128 units
72,704. *pruned to 5,888*: 128 units, pruned gradually while they train (a cubic schedule that ends at 60 % of the
training) until 5,888 weights are left, the same share of both kernels. *pruned to 10 %*: 32 units, in the same way.

Each trains for 6 epochs with Adam. All four try the same learning rates with the tuning seed, and validation data
choose. Only the result seeds use test data.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots, sweep
from labs.lab5_precision_and_memory.lessons import figures_5d

NONZEROS = 5_888
SETTINGS = {  # units, weights that stay
    "32 units, dense": (32, 5_888),
    "32 units, pruned to 10 %": (32, 589),
    "128 units, dense": (128, 72_704),
    "128 units, pruned to 5,888": (128, NONZEROS),
}
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
TUNING_SEED, SEEDS = 101, (1, 2, 3)


def run(network: str, rate: float, seed: int, use: str) -> dict:
    """One training."""
    from labs.lab5_precision_and_memory.lessons import pruning

    units, stay = SETTINGS[network]
    problem, lstm = pruning.fashion(), pruning.recurrent(seed, units)
    share = 1 - stay / lstm.nonzeros
    lstm.train(problem.train, rate, seed, pruning.cubic(share) if share else None)
    row = {"nonzeros": lstm.nonzeros, "validation accuracy": lstm.accuracy(problem.validation)}
    return {**row, "test accuracy": lstm.accuracy(problem.test)} if use == "result" else row


def main(folder: Path) -> None:
    began = time.monotonic()
    plan = [
        {"network": network, "rate": rate, "seed": TUNING_SEED, "use": "tuning"}
        for rate in RATES
        for network in SETTINGS
    ]
    tuning = sweep.run(run, plan, tell=sweep.say)
    chosen = sweep.best(tuning, ["network"], "rate", "validation accuracy").to_dict("records")
    results = sweep.run(
        run, [{**setting, "seed": seed, "use": "result"} for seed in SEEDS for setting in chosen], tell=sweep.say
    )
    table = pd.concat([tuning, results])
    source = data.load("fashion_mnist").name
    experiments.write_table(
        folder / "recurrent.csv",
        table.round(4),
        command="course reproduce recurrent",
        data=f"{source}, first 6,400 images, 14 x 14 pixels; 5,000 for validation, 10,000 for the test",
        seeds=f"{TUNING_SEED} to choose the learning rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        seconds=round(time.monotonic() - began),
    )
    draw(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}").savefig(folder / "recurrent.png", dpi=150)


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """The four networks."""
    return figures_5d.recurrent(table, caption)
