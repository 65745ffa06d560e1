"""λ_max in the first updates of a large batch, beside the edge 2(1 + m)/η of each warm-up.

The quick network on the first 12,288 images of Fashion-MNIST, B = 1,024, SGD with momentum 0.9, eight epochs of 12
updates, cosine decay. Two peak rates: what √ and what the linear rule make of rate_scaling's base (0.03125 at B = 16).
Three warm-ups for each: none, LEGW's (12 updates), a quarter of the run (24). And for comparison a rate that is small
enough for any curvature met here, with B = 64 and 4,096 too, and the same rates and updates. λ_max is the largest
eigenvalue of the Hessian of the loss as it is trained, with batch norm over the batch: 512 training images, by Lanczos'
method to 2 %. (Power iteration is slow here: at the start the largest eigenvalue and the most negative one are of like
magnitude.) Three seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from course_lib import data
from course_lib.notebook import experiments, sweep
from labs.lab3_large_batch.lessons import figures_3b

if TYPE_CHECKING:
    from tensorflow import keras

IMAGES, BATCH, EPOCHS, MOMENTUM = 12_288, 1024, 8, 0.9
K = 64  # BATCH over rate_scaling's base of 16
PEAKS = {"√": 0.25, "linear": 2.0}  # rates
WARM_UPS = (0, 12, 24)  # updates
SMALL_RATE = 0.01  # of the runs that no edge disturbs
OTHER_BATCHES = (64, 4096)  # of these runs
MEASURED = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 36, 48, 60)  # after so many updates
HESSIAN_IMAGES, TOLERANCE, LANCZOS_VECTORS = 512, 0.02, 12
SEEDS = (1, 2, 3)


def rates(peak: float, warm_up: int) -> list[float]:
    """The rate of each update: from peak / K up to it, then a cosine."""
    from course_lib.optimizers import schedules

    updates = EPOCHS * (IMAGES // BATCH)
    schedule = schedules.cosine(peak, updates, warm_up, start=peak / K)
    return [float(schedule(t)) for t in range(updates)]


def product_of(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """v [d] → H v [d], H the Hessian of the loss in training: batch norm's statistics are those of the images."""
    import tensorflow as tf
    from tensorflow import keras

    variables = model.trainable_variables
    shapes, sizes = [v.shape for v in variables], [v.shape.num_elements() for v in variables]
    x, y = tf.constant(images, tf.float32), tf.constant(labels, tf.int32)
    averages = model.non_trainable_variables

    @tf.function
    def times(v: tf.Tensor) -> tf.Tensor:
        parts = [tf.reshape(part, shape) for part, shape in zip(tf.split(v, sizes), shapes)]
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True)))
            slopes = inner.gradient(loss, variables)
            along = tf.add_n([tf.reduce_sum(slope * part) for slope, part in zip(slopes, parts)])
        turned = outer.gradient(along, variables, unconnected_gradients="zero")
        return tf.concat([tf.reshape(part, [-1]) for part in turned], 0)

    def product(v: np.ndarray) -> np.ndarray:
        before = [average.numpy() for average in averages]
        turned = times(tf.constant(v, tf.float32)).numpy().astype(float)
        for average, value in zip(averages, before):
            average.assign(value)
        return turned

    return product, sum(sizes)


def run(rule: str, peak: float, warm_up: int, batch: int, seed: int) -> dict:
    """One run; each value is a list with a number for each of MEASURED."""
    from scipy.sparse.linalg import LinearOperator, eigsh
    from tensorflow import keras

    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion(IMAGES)
    optimizer = keras.optimizers.SGD(0.0, momentum=MOMENTUM)
    training = short_runs.Run(problem.model(seed), optimizer, problem.train, seed=seed)
    images, labels = (values[:HESSIAN_IMAGES] for values in problem.train)
    product, size = product_of(training.model, images, labels)
    hessian = LinearOperator((size, size), matvec=product, dtype=float)
    random = np.random.default_rng(seed)
    plan = rates(peak, warm_up)
    found: dict[str, list] = {"after": [], "eta": [], "loss": [], "sharpness": []}
    loss = None
    for after in MEASURED:
        while training.updates < after:
            optimizer.learning_rate = plan[training.updates]
            loss = training.train(1, batch)
        first = random.standard_normal(size)
        (value,) = eigsh(
            hessian, k=1, which="LA", v0=first, tol=TOLERANCE, ncv=LANCZOS_VECTORS, return_eigenvectors=False
        )
        for column, number in zip(found.values(), (after, plan[after], loss, value)):
            column.append(number if number is None else float(f"{number:.4g}"))
    return found


def main() -> experiments.Recording:
    table = sweep.run(run, settings(), report=lambda _, done, total: print(f"[{done}/{total}]", flush=True))
    table = table.explode(["after", "eta", "loss", "sharpness"]).infer_objects()
    source = f"{data.load('fashion_mnist').name}, first {IMAGES:,} training images, Hessian of {HESSIAN_IMAGES:,}"
    figure = figures_3b.curvature(table, momentum=MOMENTUM, caption=f"{source} · {experiments.machine()}")
    return experiments.Recording(table, figure, data=source, seeds=", ".join(map(str, SEEDS)))


def settings() -> list[dict]:
    """All runs."""
    kinds = [{"rule": rule, "peak": peak, "warm_up": steps} for rule, peak in PEAKS.items() for steps in WARM_UPS]
    kinds.append({"rule": "small", "peak": SMALL_RATE, "warm_up": 0})
    runs = [{**kind, "batch": BATCH, "seed": seed} for kind in kinds for seed in SEEDS]
    return runs + [{**kinds[-1], "batch": batch, "seed": seed} for batch in OTHER_BATCHES for seed in SEEDS]
