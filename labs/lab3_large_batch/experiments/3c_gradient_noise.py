"""Multiplicative gradient noise: is the covariance kept as the batch grows, and does it help a large batch?

*variance*: the network after WARM_UP updates; the total variance (trace of the covariance) of the gradients of many
batches of M examples drawn with replacement, with weights 1 and with weights z ~ N(1, M/m − 1), m = BASE. Once with
the moving averages in batch norm, where each example has a gradient of its own, as the theory wants it; once as in
training, where the batch's own statistics couple the examples.

*training*: a large batch with and without noise that makes it as noisy as smaller ones, and a batch of 64 without, in
the two regimes of the experiment `normalisation`. Each tries the same number of learning rates with the tuning seed;
validation data choose; test data are used by the runs of the result seeds only. The regimes and the range of the
rates were set beforehand by single runs that were judged on validation data.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots, sweep
from labs.lab3_large_batch.lessons import figures_3c, gradient_noise

REGIMES = {"few updates": (12_800, 1_280, 8), "overfitting": (3_200, 640, 20)}  # images, batch, epochs
SMALL_BATCH = 64
NOISE_BASES = {"few updates": (640, 256, 64), "overfitting": (320, 128)}  # as noisy as a batch of so many
RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)  # for the large batch
SMALL_RATE_FACTOR = 0.4  # of RATES, for the small batch
TUNING_SEED, SEEDS = 0, (1, 2, 3, 4, 5)

BASE, SIZES, DRAWS = 64, (64, 128, 256, 512, 1_280), 300
STATISTICS = ("moving averages", "the batch's own statistics")
WARM_UP, EXAMPLES = 20, 2_000  # updates; examples whose own gradients are taken


def run(regime: str, batch: int, base: int, rate: float, seed: int, use: str) -> dict:
    """One training; base = batch is without noise."""
    from tensorflow import keras

    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    images, _, epochs = REGIMES[regime]
    problem = short_runs.fashion(images)
    updates = images // batch * epochs
    optimizer = keras.optimizers.SGD(schedules.cosine(rate, updates, warm_up=updates // 4), momentum=0.9)

    def weigh(size: int, random: np.random.Generator) -> np.ndarray:
        return gradient_noise.multiplicative(size, base, random)

    training = short_runs.Run(problem.model(seed), optimizer, problem.train, seed=seed, weigh=weigh)
    training.train(updates, batch)
    parts = {"train": problem.train, "validation": problem.validation}
    if use == "result":
        parts["test"] = problem.test
    return {f"{name} accuracy": training.score(part).accuracy for name, part in parts.items()}


def variances(statistics: str) -> pd.DataFrame:
    """A row for each batch size, with and without noise: the measured total variance."""
    import tensorflow as tf
    from tensorflow import keras

    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(REGIMES["few updates"][0])
    training = short_runs.Run(problem.model(0), keras.optimizers.SGD(0.1, momentum=0.9), problem.train, seed=0)
    training.train(WARM_UP, REGIMES["few updates"][1])
    random = np.random.default_rng(1)
    if statistics == STATISTICS[0]:
        part = short_runs.Part(*(values[:EXAMPLES] for values in problem.train))
        each = gradient_noise.of_examples(training.model, part.images, part.labels)

        def gradients(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return gradient_noise.of_batches(each, rows, weights)
    else:
        images, labels = (tf.constant(values) for values in problem.train)

        @tf.function(reduce_retracing=True)
        def one(at: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                predicted = training.model(tf.cast(tf.gather(images, at), tf.float32), training=True)
                losses = keras.losses.sparse_categorical_crossentropy(tf.gather(labels, at), predicted)
                loss = tf.reduce_mean(weights * losses)
            slopes = tape.gradient(loss, training.model.trainable_variables)
            return tf.concat([tf.reshape(slope, [-1]) for slope in slopes], 0)

        def gradients(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
            made = [one(tf.constant(at), tf.constant(z, tf.float32)) for at, z in zip(rows, weights)]
            return np.stack([gradient.numpy() for gradient in made])

    examples = EXAMPLES if statistics == STATISTICS[0] else len(problem.train.labels)
    found = []
    for size in SIZES:
        rows = random.integers(examples, size=(DRAWS, size))
        for noisy in (False, True):
            z = [gradient_noise.multiplicative(size, BASE if noisy else size, random) for _ in rows]
            drawn = gradients(np.stack(z), rows)
            found.append({"batch": size, "noise": noisy, "variance": float(drawn.var(0, ddof=1).sum())})
    return pd.DataFrame(found).assign(statistics=statistics)


def main() -> experiments.Recording:
    measured = sweep.run(lambda statistics: {"table": variances(statistics)}, [{"statistics": s} for s in STATISTICS])
    variance = pd.concat(list(measured["table"])).assign(part="variance")
    print(variance.to_string(index=False), flush=True)
    tries = [
        {"regime": regime, "batch": batch, "base": base, "rate": rate}
        for regime, (_, large, _) in REGIMES.items()
        for batch, bases in ((SMALL_BATCH, (SMALL_BATCH,)), (large, (large, *NOISE_BASES[regime])))
        for base in bases
        for rate in (RATES if batch == large else [round(SMALL_RATE_FACTOR * rate, 4) for rate in RATES])
    ]
    training = sweep.tune_then_score(run, tries, "rate", "validation accuracy", [TUNING_SEED], SEEDS)
    table = pd.concat([variance, training.assign(part="training")])
    table = table[["part", *(column for column in table if column != "part")]]
    table = table.astype({"batch": "Int64", "base": "Int64", "seed": "Int64"})
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(4),
        draw(table, f"{source} · {experiments.machine()}"),
        data=f"{source}, {', '.join(f'{name}: {n:,} images' for name, (n, _, _) in REGIMES.items())}",
        seeds=sweep.describe_seeds([TUNING_SEED], SEEDS),
    )


def draw(table: pd.DataFrame, caption: str) -> dict[str, plots.Figure]:
    """The two figures, by the names of their files."""
    return {
        "gradient_noise": figures_3c.noisy_training(table, caption),
        "gradient_noise_variance": figures_3c.variances(table.query("part == 'variance'"), BASE, caption),
    }
