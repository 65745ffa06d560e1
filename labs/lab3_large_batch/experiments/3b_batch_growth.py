"""The batch grows in place of the learning rate's decay: the same accuracy, in how many updates?

The quick network, the first 12,288 images of Fashion-MNIST, SGD with momentum 0.9, nine epochs in three stages of
three. Smith et al. (2017, arXiv:1711.00489) let the learning rate fall by a factor at each milestone, or let the batch
grow by it. Here the factor is 4, from a batch of 64. Beside the two: growth that must stop at 256, so that the last
milestone is a decay; growth from a start with four times the batch and rate; and, to see what it is all good for, no
change at all. Every method tries the same eight rates with one seed on validation data, and trains again with its best
and five other seeds. Images, factor and epochs were chosen before any run, for batches that fit into an epoch.
"""

from __future__ import annotations

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3b as rates

IMAGES, EPOCHS, MILESTONES, FACTOR = 12_288, 9, (3, 6), 4
MOMENTUM = 0.9
# name → batch at the start, the largest batch; without a largest one nothing changes
METHODS = {
    "no change": (64, None),
    "decay": (64, 64),
    "growth": (64, 1024),
    "growth to 256, then decay": (64, 256),
    "growth from 256": (256, 4096),
}
RATES = tuple(2.0**k for k in range(-8, 0))
TUNING_SEED, SEEDS = 0, tuple(range(1, 6))


def run(use: str, method: str, eta: float, seed: int) -> dict:
    """Train once in stages; a batch of 64 starts with `eta`, one of 256 with four times that."""
    from tensorflow import keras

    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    batch, largest = METHODS[method]
    scaled = schedules.linear_scaling(eta, batch, 64)
    stages = [schedules.Stage(0, batch, scaled)]
    if largest:
        stages = schedules.growth(scaled, batch, MILESTONES, FACTOR, largest)
    problem = short_runs.fashion(IMAGES)
    optimizer = keras.optimizers.SGD(scaled, momentum=MOMENTUM)
    training = short_runs.Run(problem.model(seed), optimizer, problem.train, seed=seed)
    losses, accuracies, counts = [], [], []
    for stage, end in zip(stages, [stage.epoch for stage in stages[1:]] + [EPOCHS]):
        optimizer.learning_rate = stage.eta
        for _ in range(stage.epoch, end):
            losses.append(training.train(IMAGES // stage.batch, stage.batch))
            accuracies.append(training.score(problem.validation).accuracy)
            counts.append(training.updates)
    return {
        "updates": training.updates,
        "loss": round(losses[-1], 4),
        "validation": round(accuracies[-1], 4),
        **({"test": round(training.score(problem.test).accuracy, 4)} if use == "result" else {}),
        **{f"after {epoch}": round(value, 4) for epoch, value in enumerate(accuracies, 1)},
        **{f"updates after {epoch}": count for epoch, count in enumerate(counts, 1)},
    }


def main() -> experiments.Recording:
    tries = [{"method": method, "eta": eta} for method in METHODS for eta in RATES]
    table = sweep.tune_then_score(run, tries, "eta", "validation", [TUNING_SEED], SEEDS)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    return experiments.Recording(
        table,
        rates.stages(table[table["use"] == "result"], caption=f"{source} · {experiments.machine()}"),
        data=source,
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )
