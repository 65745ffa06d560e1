"""How far a convolutional network can be pruned: by density, by way of pruning, and by grain.

A dense network is trained for 6 epochs. Then a copy of it goes on for 6 more, with a learning rate of its own: not
pruned (*dense*); its smallest weights set to 0 at once (*at once*); ever more of them in the course of the training, by
a cubic schedule that ends at 60 % of it (*gradual*); as many chosen at random (*random*); rows of three weights or
whole filters with the smallest mean |w| (*rows*, *filters*), at once. *not retrained* is pruned as *at once* and gets
no updates: only batch norm's averages are estimated anew. Each kernel but the first is pruned to the same density.

Every way tries the same learning rates for its second half, at TUNING_DENSITY with the tuning seed, and validation data
choose. The first half is the same for all, with a rate that was not tuned. Only the result seeds use test data.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots, sweep
from labs.lab5_precision_and_memory.lessons import figures_5d

WAYS = ("at once", "gradual", "random", "rows", "filters")
DENSITIES = (0.5, 0.2, 0.1, 0.05, 0.02)
TUNING_DENSITY = 0.1  # the one at which also `random` is run
RATES = (0.025, 0.05, 0.1, 0.2, 0.4)  # of the second half
TUNING_SEED, SEEDS = 101, (1, 2, 3)


def run(way: str, density: float, rate: float, seed: int, use: str) -> dict:
    """One second half."""
    from labs.lab5_precision_and_memory.lessons import pruning

    problem, network = pruning.fashion(), pruning.trained(seed)
    grain = way if way in pruning.GRAINS else "weights"
    if way not in ("dense", "gradual"):
        network.prune(density, grain, random=np.random.default_rng(seed) if way == "random" else None)
    if way == "not retrained":
        network.settle(problem.train)
    else:
        network.train(problem.train, rate, 1_000 + seed, pruning.cubic(1 - density) if way == "gradual" else None)
    row = {"nonzeros": network.nonzeros, "validation accuracy": network.accuracy(problem.validation)}
    return {**row, "test accuracy": network.accuracy(problem.test)} if use == "result" else row


def main() -> experiments.Recording:
    tries = [
        {"way": way, "density": 1.0 if way == "dense" else TUNING_DENSITY, "rate": rate}
        for way in ("dense", *WAYS)
        for rate in RATES
    ]
    table = sweep.tune_then_score(run, tries, "rate", "validation accuracy", [TUNING_SEED], SEEDS, at_all_densities)
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(4),
        draw(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"),
        data=f"{source}, first 6,400 images; 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )


def at_all_densities(chosen: list[dict]) -> list[dict]:
    """Every way at every density; `random` only where it was tuned."""
    rates = {one["way"]: one["rate"] for one in chosen}
    settings = [{"way": "dense", "density": 1.0, "rate": rates["dense"]}]
    for density in DENSITIES:
        settings.append({"way": "not retrained", "density": density, "rate": 0.0})
        ways = WAYS if density == TUNING_DENSITY else [way for way in WAYS if way != "random"]
        settings += [{"way": way, "density": density, "rate": rates[way]} for way in ways]
    return settings


def draw(table: pd.DataFrame, caption: str) -> dict[str, plots.Figure]:
    """The two figures, by the names of their files."""
    return {"pruning": figures_5d.pruned(table, caption), "pruning_grain": figures_5d.grains(table, caption)}
