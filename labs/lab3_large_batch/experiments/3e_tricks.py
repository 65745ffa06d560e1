"""What each trick of the lab does alone and with the others: three switches in all positions, and two more tricks.

SGD with Nesterov's momentum at a batch of 1,280, on the quick network and the first 6,400 images of Fashion-MNIST. The
switches: a warm-up over the first quarter of the updates; no weight decay on biases and batch norm; the local rates of
LARS on the kernels. Nothing else differs between two neighbours: the same momentum, the same decay of 5e-4, the same
seven learning rates. Ghost batch norm and twice the epochs are switched on alone, and all five together. For comparison
a batch of 64 with warm-up, for as many epochs and for twice as many.

Each position tries the seven rates with seed 0; the one with the best accuracy on 5,000 validation images runs again
with five other seeds, and only those runs see the test images.
"""

from __future__ import annotations

import itertools

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3e

IMAGES, EPOCHS, SMALL, LARGE = 6_400, 8, 64, 1_280
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SWITCHES = ("warm-up", "exempt", "LARS")
ALONE = ("ghost", "longer")
DECAY, GHOST_BATCH, TRUST_COEFFICIENT = 5e-4, 64, 0.02
VECTORS, KERNELS = ("bias", "batch_normalization"), ("kernel",)
TUNING_SEED, SEEDS = 0, (1, 2, 3, 4, 5)


def positions() -> list[dict]:
    """Every position of the switches that is tried: batch, and 0 or 1 for each trick."""
    large = [dict(zip(SWITCHES, values)) for values in itertools.product((0, 1), repeat=len(SWITCHES))]
    large += [{trick: 1} for trick in ALONE] + [dict.fromkeys((*SWITCHES, *ALONE), 1)]
    small = [{"warm-up": 1}, {"warm-up": 1, "longer": 1}]
    off = dict.fromkeys((*SWITCHES, *ALONE), 0)
    return [{"batch": batch, **off, **on} for batch, rows in ((LARGE, large), (SMALL, small)) for on in rows]


def run(use: str, batch: int, rate: float, seed: int, **on: int) -> dict:
    """Train once. A result is judged by the test images, a tuning run never sees them."""
    from tensorflow import keras

    from course_lib import models, optimizers
    from course_lib.models import layers
    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    updates = EPOCHS * (1 + on["longer"]) * (IMAGES // batch)
    warm_up = updates // 4 if on["warm-up"] else 0
    schedule = schedules.cosine(rate, updates, warm_up, start=rate / max(warm_up, 1))
    if on["LARS"]:  # which adds the kernels' decay to what it takes the norm of
        optimizer = optimizers.LARS(schedule, 0.9, DECAY, TRUST_COEFFICIENT, nesterov=True, exclude=VECTORS)
    else:
        optimizer = keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True)
    spared = (VECTORS if on["exempt"] else ()) + (KERNELS if on["LARS"] else ())
    ghost = lambda: layers.GhostBatchNormalization(GHOST_BATCH, momentum=models.BATCH_NORM_MOMENTUM)  # noqa: E731
    training = short_runs.Run(
        problem.model(seed, normalise=ghost if on["ghost"] else None),
        optimizer,
        problem.train,
        seed=seed,
        decay=DECAY,
        exclude=spared,
    )
    loss = training.train(updates, batch)
    if loss != loss:
        return {"validation": None, "test": None}
    return {
        "validation": training.score(problem.validation).accuracy,
        "test": training.score(problem.test).accuracy if use == "result" else None,
    }


def main() -> experiments.Recording:
    tries = [{**position, "rate": rate} for position in positions() for rate in RATES]
    table = sweep.tune_then_score(run, tries, "rate", "validation", [TUNING_SEED], SEEDS)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    caption = f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"
    return experiments.Recording(
        table[["use", "batch", *SWITCHES, *ALONE, "rate", "seed", "validation", "test"]],
        figures_3e.positions(table, SWITCHES, ALONE, LARGE, caption=caption),
        data=source,
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )
