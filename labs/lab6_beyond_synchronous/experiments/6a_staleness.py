"""What stale gradients cost at equal examples: 1 to 128 asynchronous workers, with and without momentum.

A network with one hidden layer (196-32-10, ReLU) takes 4,000 batches of 16 images, whoever calculates their gradients;
the learning rate falls linearly to 0. Ways:

- *asynchronous*: each worker's time is exponential, and a gradient is applied when it arrives;
- *even*: step times are log-normal with a spread of 20 %, no momentum;
- *aware*: as asynchronous without momentum, but a gradient of staleness τ gets the rate η / (τ + 1);
- *synchronous*: N workers average, so that a batch has 16 N images and there are 4,000 / N updates;
- *long*: as asynchronous without momentum, 16,000 batches.

`rate` is η / (1 − β), which is how far a constant gradient goes in the end, so that both momenta try the same rates.
Every (way, workers, momentum) tries seven rates, a factor of 2 apart, with the tuning seeds, and validation data
choose. Only the result seeds use test data.
"""

from __future__ import annotations

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab6_beyond_synchronous.lessons import figures_6a

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)
FEW = (8, 32, 128)
MOMENTA = (0.0, 0.9)
RATES = {  # the first of seven
    "asynchronous": 0.005,
    "even": 0.0025,
    "long": 0.005,
    "aware": 0.02,  # is divided afterwards
    "synchronous": 0.08,  # has larger batches
}
UPDATES, LONG = 4_000, 16_000
TUNING_SEEDS, SEEDS = (101, 102), (1, 2, 3, 4, 5)
SETTINGS = (
    [("asynchronous", workers, momentum) for momentum in MOMENTA for workers in WORKERS]
    + [("even", workers, 0.0) for workers in FEW]
    + [("aware", workers, 0.0) for workers in WORKERS[1:]]
    + [("synchronous", workers, momentum) for momentum in MOMENTA for workers in WORKERS[1:]]
    + [("long", workers, 0.0) for workers in (1, 32, 128)]
)


def run(way: str, workers: int, momentum: float, rate: float, seed: int, use: str) -> dict:
    """One training."""
    from labs.lab6_beyond_synchronous.lessons import staleness
    from labs.lab6_beyond_synchronous.lessons.small_network import accuracy, fashion, loss

    problem = fashion()
    weights = staleness.train(way, workers, momentum, rate, seed, LONG if way == "long" else UPDATES)
    row = {"loss": loss(weights, problem.train), "validation accuracy": accuracy(weights, problem.validation)}
    return {**row, "test accuracy": accuracy(weights, problem.test)} if use == "result" else row


def main() -> experiments.Recording:
    table = sweep.tune_then_score(run, tries(), "rate", "validation accuracy", TUNING_SEEDS, SEEDS)
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(4),
        figures_6a.staleness(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"),
        data=f"{source}, first 20,000 images, 14 x 14 pixels; 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds(TUNING_SEEDS, SEEDS),
    )


def tries() -> list[dict]:
    """Every setting with as many rates."""
    return [
        {"way": way, "workers": workers, "momentum": momentum, "rate": RATES[way] * 2**power}
        for way, workers, momentum in SETTINGS
        for power in range(7)
    ]
