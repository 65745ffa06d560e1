"""The shoot-out: six optimizers with equal tuning at a small and a large batch.

The quick network and the first 6,400 images of Fashion-MNIST for eight epochs: half of what the lab's other experiments
take, because this one makes over 150 runs. A batch of 64 makes 800 updates, one of 1,280 makes 40. All rates fall to 0
as a cosine, after a warm-up over the first quarter of the updates.

Methods: SGD, LARS and LARC with Nesterov's momentum, Adam, LAMB, NovoGrad, else with their published defaults. At each
batch size each tries the same seven learning rates, once each, with seed 0. (Single runs had shown that .001 is too low
for all, and that the best of some lies near 1.) The one with the best accuracy on 5,000 validation images runs again
with five other seeds, and only those runs see the test images. The trust coefficient of LARS and LARC
is .02, as in NVIDIA's apex: biases and batch norm, which they leave alone, then have a rate of SGD's size. No weight
decay, since the six would each apply it in another way.

Rules: the large batch gets the rate that was tuned at the small one, times √20 or 20, for SGD and for LARS.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots, sweep

if TYPE_CHECKING:
    from tensorflow import keras

METHODS = ("SGD", "Adam", "LARS", "LARC", "LAMB", "NovoGrad")
IMAGES, EPOCHS, BATCH_SIZES = 6_400, 8, (64, 1_280)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
RULES = {"√": 20**0.5, "linear": 20.0}
TRUST_COEFFICIENT = 0.02
EXCLUDED = ("bias", "batch_normalization")
TUNING_SEED, SEEDS = 0, (1, 2, 3, 4, 5)


def optimizer(method: str, rate: Callable[[int], float]) -> keras.optimizers.Optimizer:
    """The method, with Nesterov's momentum where it has momentum."""
    from tensorflow import keras

    from course_lib import optimizers

    layer_wise = {"trust_coefficient": TRUST_COEFFICIENT, "exclude": EXCLUDED}
    makers = {
        "SGD": lambda: keras.optimizers.SGD(rate, momentum=0.9, nesterov=True),
        "Adam": lambda: keras.optimizers.Adam(rate),
        "LARS": lambda: optimizers.LARS(rate, nesterov=True, **layer_wise),
        "LARC": lambda: optimizers.LARC(rate, nesterov=True, **layer_wise),
        "LAMB": lambda: optimizers.LAMB(rate, exclude=EXCLUDED),
        "NovoGrad": lambda: optimizers.NovoGrad(rate),
    }
    return makers[method]()


def run(use: str, method: str, batch: int, rate: float, seed: int, rule: str = "") -> dict:
    """Train once. A result is judged by the test images, a tuning run never sees them."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    updates = EPOCHS * (IMAGES // batch)
    warm_up = updates // 4
    schedule = schedules.cosine(rate, updates, warm_up, start=rate / max(warm_up, 1))
    training = short_runs.Run(problem.model(seed), optimizer(method, schedule), problem.train, seed=seed)
    loss = training.train(updates, batch)
    if loss != loss:
        return {"validation": None, "test": None}
    return {
        "validation": training.score(problem.validation).accuracy,
        "test": training.score(problem.test).accuracy if use == "result" else None,
    }


def main(folder: Path) -> None:
    began = time.monotonic()
    large = BATCH_SIZES[-1]
    methods = [{"method": method, "batch": batch} for batch in BATCH_SIZES for method in METHODS]
    tuning = sweep.run(
        run,
        [{"use": "tuning", **m, "rate": rate, "seed": TUNING_SEED} for m in methods for rate in RATES],
        tell=sweep.say,
    )
    chosen = sweep.best(tuning, by=["method", "batch"], choose="rate", score="validation")
    settings = [{**row, "rule": ""} for row in chosen.to_dict("records")]
    small = chosen[chosen["batch"] == BATCH_SIZES[0]].set_index("method")["rate"]
    for rule, factor in RULES.items():
        for method in ("SGD", "LARS"):
            rate = round(small[method] * factor, 4)
            settings.append({"method": method, "batch": large, "rate": rate, "rule": rule})
    results = sweep.run(
        run, [{"use": "result", **setting, "seed": seed} for seed in SEEDS for setting in settings], tell=sweep.say
    )
    table = pd.concat([tuning.drop(columns="test").assign(rule=""), results], ignore_index=True)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    experiments.write_table(
        folder / "shoot_out.csv",
        table[["use", "method", "batch", "rule", "rate", "seed", "validation", "test"]],
        command="course reproduce shoot_out",
        data=source,
        seeds=f"{TUNING_SEED} to choose the learning rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        seconds=round(time.monotonic() - began),
    )
    draw(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}").savefig(folder / "shoot_out.png", dpi=150)


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Test accuracy of the six methods by batch size: a dot for each seed, a line for the mean."""
    from labs.lab3_large_batch.lessons import figures_3e

    return figures_3e.methods(table.fillna({"rule": ""}), caption=caption)
