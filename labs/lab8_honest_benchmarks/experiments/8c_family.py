"""A family of small MBConv networks with a large batch: accuracy by cost, with plain and with averaged weights.

Three sizes (`lessons/family.py`), 5,120 images of CIFAR-10, batch 256, 4 epochs (80 updates), LARS with warm-up and
polynomial decay. Each run is one process with batch norm over the whole batch, which is what ranks compute together
with synchronised batch norm (3c). Each size tries the same rates with the tuning seed; the last look at 1,000
validation images chooses, by the plain weights. Where one chooses the lowest or the highest rate, all try
a further one. The best rate runs with other seeds, and only these see the 2,500 test images. Each epoch is judged with
the plain weights and with their moving average (decay 0.95: about an epoch), which averages batch norm's statistics,
too; with size S both also with statistics that are estimated anew for them (`_anew`).

`step`: CPU milliseconds of one core for each image of a training step, the three sizes and EfficientNet-B0 (224 × 224)
in turns, five rounds. Other programs on the machine change them little.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab8_honest_benchmarks.lessons import figures_8c

IMAGES, BATCH, EPOCHS, DECAY = 5_120, 256, 4, 0.95
RATES = (0.5, 1.0, 2.0)  # to begin with
TUNING_SEED, SEEDS = 0, (1, 2, 3)
SIZES = ("L", "M", "S")  # the longest first
ANEW, ROUNDS = "S", 5


def run(size: str, settings: list[dict]) -> dict[str, list[dict]]:
    """All these runs of a size, in a process of its own: a row for each epoch of each."""
    from labs.lab8_honest_benchmarks.lessons import family

    training = family.Training(family.SIZES[size], images=IMAGES, batch=BATCH, epochs=EPOCHS, decay=DECAY)
    rows = []
    for setting in settings:
        counts = setting["use"] == "result"
        made = training.run(setting["rate"], setting["seed"], test=counts, anew=counts and size == ANEW)
        rows += [{"size": size, **setting, **epoch} for epoch in made]
    return {"rows": rows}


def runs(plan: dict[str, list[dict]]) -> pd.DataFrame:
    """A row for each epoch of the runs of a plan: size → their settings."""
    found = sweep.run(run, [{"size": size, "settings": settings} for size, settings in plan.items()])
    return pd.DataFrame([row for rows in found["rows"] for row in rows])


def steps() -> dict[str, list[dict]]:
    """CPU milliseconds of an image in a training step, by size and round."""
    from labs.lab8_honest_benchmarks.lessons import family

    made = {size: family.step(member, images) for size, (member, images) in family.timed().items()}
    rows = []
    for number in range(ROUNDS):
        for size, (images, step) in made.items():
            began = time.process_time()
            step()
            milliseconds = 1000 * (time.process_time() - began) / images
            rows.append({"use": "step", "size": size, "round": number, "cpu_ms": round(milliseconds, 4)})
    return {"rows": rows}


def tries(rates: Iterable[float]) -> dict[str, list[dict]]:
    """The runs that tune each size with these rates."""
    return {size: [{"use": "tuning", "rate": rate, "seed": TUNING_SEED} for rate in rates] for size in SIZES}


def best(tuning: pd.DataFrame) -> dict[str, float]:
    """The rate that each size chooses by the last epoch."""
    chosen = sweep.best(tuning[tuning["epoch"] == EPOCHS], ["size"], "rate", "plain")
    return dict(zip(chosen["size"], chosen["rate"]))


def beyond(tuning: pd.DataFrame) -> list[float]:
    """Rates that are still to be tried, because a size has chosen the lowest or the highest one."""
    chosen, low, high = best(tuning).values(), tuning["rate"].min(), tuning["rate"].max()
    return [low / 2] * (low in chosen) + [2 * high] * (high in chosen)


def main() -> experiments.Recording:
    """Record family.csv and family.png."""
    tuning = runs(tries(RATES))
    while further := beyond(tuning):
        tuning = pd.concat([tuning, runs(tries(further))])
    results = runs(
        {size: [{"use": "result", "rate": rate, "seed": seed} for seed in SEEDS] for size, rate in best(tuning).items()}
    )
    tuned = tuning[tuning["epoch"] == EPOCHS]
    table = pd.concat([tuned, results, pd.DataFrame(sweep.run(steps, [{}])["rows"][0])])
    source = data.load("cifar10").name
    return experiments.Recording(
        table,
        figures_8c.family(table, caption=f"{source} · batch {BATCH} · {len(SEEDS)} seeds · {experiments.machine()}"),
        data=f"{source}, first {IMAGES:,} training images; 1,000 to validate, 2,500 to test",
        seeds=f"{TUNING_SEED} to choose the rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
    )
