"""What the balance loss does: four experts with a top-1 gate, by its factor, and a single expert without a gate.

A small network on Fashion-MNIST at 14 x 14 pixels. The factor alpha of the balance loss is 0, .001, .01, .1 or 1; all
else is the same. In training an expert takes at most 1.25 times an even share of a batch, in a test all that come.

Every setting tries the same learning rates with the tuning seed, and validation data choose. Only the result seeds use
test data.
"""

from __future__ import annotations

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab7_splitting_the_model.lessons import figures_7a

RATES = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
ALPHAS = (0.0, 0.001, 0.01, 0.1, 1.0)
SETTINGS = {"one expert": (1, 0.0), **{f"alpha {alpha:g}": (4, alpha) for alpha in ALPHAS}}
TUNING_SEED, SEEDS = 101, (1, 2, 3, 4, 5)


def run(setting: str, rate: float, seed: int, use: str) -> dict:
    """One training."""
    from labs.lab7_splitting_the_model.lessons import balanced_gate

    network, row = balanced_gate.train(*SETTINGS[setting], rate, seed)
    row["validation accuracy"] = network.accuracy(*balanced_gate.fashion()["validation"])
    return {**row, "test accuracy": network.accuracy(*balanced_gate.fashion()["test"])} if use == "result" else row


def main() -> experiments.Recording:
    tries = [{"setting": setting, "rate": rate} for setting in SETTINGS for rate in RATES]
    table = sweep.tune_then_score(run, tries, "rate", "validation accuracy", [TUNING_SEED], SEEDS)
    source = data.load("fashion_mnist").name
    caption = f"{source}, 25,600 images · {len(SEEDS)} seeds · {experiments.machine()}"
    return experiments.Recording(
        table.round(4),
        figures_7a.balance(table, caption),
        data=f"{source}, first 25,600 images, 14 x 14 pixels; 5,000 for validation, 10,000 for the test",
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )
