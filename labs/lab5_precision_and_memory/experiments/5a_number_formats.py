"""Training in nine ways of rounding: float32, float16, bfloat16, Flexpoint, fp8, with a scaled loss or not.

A network of four hidden layers with 64 units is trained for 15 epochs with a batch of 1,280 and momentum 0.9, in
NumPy: every tensor is rounded to the format, products add up in float32 (`formats_5a`). *fp8 gradients*: slopes and
gradients in (5, 2), all else in float16. *no master weights*: bfloat16, also for the weights that are kept, rounded to
the nearest after each update or *by chance*. *scaled loss*: dynamic, from 2^15, doubled after 50 clean steps.

Every way tries the same learning rates with the tuning seed, and validation data choose. Then, as use *window*,
float16 and fp8 gradients with static scales of the loss, at the rates chosen for the ways without one. Tuning uses no
test data.
"""

from __future__ import annotations

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots, sweep
from course_lib.precision import LossScale
from labs.lab5_precision_and_memory.lessons import figures_5a, formats_5a, narrow_training

WAYS = tuple(formats_5a.WAYS)
RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
POWERS = (-16, -12, -8, -4, 0, 4, 8, 12, 16, 20)  # of two: static scales
TUNING_SEED, SEEDS = 101, (1, 2, 3, 4, 5)
EVERY = 3  # epochs between two looks at the validation loss


def run(way: str, rate: float, seed: int, use: str, power: float = float("nan")) -> dict:
    """One training; `power`: the loss is scaled by 2^power all the time."""
    problem = narrow_training.fashion()
    chosen = formats_5a.WAYS[way]()
    if power == power:
        chosen = chosen._replace(scaling=LossScale(2.0**power, None))
    network = formats_5a.Network((problem.train.images.shape[1], *formats_5a.HIDDEN, 10))
    row: dict = {}
    updates = len(problem.train.labels) // formats_5a.BATCH
    for state in formats_5a.train(network, problem.train, rate, seed, chosen):
        if use == "result" and state.updates % (EVERY * updates) == 0:
            row[f"loss at {state.updates // updates}"] = network.evaluate(state.weights, problem.validation)[0]
    row |= {"left out": state.left_out, "last scale": state.scale}
    row["validation accuracy"] = network.evaluate(state.weights, problem.validation)[1]
    return row if use == "tuning" else {**row, "test accuracy": network.evaluate(state.weights, problem.test)[1]}


def main() -> experiments.Recording:
    tries = [{"way": way, "rate": rate} for way in WAYS for rate in RATES]
    table = sweep.tune_then_score(run, tries, "rate", "validation accuracy", [TUNING_SEED], SEEDS, with_windows)
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(5),
        draw(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"),
        data=f"{source}, first 12,800 images, 14 x 14 pixels; 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )


def with_windows(chosen: list[dict]) -> list[dict]:
    """Every way at its rate; then two of them with static scales."""
    return chosen + [
        {**one, "use": "window", "power": power}
        for one in chosen
        if one["way"] in ("float16", "fp8 gradients")
        for power in POWERS
    ]


def draw(table: pd.DataFrame, caption: str) -> dict[str, plots.Figure]:
    """The two figures, by the names of their files."""
    return {
        "number_formats": figures_5a.formats(table, caption),
        "number_formats_window": figures_5a.window(table, caption),
    }
