"""Steps and examples to a loss by batch size: softmax regression with plain SGD on Fashion-MNIST.

As in 1f: 4,096 images, and as the target the loss of 1,024 of them after 500 steps of gradient descent. Each batch size
has the best of ten learning rates, chosen on a seed of its own (0). Seconds are those of a machine, and not kept.
"""

from __future__ import annotations

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots
from labs.lab1_gradient_descent.lessons import figures_1f, first_to_target

SIZES = (1, 4, 16, 64, 256, 1_024, first_to_target.IMAGES)


def main() -> experiments.Recording:
    fashion = data.load("fashion_mnist")
    model = first_to_target.Softmax(fashion.x_train, fashion.y_train)
    target = model.target()
    table = first_to_target.compare(
        model.steps, model.loss, target, SIZES, first_to_target.IMAGES, lambda done, what: print(what, flush=True)
    ).drop(columns="seconds")
    source = f"{fashion.name}, the first {first_to_target.IMAGES:,} training images"
    return experiments.Recording(
        table,
        draw(table, source, target),
        data=source,
        settings=f"target: a loss of {target:.4f}; {len(first_to_target.RATES)} rates η, 4 and halves of it",
        seeds=f"{first_to_target.TUNING_SEED} to choose η, {first_to_target.SEEDS[0]} to {first_to_target.SEEDS[-1]}",
    )


def draw(table: pd.DataFrame, caption: str, target: float) -> plots.Figure:
    """Median and range of the seeds by batch size."""
    title = f"To a loss of {target:.3f}: median and range of five seeds; ring: the best"
    return figures_1f.to_target(table, title=title, caption=caption)
