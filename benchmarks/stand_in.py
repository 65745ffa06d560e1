"""Compare learning curves on the synthetic data set `shapes` with those on the data sets that it replaces.

    COURSE_DATA_DIR=... python benchmarks/stand_in.py

Trains both course models on a slice of each set, with several seeds. Writes the table stand_in.csv, the figure
stand_in.png and the sample images shapes.png into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pandas as pd
from rich.progress import Progress
from tensorflow import keras

from course_lib import data, models
from course_lib.data import shapes
from course_lib.data.published import PUBLISHED
from course_lib.notebook import experiments, plots

RESULTS = Path(__file__).parent / "results"
BATCH, LEARNING_RATE = 64, 0.001  # Adam
TITLES = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--images", type=int, default=10_000, help="training images of each set")
    arguments.add_argument("--epochs", type=int, default=8)
    arguments.add_argument("--seeds", type=int, default=3)
    chosen = arguments.parse_args()

    began = time.perf_counter()
    table = measure(chosen.images, chosen.epochs, chosen.seeds)
    RESULTS.mkdir(exist_ok=True)
    experiments.write_table(
        RESULTS / "stand_in.csv",
        table,
        command=f"python benchmarks/stand_in.py {' '.join(sys.argv[1:])}".strip(),
        data=f"real fashion_mnist and cifar10, shapes; {chosen.images} training, half as many test images",
        seeds=f"0 to {chosen.seeds - 1}",
        seconds=round(time.perf_counter() - began),
        training=f"Adam, learning rate {LEARNING_RATE}, batch {BATCH}",
    )
    draw_curves(table, chosen.images).savefig(RESULTS / "stand_in.png", dpi=150)
    draw_contact_sheet().savefig(RESULTS / "shapes.png", dpi=200)


def measure(images: int, epochs: int, seeds: int) -> pd.DataFrame:
    """Return one row for each set, model, seed and epoch."""
    rows = []
    with Progress() as progress:
        task = progress.add_task("runs", total=4 * 2 * seeds)
        for replaced in PUBLISHED:
            for name, arrays in both(replaced, images).items():
                for model in (models.linear, models.small_cnn):
                    for seed in range(seeds):
                        run = {"set": name, "replaced": replaced, "model": model.__name__, "seed": seed}
                        rows += [{**run, **epoch} for epoch in train(model, arrays, epochs, seed)]
                        progress.advance(task)
    return pd.DataFrame(rows)


def both(replaced: str, images: int) -> dict[str, tuple]:
    """Return the real set and its stand-in: (x_train, y_train, x_test, y_test), `images` and half as many."""
    os.environ["COURSE_SLICE"] = str(2 * images)  # the slice has a quarter as many test images
    real = data.load(replaced)
    if real.name == "shapes":
        sys.exit(f"This comparison needs the real {replaced}: name its folder in COURSE_DATA_DIR.")
    shape = PUBLISHED[replaced].image_shape
    drawn = *shapes.draw(images, shape), *shapes.draw(images // 2, shape, split="test")
    return {
        replaced: (real.x_train[:images], real.y_train[:images], real.x_test, real.y_test),
        "shapes": drawn,
    }


def train(model: object, arrays: tuple, epochs: int, seed: int) -> list[dict[str, float]]:
    x_train, y_train, x_test, y_test = arrays
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    network = model(x_train.shape[1:], 10)
    network.compile(keras.optimizers.Adam(LEARNING_RATE), "sparse_categorical_crossentropy", ["accuracy"])
    history = network.fit(
        x_train,
        y_train,
        BATCH,
        epochs,
        validation_data=(x_test, y_test),
        validation_batch_size=500,
        verbose=0,
    ).history
    return [
        {"epoch": epoch + 1, "train_accuracy": round(train, 4), "test_accuracy": round(test, 4)}
        for epoch, (train, test) in enumerate(zip(history["accuracy"], history["val_accuracy"]))
    ]


def draw_curves(table: pd.DataFrame, images: int) -> plots.Figure:
    seeds = table.seed.nunique()
    caption = (
        f"{images:,} training images · Adam, batch {BATCH} · mean and range of {seeds} seeds · "
        f"{experiments.machine()} · {datetime.date.today().isoformat()}"
    )
    figure, axes = plots.subplots(height=420, columns=2, caption=caption)
    figure.subplots_adjust(left=0.075, top=0.93)
    with plots.style():
        for ax, (replaced, part) in zip(axes, table.groupby("replaced", sort=False)):
            for (name, model), runs in part.groupby(["set", "model"], sort=False):
                accuracy = 100 * runs.pivot_table(index="epoch", columns="seed", values="test_accuracy")
                label = f"{TITLES.get(name, 'shapes')}, {'linear' if model == 'linear' else 'small CNN'}"
                colour = plots.PALETTE[1 if name == "shapes" else 0]
                marker, line = ("o", "-") if model == "small_cnn" else ("s", "--")
                ax.plot(accuracy.index, accuracy.mean(axis=1), line, marker=marker, color=colour, label=label)
                ax.fill_between(
                    accuracy.index,
                    accuracy.min(axis=1),
                    accuracy.max(axis=1),
                    color=colour,
                    alpha=0.18,
                    linewidth=0,
                )
            size = " × ".join(map(str, PUBLISHED[replaced].image_shape))
            ax.set(title=f"{TITLES[replaced]} and its stand-in, {size}", xlabel="epoch", ylim=(0, 100))
            ax.set_xticks(sorted(table.epoch.unique()))
            ax.legend(loc="lower right", ncols=2, fontsize=8.5)
        axes[0].set_ylabel("test accuracy (%)")
    return figure


def draw_contact_sheet(samples: int = 10) -> plots.Figure:
    """Draw the first images of each class, in both sizes; each pixel is 2 x 2 pixels of the figure."""
    height = 410
    caption = "The stand-in `shapes`: the first images of each class, training split, seed 0"
    figure, axes = plots.subplots(height=height, columns=2, caption=caption)
    with plots.style():
        for ax, shape, left in zip(axes, ((32, 32, 3), (28, 28, 1)), (80, 530)):
            x, y = shapes.draw(500, shape)
            framed = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=250)
            rows = [np.concatenate(framed[y == k][:samples], axis=1) for k in range(len(shapes.CLASSES))]
            sheet = np.concatenate(rows)
            ax.imshow(sheet.squeeze(), cmap="gray", interpolation="nearest")
            bottom, side = height - 30 - len(sheet), framed.shape[1]
            ax.set_position((left / plots.WIDTH, bottom / height, len(sheet) / plots.WIDTH, len(sheet) / height))
            ax.set_yticks(side * (np.arange(len(shapes.CLASSES)) + 0.5), shapes.CLASSES)
            ax.set_xticks([])
            ax.set_title("in place of " + ("CIFAR-10" if shape[2] == 3 else "Fashion-MNIST"))
            ax.grid(False)
            ax.spines[:].set_visible(False)
            ax.tick_params(length=0)
    return figure


if __name__ == "__main__":
    main()
