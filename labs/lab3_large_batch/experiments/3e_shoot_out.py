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

from collections.abc import Callable
from typing import TYPE_CHECKING

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3e

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


def with_rules(chosen: list[dict]) -> list[dict]:
    """Every method's own best rate; at the large batch also what the rules make of the small one's."""
    small = {one["method"]: one["rate"] for one in chosen if one["batch"] == BATCH_SIZES[0]}
    return [{**one, "rule": ""} for one in chosen] + [
        {"method": method, "batch": BATCH_SIZES[-1], "rate": round(small[method] * factor, 4), "rule": rule}
        for rule, factor in RULES.items()
        for method in ("SGD", "LARS")
    ]


def main() -> experiments.Recording:
    tries = [
        {"method": method, "batch": batch, "rate": rate}
        for batch in BATCH_SIZES
        for method in METHODS
        for rate in RATES
    ]
    table = sweep.tune_then_score(run, tries, "rate", "validation", [TUNING_SEED], SEEDS, with_rules)
    table = table.fillna({"rule": ""})
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, last 5,000 for validation"
    caption = f"{source} · {len(SEEDS)} seeds · {experiments.machine()}"
    return experiments.Recording(
        table[["use", "method", "batch", "rule", "rate", "seed", "validation", "test"]],
        figures_3e.methods(table, caption=caption),
        data=source,
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )
