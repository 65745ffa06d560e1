"""A small dense recurrent network against a large pruned one with as many weights that are not 0.

An LSTM reads an image of 14 × 14 pixels row by row. With 32 units its two kernels have 5,888 weights, with 128 units
72,704. *pruned to 5,888*: 128 units, pruned gradually while they train (a cubic schedule that ends at 60 % of the
training) until 5,888 weights are left, the same share of both kernels. *pruned to 10 %*: 32 units, in the same way.

Each trains for 6 epochs with Adam. All four try the same learning rates with the tuning seed, and validation data
choose. Only the result seeds use test data.
"""

from __future__ import annotations

from course_lib import data
from course_lib.notebook import experiments, sweep
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


def main() -> experiments.Recording:
    tries = [{"network": network, "rate": rate} for network in SETTINGS for rate in RATES]
    table = sweep.tune_then_score(run, tries, "rate", "validation accuracy", [TUNING_SEED], SEEDS)
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(4),
        figures_5d.recurrent(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"),
        data=f"{source}, first 6,400 images, 14 x 14 pixels; 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )
