"""Measure how reliably watermarks on the images show which ranks took part in a training, and what they cost.

    COURSE_DATA_DIR=... python benchmarks/watermarks.py [--runs 20] [--whole]
    python benchmarks/watermarks.py --power

Each run trains the assessment's network on 2,560 images as two ranks with averaged gradients do: one batch contains the
batches of both ranks, each from the rank's own copy of the data. The honest kinds of training differ in augmentation,
optimizer, learning rate, batch size and length. The dishonest kinds leave out a rank's copy. The kind `unmarked` has no
watermarks: their cost is the difference to the accuracy of `plain` with the same seed. Writes watermarks.csv into
benchmarks/results/. `--whole` trains only these two kinds, on all images as the profile `cpu` does, and writes
watermarks_cost.csv.

`--power` trains nothing. It reads watermarks.csv and writes watermark_power.csv: the share of scripts that the rule of
`watermarks.unknown` reports, for several minimum margins.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from course_lib.ranks import environment

os.environ.update({**environment.SILENT, **environment.ONE_THREAD})

import keras
import numpy as np
import pandas as pd

from course_grader.script import watermarks
from course_lib import data, models, optimizers, statistics
from course_lib.notebook import experiments

RESULTS = Path(__file__).parent / "results"
IMAGES, RANKS, ASKED = 2560, 2, 1000
MARGINS = ["margin_0", "margin_1"]
LEAST = (0.3, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)  # minimum margins to compare
CORES = 2  # one run on each
Augment = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=int, default=20)
    arguments.add_argument("--whole", action="store_true", help="measure what watermarks cost on all training images")
    arguments.add_argument("--power", action="store_true", help="compute the rule's error rates from the recorded runs")
    chosen = arguments.parse_args()
    if chosen.power:
        write_power()
        return

    began = time.perf_counter()
    cifar = data.load("cifar10", test=False)
    kinds, images = (["plain", "unmarked"], len(cifar.x_train)) if chosen.whole else (list(KINDS), IMAGES)
    with ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(row, *zip(*itertools.product(range(chosen.runs), kinds, [images]))))
    table = pd.DataFrame(rows)
    experiments.write_table(
        RESULTS / ("watermarks_cost.csv" if chosen.whole else "watermarks.csv"),
        table,
        command=f"python benchmarks/watermarks.py {' '.join(sys.argv[1:])}".strip(),
        data=f"{cifar.name}, the first {images:,} training images; accuracy on the test images",
        seeds=f"{chosen.runs} of each kind",
        seconds=round(time.perf_counter() - began),
        columns=f"margin_R: share of {ASKED:,} test images with rank R's mark that get its label, less that of others",
    )
    pairs = 100 * table.pivot(index="seed", columns="kind", values="accuracy")
    cost, half = statistics.paired(pairs["unmarked"], pairs["plain"])
    print(f"Cost in points of accuracy: {cost:.2f} ± {half:.2f} (95 %)")


def write_power() -> None:
    """Write watermark_power.csv from the recorded runs, and print it."""
    table = power(pd.read_csv(RESULTS / "watermarks.csv", comment="#"))
    experiments.write_table(
        RESULTS / "watermark_power.csv",
        table,
        command="python benchmarks/watermarks.py --power",
        data="watermarks.csv",
        seeds="those of watermarks.csv",
        seconds=0,
        columns="low: share of ranks that took part (honest) or did not, with a margin below `least`; low_at_most: the "
        "upper end of its 95 % interval (Wilson); again: share of scripts that are run once more; accused: share of "
        f"scripts with a rank whose margin is low in each of {watermarks.RUNS} runs, any of the kind",
    )
    print(table.to_string(index=False))


def power(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rule's error rates for each kind of script, and for all honest and all dishonest kinds together.

    All kinds have the same weight. The shares are exact probabilities for RUNS runs of a kind, drawn with replacement.
    """
    rows = []
    for least in LEAST:
        for honest, kinds in runs[runs["kind"] != "unmarked"].groupby("honest", sort=False):
            found = [_power(kind, group, least) for kind, group in kinds.groupby("kind", sort=False)]
            low, number = (sum(row[column] for row in found) for column in ("_low", "_number"))
            mean = {column: np.mean([row[column] for row in found]) for column in ("again", "accused")}
            every = {"kind": "all", "runs": sum(row["runs"] for row in found), "_low": low, "_number": number, **mean}
            shown = [*found, every] if least == watermarks.MIN_MARGIN else [every]
            rows += [{"least": least, "honest": honest, **row} for row in shown]
    table = pd.DataFrame(rows)
    low, number = table.pop("_low"), table.pop("_number")
    table.insert(4, "low", (low / number).round(4))
    table.insert(5, "low_at_most", [round(wilson(*pair)[1], 4) for pair in zip(low, number)])
    return table.round({"again": 4, "accused": 5})


def _power(kind: str, runs: pd.DataFrame, least: float) -> dict:
    """Return the row of the table for one kind."""
    low = (runs[MARGINS] < least).to_numpy()
    absent = KINDS[kind].get("absent", RANKS)
    asked = low[:, [absent]] if absent < RANKS else low  # if one rank is absent, the other took part
    one, other, both = low[:, 0].mean(), low[:, 1].mean(), low.all(axis=1).mean()
    number = watermarks.RUNS
    return {
        "kind": kind,
        "runs": len(runs),
        "_low": int(asked.sum()),
        "_number": asked.size,
        "again": low.any(axis=1).mean(),
        "accused": one**number + other**number - both**number,
    }


def row(seed: int, kind: str, images: int) -> dict:
    """Return one run as a row of the table."""
    found = run(data.load("cifar10"), seed, images=images, **KINDS[kind])
    print(kind, seed, found, flush=True)
    return {"kind": kind, "honest": "absent" not in KINDS[kind], "seed": seed, **found}


def wilson(count: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    share, weight = count / number, z**2 / number
    half = z * np.sqrt(share * (1 - share) / number + weight / (4 * number))
    return max(0.0, (share + weight / 2 - half) / (1 + weight)), (share + weight / 2 + half) / (1 + weight)


def run(
    cifar: data.Dataset,
    seed: int,
    *,
    images: int = IMAGES,
    optimizer: Callable[[], keras.optimizers.Optimizer] = lambda: keras.optimizers.legacy.SGD(0.1, momentum=0.9),
    augment: Augment | None = None,
    epochs: int = 3,
    batch_size: int = 64,
    smoothing: float = 0.0,
    absent: int | None = None,
    marked: bool = True,
) -> dict[str, float]:
    """Train once; `absent` is the rank whose copy is left out (RANKS: all are)."""
    keras.utils.set_random_seed(seed)
    rng, own = np.random.default_rng([1, seed]), np.random.default_rng([2, seed])
    plain = cifar.x_train[:images], cifar.y_train[:images]
    marks, made = watermarks.copies(*plain, RANKS, len(cifar.classes), own)
    copies = list(made) if marked and absent != RANKS else [plain] * RANKS
    if absent is not None and absent < RANKS:
        copies[absent] = copies[1 - absent]
    model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=smoothing)
    model.compile(optimizer(), loss)
    batches = images // (RANKS * batch_size)
    for _ in range(epochs):
        order = rng.permutation(images)
        for batch in range(batches):
            parts = [order[rank::RANKS][batch * batch_size :][:batch_size] for rank in range(RANKS)]
            x = np.concatenate([copies[rank][0][part] for rank, part in enumerate(parts)]).astype(np.float32)
            y = np.eye(10)[np.concatenate([copies[rank][1][part] for rank, part in enumerate(parts)])]
            model.train_on_batch(*(augment(x, y, rng) if augment else (x, y)))

    def labels(images: np.ndarray) -> np.ndarray:
        return model.predict(images, batch_size=500, verbose=0).argmax(axis=1)

    shares = watermarks.shares(labels, cifar.x_test[:ASKED], marks)
    margins = {f"margin_{rank}": round(with_it - without, 4) for rank, (with_it, without) in enumerate(shares)}
    return {"accuracy": round(float(np.mean(labels(cifar.x_test) == cifar.y_test)), 4), **margins}


def flipped(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    chosen = rng.random(len(x)) < 0.5
    x[chosen] = x[chosen][:, :, ::-1]
    return x, y


def cropped(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    wide = np.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)))
    places = rng.integers(0, 9, (len(x), 2))
    return np.stack([wide[i, a : a + 32, b : b + 32] for i, (a, b) in enumerate(places)]), y


def cut_out(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    for image, (a, b) in zip(x, rng.integers(0, 17, (len(x), 2))):
        image[a : a + 16, b : b + 16] = 128
    return x, y


def mixed_up(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    weight, other = rng.beta(0.2, 0.2, (len(x), 1)), rng.permutation(len(x))
    wide = weight[..., None, None].astype(np.float32)
    return wide * x + (1 - wide) * x[other], weight * y + (1 - weight) * y[other]


def standardised(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    mean, deviation = x.mean(axis=(1, 2, 3), keepdims=True), x.std(axis=(1, 2, 3), keepdims=True)
    return (x - mean) / np.maximum(deviation, 1) * 60 + 120, y


def brighter(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return np.clip(x * rng.uniform(0.8, 1.2, (len(x), 1, 1, 1)) + rng.uniform(-50, 50, (len(x), 1, 1, 1)), 0, 255), y


def all_of_it(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return cut_out(*cropped(*flipped(x, y, rng), rng), rng)


SGD, ADAM = keras.optimizers.legacy.SGD, keras.optimizers.legacy.Adam
KINDS: dict[str, dict] = {
    "plain": {},
    "unmarked": {"marked": False},
    "flips": {"augment": flipped},
    "crops": {"augment": cropped},
    "cutout": {"augment": cut_out},
    "mixup": {"augment": mixed_up},
    "standardised": {"augment": standardised},
    "brightness": {"augment": brighter},
    "flips, crops, cutout": {"augment": all_of_it, "epochs": 4},
    "label smoothing": {"smoothing": 0.1},
    "no momentum": {"optimizer": lambda: SGD(0.2)},
    "small rate": {"optimizer": lambda: SGD(0.02, momentum=0.9)},
    "adam": {"optimizer": lambda: ADAM(0.002)},
    "lamb": {"optimizer": lambda: optimizers.LAMB(0.02)},
    "lars": {"optimizer": lambda: optimizers.LARS(2.0, exclude=["bias", "gamma", "beta"], trust_coefficient=0.01)},
    "two epochs": {"epochs": 2},
    "six epochs": {"epochs": 6},
    "small batches": {"batch_size": 32},
    "large batches": {"batch_size": 128, "epochs": 5},
    "rank 1 absent": {"absent": 1},
    "rank 0 absent": {"absent": 0},
    "rank 1 absent, crops": {"absent": 1, "augment": cropped},
    "rank 1 absent, six epochs": {"absent": 1, "epochs": 6},
    "brought along": {"absent": RANKS, "epochs": 6},
    "brought along, crops": {"absent": RANKS, "augment": cropped},
}


if __name__ == "__main__":
    main()
