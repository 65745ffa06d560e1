"""What skip connections do to the loss surface: slices around Wide ResNets of depth 16 and 40, with and without.

The four networks differ in nothing but depth and additions: at each depth the same first weights, the same images
in the same order, the same number of updates. Each of them is trained with the same four learning rates, of
which the one with the best validation accuracy is drawn; the slices of the others are in the second table.

How the sizes were chosen: in a first look (3 epochs, one seed, one or two rates) the networks without skip
connections reached validation accuracies of 87, 79, 75 and 12 % at depth 16, 28, 40 and 58, those with them 87 to
88 %. 40 is the deepest at which both learn; 16 is the control, where skip connections are hardly needed. Five epochs
of 12,800 images keep the whole under a quarter of an hour on two cores. The slices reach from -1 to 1: there every
filter has been changed by its own length. The depths were chosen by these accuracies; coarse slices had been seen
by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.models import landscape
from course_lib.notebook import experiments, plots
from labs.lab1_gradient_descent.lessons import figures_surfaces as surfaces

if TYPE_CHECKING:
    from tensorflow import keras

DEPTHS = (16, 40)
RATES = (0.01, 0.03, 0.1, 0.3)
IMAGES, VALIDATION, EPOCHS, BATCH = 12_800, 5_000, 5, 64
MOMENTUM = 0.9
SLICED = 500  # training images over which the loss of a slice is averaged
FINE, COARSE = 41, 21  # points along each side of a slice
DIRECTIONS = (0, 1, 2)  # seeds; the first pair is drawn
SEED = 1  # of weights and order of the images
GUESSING = float(np.log(10))  # the loss of a network that gives each of ten classes the same probability


def train(depth: int, skip: bool, rate: float, fashion: data.Dataset) -> tuple[keras.Model, float]:
    """One network, trained with a cosine decay from `rate` to 0; and its validation accuracy."""
    import tensorflow as tf
    from tensorflow import keras

    from course_lib import models

    keras.utils.set_random_seed(SEED)
    model = models.wide_resnet(fashion.x_train.shape[1:], len(fashion.classes), depth=depth, skip=skip)
    images = tf.data.Dataset.from_tensor_slices((fashion.x_train[:IMAGES], fashion.y_train[:IMAGES]))
    decay = keras.optimizers.schedules.CosineDecay(rate, EPOCHS * -(-IMAGES // BATCH))
    model.compile(keras.optimizers.SGD(decay, MOMENTUM), "sparse_categorical_crossentropy", ["accuracy"])
    model.fit(images.shuffle(IMAGES, seed=SEED).batch(BATCH), epochs=EPOCHS, verbose=0)
    held_out = fashion.x_train[-VALIDATION:], fashion.y_train[-VALIDATION:]
    return model, model.evaluate(*held_out, batch_size=500, verbose=0)[1]


def slice_of(model: keras.Model, seed: int, points: int, fashion: data.Dataset) -> np.ndarray:
    """The loss on a square along the two directions of `seed`: [points, points]."""
    rng = np.random.default_rng(seed)
    weights = [variable.numpy() for variable in model.trainable_variables]
    directions = [landscape.random_direction(weights, rng) for _ in range(2)]
    steps = np.linspace(-1, 1, points)
    with landscape.along(model, directions, fashion.x_train[:SLICED], fashion.y_train[:SLICED]) as loss:
        return landscape.grid(loss, steps, steps)


def study(depth: int, skip: bool, fashion: data.Dataset) -> tuple[list[dict], np.ndarray]:
    """One kind of network at all rates: a row for each slice, and the fine slice of the best one."""
    trained = {rate: train(depth, skip, rate, fashion) for rate in RATES}
    best = max(trained, key=lambda rate: trained[rate][1])
    rows, fine = [], None
    for rate, (model, accuracy) in trained.items():
        for seed in DIRECTIONS if rate == best else DIRECTIONS[:1]:
            drawn = rate == best and seed == DIRECTIONS[0]
            losses = slice_of(model, seed, FINE if drawn else COARSE, fashion)
            fine = losses if drawn else fine
            rows.append({
                "depth": depth, "skip": skip, "rate": rate, "best rate": rate == best, "directions": seed,
                "points": losses.size, "validation accuracy": round(accuracy, 4),
                "loss at the centre": round(losses[len(losses) // 2, len(losses) // 2], 4),
                "share below guessing": round(float(np.mean(losses < GUESSING)), 3),
                "highest loss": float(f"{losses.max():.4g}"),
            })  # fmt: skip
            print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows, fine


def main() -> experiments.Recording:
    fashion = data.load("fashion_mnist")
    studies = {(depth, skip): study(depth, skip, fashion) for depth in DEPTHS for skip in (True, False)}
    steps = np.linspace(-1, 1, FINE)
    a, b = (values.ravel().round(3) for values in np.meshgrid(steps, steps))
    grids = pd.concat(
        pd.DataFrame({"depth": depth, "skip": skip, "a": a, "b": b, "loss": fine.ravel()})
        for (depth, skip), (_, fine) in studies.items()
    )
    grids["loss"] = grids["loss"].map("{:.4g}".format)
    table = pd.DataFrame([row for rows, _ in studies.values() for row in rows])
    source = f"{fashion.name}, {EPOCHS} epochs of {IMAGES:,} images · loss of {SLICED} training images"
    return experiments.Recording(
        {"landscape": grids, "landscape_networks": table},
        draw(table, {kind: fine for kind, (_, fine) in studies.items()}, f"{source} · {experiments.machine()}"),
        data=f"{fashion.name}: trained on the first {IMAGES:,} images, rates chosen on the last {VALIDATION:,} "
        f"training images, slices over the first {SLICED}",
        seeds=f"weights and order of images {SEED}; directions {', '.join(map(str, DIRECTIONS))}",
    )


def draw(table: pd.DataFrame, slices: dict[tuple[int, bool], np.ndarray], caption: str) -> plots.Figure:
    """The four slices: a row for each depth, with and without skip connections side by side."""
    drawn = table[table["best rate"]].drop_duplicates(["depth", "skip"]).set_index(["depth", "skip"])
    titles = {
        (depth, skip): f"depth {depth}, {'with' if skip else 'no'} skips, η = {drawn.loc[(depth, skip), 'rate']:g}: "
        f"{100 * drawn.loc[(depth, skip), 'validation accuracy']:.1f} % right"
        for depth, skip in slices
    }
    steps = np.linspace(-1, 1, FINE)
    return surfaces.contours(
        steps, steps, {titles[kind]: losses for kind, losses in slices.items()},
        limit=100, mark=(GUESSING, "as good as guessing: L = ln 10"), caption=caption,
    )  # fmt: skip
