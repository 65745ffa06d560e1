"""Sharp minima, the line between two of them, and the distance from the start: small batches against large ones.

Three parts, with the quick network and momentum 0.9:

1. Sharpness. Batches of 64 for 4 epochs, and of 1,280 for 4 and for 20 epochs, cosine decay to 0, each with the same
   five learning rates and three seeds. Sharpness is the largest eigenvalue of the Hessian of the loss on 1,000
   training images, by power iteration until it moves by 0.2 % (`landscape.largest_eigenvalue`).
2. Between. From one start a small-batch run, another one with the images in another order, and a large-batch run of
   20 epochs; the loss on straight lines from the first to the other two, batch norm's averages estimated anew at each
   point. The learning rate is the one that generalisation_gap found for both. Five starts.
3. Distance. From the start, with a constant learning rate, by update: batches from 32 to all images (which is gradient
   descent without any noise), with the same rate for all and with a rate that grows as the square root of the batch.
   Beside them softmax regression, a convex loss, with all images. Three seeds. A straight line against log t and a
   power of t are fitted to each by least squares, from update 4 and from update 24 on.

How the sizes were chosen: 6,400 images as in generalisation_gap; 2,048 for part 3, so that 256 updates with all of
them take 15 seconds of one core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3f

if TYPE_CHECKING:
    from tensorflow import keras

    from labs.lab3_large_batch.lessons.short_runs import Problem

IMAGES, HESSIAN_IMAGES, TOLERANCE = 6_400, 1_000, 0.002
TRAINED = ((64, 4), (1_280, 4), (1_280, 20))  # batch, epochs
RATES = (0.025, 0.05, 0.1, 0.2, 0.4)
RATE = 0.1  # of part 2
SEEDS, STARTS = (1, 2, 3), (1, 2, 3, 4, 5)
ALPHAS = np.linspace(-0.5, 1.5, 17)
WALK_IMAGES = 2_048  # images of part 3
BATCHES, BASE, BASE_RATE = (32, 128, 512, WALK_IMAGES), 128, 0.025
UPDATES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONVEX_RATE = 0.01
MOMENTUM = 0.9


def trained(problem: Problem, batch: int, epochs: int, rate: float, start: int, order: int) -> keras.Model:
    """The network after a run with cosine decay; `start` draws its first weights, `order` that of the images."""
    from tensorflow import keras

    from labs.lab3_large_batch.lessons import short_runs

    updates = epochs * (len(problem.train.labels) // batch)
    model = problem.model(start)
    optimizer = keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(rate, updates), MOMENTUM)
    short_runs.Run(model, optimizer, problem.train, seed=order).train(updates, batch)
    return model


def curvature(batch: int, epochs: int, rate: float, seed: int) -> dict:
    """Part 1: the sharpness where a run ends."""
    from course_lib.models import landscape
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    model = trained(problem, batch, epochs, rate, seed, seed)
    scores = {"training": short_runs.score(model, problem.train), "test": short_runs.score(model, problem.test)}
    weights = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])
    images, labels = (values[:HESSIAN_IMAGES] for values in problem.train)
    product = landscape.hessian_product(model, images, labels)
    found = landscape.largest_eigenvalue(product, weights.size, np.random.default_rng(seed), tolerance=TOLERANCE)
    return {
        "sharpness": float(f"{found.value:.4g}"),
        "products": found.products,
        "length of w": round(float(np.linalg.norm(weights)), 2),
        **{f"{name} loss": round(score.loss, 4) for name, score in scores.items()},
        **{f"{name} accuracy": round(score.accuracy, 4) for name, score in scores.items()},
    }


def between(start: int) -> dict:
    """Part 2: losses on the lines from a small-batch solution; each value is a list with a number for each point."""
    from course_lib.models import landscape
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    (small, epochs), large = TRAINED[0], TRAINED[-1]
    model = trained(problem, small, epochs, RATE, start, start)
    first = [v.numpy() for v in model.trainable_variables]
    ends = {
        "small": trained(problem, small, epochs, RATE, start, start + 100),
        "large": trained(problem, *large, RATE, start, start),
    }
    columns: dict[str, list] = {name: [] for name in ("to", "alpha", "training loss", "test loss", "test accuracy")}
    for to, end in ends.items():
        last = [v.numpy() for v in end.trainable_variables]
        for alpha in ALPHAS:
            for v, a, b in zip(model.trainable_variables, first, last):
                v.assign((1 - alpha) * a + alpha * b)
            landscape.settle(model, problem.train.images[:2_000])
            training, test = short_runs.score(model, problem.train), short_runs.score(model, problem.test)
            values = (to, round(alpha, 3), round(training.loss, 4), round(test.loss, 4), round(test.accuracy, 4))
            for column, value in zip(columns.values(), values):
                column.append(value)
    return columns


def walk(network: str, batch: int, rate: float, seed: int, **_: object) -> dict:
    """Part 3: distances from the start, each value a list with a number for each of UPDATES."""
    from tensorflow import keras

    from course_lib import models
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(WALK_IMAGES)
    batch = min(batch, len(problem.train.labels))
    if network == "convex":
        keras.utils.set_random_seed(seed)
        model, momentum = models.linear(problem.train.images.shape[1:], problem.classes), 0.0
    else:
        model, momentum = problem.model(seed), MOMENTUM
    training = short_runs.Run(model, keras.optimizers.SGD(rate, momentum), problem.train, seed=seed)
    first = [v.numpy() for v in model.trainable_variables]
    distances, losses = [], []
    for updates in UPDATES:
        losses.append(round(training.train(updates - training.updates, batch), 4))
        moved = [np.sum((v.numpy() - w) ** 2) for v, w in zip(model.trainable_variables, first)]
        distances.append(round(float(np.sqrt(np.sum(moved))), 4))
    return {"updates": list(UPDATES), "distance": distances, "loss": losses}


def walks() -> list[dict]:
    """What part 3 runs, the longest first, so that no core waits at the end."""
    plan = [
        {"network": "quick", "rule": rule, "batch": batch, "rate": round(BASE_RATE * factor, 5)}
        for batch in sorted(BATCHES, reverse=True)
        for rule, factor in (("same", 1.0), ("sqrt", (batch / BASE) ** 0.5))
    ]
    plan.append({"network": "convex", "rule": "same", "batch": WALK_IMAGES, "rate": CONVEX_RATE})
    return [{**settings, "seed": seed} for settings in plan for seed in SEEDS]


def main() -> experiments.Recording:
    kinds = sorted(TRAINED, key=lambda kind: -kind[1])
    plan = [{"batch": b, "epochs": e, "rate": rate, "seed": s} for b, e in kinds for rate in RATES for s in SEEDS]
    sharpness = sweep.run(curvature, plan, report=sweep.print_row)
    lines = sweep.run(between, [{"start": start} for start in STARTS], report=print_progress)
    lines = lines.explode(["to", "alpha", "training loss", "test loss", "test accuracy"]).infer_objects()
    distances = sweep.run(walk, walks(), report=print_progress)
    distances = distances.explode(["updates", "distance", "loss"]).infer_objects()
    name = data.load("fashion_mnist").name
    source, walked = (f"{name}, first {images:,} training images" for images in (IMAGES, WALK_IMAGES))
    notes = {
        "sharpness": f"{source} · Hessian of {HESSIAN_IMAGES:,} images · {len(SEEDS)} seeds, each a dot",
        "between": f"{source} · {len(STARTS)} starts: lines through the medians, bands from lowest to highest",
        "distance": f"{walked} · mean of {len(SEEDS)} seeds; dotted: the best straight line from update 24 on",
    }
    captions = {part: f"{note} · {experiments.machine()}" for part, note in notes.items()}
    return experiments.Recording(
        {"sharpness": sharpness, "sharpness_between": lines, "sharpness_distance": distances},
        {
            "sharpness": figures_3f.sharpness(sharpness, floor=0.78, caption=captions["sharpness"]),
            "sharpness_between": figures_3f.between(lines, caption=captions["between"]),
            "sharpness_distance": figures_3f.distance(distances, caption=captions["distance"]),
        },
        data=f"{source}; {WALK_IMAGES:,} for the distances",
        seeds=f"{', '.join(map(str, SEEDS))}; starts of the lines {', '.join(map(str, STARTS))}",
    )


def print_progress(_: dict, finished: int, total: int) -> None:
    """Progress of runs whose rows are long."""
    print(f"[{finished}/{total}]", flush=True)
