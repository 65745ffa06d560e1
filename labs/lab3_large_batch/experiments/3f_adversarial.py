"""Are large-batch networks easier to fool? One gradient by the pixels, at equal accuracy, loss and learning rate.

The quick network on the first 6,400 images of Fashion-MNIST, momentum 0.9, cosine decay to 0. B = 64 with
η = 0.1, its best rate for 4 epochs in generalisation_gap, is trained for 2 to 24 epochs. B = 1,280 is trained for 20
epochs with η = 0.1 (its best rate there; the small batch's as well) and for 80 epochs with η = 0.025 (its best) and
with η = 0.1. Each test image is moved once by ε in every pixel, up or down, as the sign of the loss's gradient says
(fast gradient sign method, arXiv:1412.6572), for five ε; as a control by ε with random signs. What is recorded is the
share of test images that are still recognised.
"""

from __future__ import annotations

import numpy as np

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3f

IMAGES, MOMENTUM = 6_400, 0.9
EPSILONS = (1, 2, 4, 8, 16)  # of 255
RANDOM = 16  # ε of the control
# batch, rate, epochs: the longest first, so that no core waits at the end
SETTINGS = (
    *((1_280, 0.025, 80), (1_280, 0.1, 80), (1_280, 0.1, 20)),
    *((64, 0.1, epochs) for epochs in (24, 16, 12, 8, 6, 4, 3, 2)),
)
SEEDS = (1, 2, 3, 4, 5)


def run(batch: int, rate: float, epochs: int, seed: int) -> dict:
    """Train once, and attack; accuracies are shares of 1."""
    from tensorflow import keras

    from labs.lab3_large_batch.lessons import attacks, short_runs

    problem = short_runs.fashion(IMAGES)
    updates = epochs * (len(problem.train.labels) // batch)
    model = problem.model(seed)
    optimizer = keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(rate, updates), MOMENTUM)
    short_runs.Run(model, optimizer, problem.train, seed=seed).train(updates, batch)

    def accuracy(step: np.ndarray | float) -> float:
        """On the test images, each moved by its step."""
        moved = np.clip(problem.test.images + np.float32(step), 0, 255)
        return round(short_runs.score(model, problem.test._replace(images=moved)).accuracy, 4)

    signs = np.sign(attacks.input_gradients(model, problem.test))
    chance = np.random.default_rng(seed).choice((-1, 1), signs.shape)
    return {
        "updates": updates,
        "training loss": round(short_runs.score(model, problem.train).loss, 4),
        "test accuracy": accuracy(0),
        **{f"attacked, ε = {epsilon}": accuracy(epsilon * signs) for epsilon in EPSILONS},
        f"random signs, ε = {RANDOM}": accuracy(RANDOM * chance),
    }


def main() -> experiments.Recording:
    plan = [
        {"batch": batch, "rate": rate, "epochs": epochs, "seed": seed}
        for batch, rate, epochs in SETTINGS
        for seed in SEEDS
    ]
    table = sweep.run(run, plan, report=sweep.print_row)
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images"
    caption = f"{source} · 10,000 test images · {len(SEEDS)} seeds, each a dot · {experiments.machine()}"
    return experiments.Recording(
        table, figures_3f.adversarial(table, caption=caption), data=source, seeds=", ".join(map(str, SEEDS))
    )
