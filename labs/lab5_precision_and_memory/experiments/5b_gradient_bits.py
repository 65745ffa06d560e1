"""How many bits gradients need: accuracy by format, by all-reduce and by factor, with small and large batches.

Emulated ranks, each with its share of a batch, train a small dense network in NumPy; the mean of their gradients is
made in a format with few bits (`lessons/narrow_training.py`). Weights, momentum and all else stay in float32. An update
whose mean is not finite is left out (*skipped*), as with loss scaling; the schedule of the learning rate goes on. Two
*regimes*: a batch of 64 and one of 1,280, each for 8 epochs.

The learning rate is tuned for each regime in float32, never for a format: the same rates, three seeds, chosen on
validation data. Only the runs of the result seeds use test data. *map*: formats by three methods: the plain cast in
the ring, a factor for each tensor in the ring (APS), and the factor with sums in float32, of which only the mean is
rounded. *one change*: two settings more in four bits, so that each differs from another one in one thing.
"""

from __future__ import annotations

import numpy as np

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab5_precision_and_memory.lessons import figures_5b

IMAGES = 12_800
REGIMES = {"64": (64, 8), "1,280": (1_280, 8)}  # batch, epochs
RANKS = 8
RATES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
TUNING_SEEDS, SEEDS = (101, 102, 103), (1, 2, 3, 4, 5)
FORMS = (
    *((e, m) for e in (2, 3, 4, 5) for m in (0, 1, 2)),
    (3, 4), (4, 3), (5, 10), (8, 7),
)  # fmt: skip
FOUR_BITS = (3, 0)
METHODS = (("none", "ring"), ("each", "ring"), ("each", "twice"))  # factor, way
ONE_CHANGE = (("all", "ring"), ("each", "once"))  # beside METHODS
LOOKS = 8  # at the numbers that are sent as 0, in each run


def run(
    regime: str,
    rate: float,
    seed: int,
    use: str,
    exponent: int = 8,
    mantissa: int = 23,
    scale: str = "none",
    way: str = "ring",
) -> dict:
    """One training; the format (8, 23) is float32, untouched."""
    from labs.lab5_precision_and_memory.lessons import narrow_training, narrow_wire

    batch, epochs = REGIMES[regime]
    problem = narrow_training.fashion(IMAGES)
    updates = len(problem.train.labels) // batch * epochs
    form = None if (exponent, mantissa) == narrow_wire.FLOAT32 else (exponent, mantissa)
    reduce = narrow_training.reducer(form, scale, way)
    training = narrow_training.Training(problem, batch, rate, updates, seed, reduce, RANKS, skip=True)
    lost = []
    with np.errstate(all="ignore"):
        for _ in range(LOOKS):
            training.run(max(1, updates // LOOKS))
            if form and training.finite:
                lost.append(narrow_training.lost(training.parts, training.network.ends, form, scale, way))
        training.run()
    row = {
        "updates": training.update,
        "skipped": training.skipped,
        "sent as 0": np.mean(lost) if lost else np.nan,
        "validation accuracy": training.accuracy(problem.validation),
    }
    return {**row, "test accuracy": training.accuracy(problem.test)} if use == "result" else row


def main() -> experiments.Recording:
    tries = [{"part": "tuning", "regime": regime, "rate": rate} for regime in REGIMES for rate in RATES]
    table = sweep.tune_then_score(without_part, tries, "rate", "validation accuracy", TUNING_SEEDS, SEEDS, with_formats)
    for column in ("exponent", "mantissa"):
        table[column] = table[column].astype("Int64")
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(4),
        figures_5b.bits_map(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"),
        data=f"{source}, first {IMAGES:,} images, 14 x 14 pixels; 5,000 for validation, 10,000 for the test",
        seeds=f"{TUNING_SEEDS[0]} to {TUNING_SEEDS[-1]} to choose the learning rate, in float32; "
        f"{SEEDS[0]} to {SEEDS[-1]} for the results",
    )


def without_part(part: str, **settings: object) -> dict:
    return run(**settings)


def with_formats(chosen: list[dict]) -> list[dict]:
    """What runs with the result seeds. Where a row says nothing of a setting, it is that of `run`."""
    settings = [{**regime, "part": "float32"} for regime in chosen]
    for regime in chosen:
        settings += [
            {**regime, "part": part, **_form(form), "scale": scale, "way": way}
            for part, forms, methods in (("map", FORMS, METHODS), ("one change", [FOUR_BITS], ONE_CHANGE))
            for form in forms
            for scale, way in methods
        ]
    return settings


def _form(form: tuple) -> dict[str, int]:
    return {"exponent": form[0], "mantissa": form[1]}
