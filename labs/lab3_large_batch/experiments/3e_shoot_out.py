"""The shoot-out: six optimizers with equal tuning at a small and a large batch, and what each trick does alone.

The quick network and the first 6,400 images of Fashion-MNIST for eight epochs: half of what the lab's other experiments
take, because this one makes over 200 runs. A batch of 64 makes 800 updates, one of 1,280 makes 40. All rates fall to 0
as a cosine, behind a warm-up over the first quarter of the updates.

Methods: momentum SGD with Nesterov's step, Adam, LARS, LARC, LAMB, NovoGrad, each with its published defaults and, at
each batch size, the same seven learning rates, once each, with seed 0. (Single runs had shown that .001 is too low for
all, and that the best of some lies near 1.) The one with the best accuracy on 5,000 validation
images runs again with five other seeds, and only those runs see the test images. The trust coefficient of LARS and LARC
is .02, as in NVIDIA's apex: biases and batch norm, which they leave alone, then have a rate of SGD's size. No weight
decay, since the six would each apply it in another way.

Rules: the large batch gets the rate that was tuned at the small one, times √20 or 20, for SGD and for LARS.

Tricks: SGD at the large batch with nothing (no warm-up, a weight decay of 5e-4 on all weights), with one trick at a
time, and with all; each recipe tries the same six of the seven learning rates.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots, sweep

METHODS = ("SGD", "Adam", "LARS", "LARC", "LAMB", "NovoGrad")
IMAGES, EPOCHS, BATCH_SIZES = 6_400, 8, (64, 1_280)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
RULES = {"√": 20**0.5, "linear": 20.0}
RECIPES = {
    "nothing": (),
    "warm-up": ("warm-up",),
    "ghost batch norm": ("ghost",),
    "no decay on bias, batch norm": ("exclude",),
    "LARS": ("LARS",),
    "twice the epochs": ("longer",),
    "all of these": ("warm-up", "ghost", "exclude", "LARS", "longer"),
}
TRICK_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
DECAY, GHOST_BATCH, TRUST_COEFFICIENT = 5e-4, 64, 0.02
EXCLUDED = ("bias", "batch_normalization")
TUNING_SEED, SEEDS = 0, (1, 2, 3, 4, 5)


def optimizer(method: str, rate, decay: float = 0.0):
    """The method with its published defaults."""
    from tensorflow import keras

    from course_lib import optimizers

    makers = {
        "SGD": lambda: keras.optimizers.SGD(rate, momentum=0.9, nesterov=True),
        "Adam": lambda: keras.optimizers.Adam(rate),
        "LARS": lambda: optimizers.LARS(
            rate, trust_coefficient=TRUST_COEFFICIENT, weight_decay=decay, exclude=EXCLUDED
        ),
        "LARC": lambda: optimizers.LARC(rate, trust_coefficient=TRUST_COEFFICIENT, exclude=EXCLUDED),
        "LAMB": lambda: optimizers.LAMB(rate, exclude=EXCLUDED),
        "NovoGrad": lambda: optimizers.NovoGrad(rate),
    }
    return makers[method]()


def run(use: str, method: str, batch: int, rate: float, seed: int, recipe: str = "", rule: str = "") -> dict:
    """Train once. A result is judged by the test images, a tuning run never sees them."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    from course_lib import layers, models, schedules
    from labs.lab3_large_batch.lessons import short_runs

    tricks = RECIPES[recipe] if recipe else ("warm-up",)
    problem = short_runs.fashion(IMAGES)
    updates = EPOCHS * (1 + ("longer" in tricks)) * (IMAGES // batch)
    warm_up = updates // 4 if "warm-up" in tricks else 0
    schedule = schedules.cosine(rate, updates, warm_up, start=rate / max(warm_up, 1))
    decay = DECAY if recipe else 0.0
    ghost = lambda: layers.GhostBatchNormalization(GHOST_BATCH, momentum=models.BATCH_NORM_MOMENTUM)  # noqa: E731
    training = short_runs.Run(
        problem.model(seed, normalise=ghost if "ghost" in tricks else None),
        optimizer(method, schedule, decay),
        problem.train,
        seed=seed,
        decay=decay if method == "SGD" else 0.0,
        exclude=EXCLUDED if "exclude" in tricks else (),
    )
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
    tricks = [
        {"method": "LARS" if "LARS" in of else "SGD", "batch": large, "recipe": recipe}
        for recipe, of in RECIPES.items()
    ]  # fmt: skip
    tuning = sweep.run(
        run,
        [{"use": "tuning", **m, "recipe": "", "rate": rate, "seed": TUNING_SEED} for m in methods for rate in RATES]
        + [{"use": "tuning", **t, "rate": rate, "seed": TUNING_SEED} for t in tricks for rate in TRICK_RATES],
        tell=sweep.say,
    )
    chosen = sweep.best(tuning, by=["method", "batch", "recipe"], choose="rate", score="validation")
    settings = [{**row, "rule": ""} for row in chosen.to_dict("records")]
    small = chosen[chosen["batch"] == BATCH_SIZES[0]].set_index("method")["rate"]
    for rule, factor in RULES.items():
        for method in ("SGD", "LARS"):
            rate = round(small[method] * factor, 4)
            settings.append({"method": method, "batch": large, "recipe": "", "rate": rate, "rule": rule})
    results = sweep.run(
        run, [{"use": "result", **setting, "seed": seed} for seed in SEEDS for setting in settings], tell=sweep.say
    )
    table = pd.concat([tuning.drop(columns="test").assign(rule=""), results], ignore_index=True)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    experiments.write_table(
        folder / "shoot_out.csv",
        table[["use", "method", "batch", "recipe", "rule", "rate", "seed", "validation", "test"]],
        command="course reproduce shoot_out",
        data=source,
        seeds=f"{TUNING_SEED} to choose the learning rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        seconds=round(time.monotonic() - began),
    )
    draw(table, f"{source} · {len(SEEDS)} seeds · {experiments.machine()}").savefig(folder / "shoot_out.png", dpi=150)


def draw(table: pd.DataFrame, caption: str) -> plots.Card:
    """Test accuracy of the six methods by batch size: a dot for each seed, a line for the mean."""
    from labs.lab3_large_batch.lessons import figures_3e

    return figures_3e.methods(table.fillna({"recipe": "", "rule": ""}), caption=caption)
