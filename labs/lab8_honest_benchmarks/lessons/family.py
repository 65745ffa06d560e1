"""Three networks of one family, scaled like EfficientNet, and their training on all ranks with a large batch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from course_lib import data, models
from course_lib.cost.networks import Family, Stage, Tensor
from course_lib.optimizers import LARS, schedules

SMALLEST = Family(16, (Stage(1, 3, 1, 16, 1), Stage(4, 3, 2, 24, 2), Stage(4, 3, 2, 40, 2)), head=160, classes=10)
DEPTH, WIDTH, SIDE = 1.2, 1.1, 1.15  # by which each step of the family grows (arXiv:1905.11946)
BASE_SIDE = 16  # pixels
TRUST = 0.02  # LARS's coefficient, as in 3e

LOOKS = 2_500  # validation images
TEST = 5_000


class Size(NamedTuple):
    """A member of the family, and the side of its images in pixels."""

    family: Family
    side: int

    @property
    def tensors(self) -> list[Tensor]:
        """Its trainable arrays."""
        return self.family.tensors(self.side)


def _size(steps: int) -> Size:
    return Size(SMALLEST.scaled(WIDTH**steps, DEPTH**steps), 2 * round(BASE_SIDE * SIDE**steps / 2))


SIZES: dict[str, Size] = {name: _size(steps) for steps, name in enumerate("SML")}


def network(size: Size, normalise: Callable[[], keras.layers.Layer] | None = None) -> keras.Model:
    """The member as a Keras model: images [n, side, side, 3] → logits [n, classes].

    Args:
        normalise: makes the layer after each convolution; batch norm unless given.
    """
    norm = normalise or (lambda: keras.layers.BatchNormalization(momentum=models.BATCH_NORM_MOMENTUM))

    def convolved(x: tf.Tensor, channels: int, kernel: int, stride: int = 1) -> tf.Tensor:
        return norm()(keras.layers.Conv2D(channels, kernel, stride, "same", use_bias=False)(x))

    def block(x: tf.Tensor, stage: Stage, stride: int) -> tf.Tensor:
        narrow = x.shape[-1]
        inside = tf.nn.silu(convolved(x, narrow * stage.expand, 1)) if stage.expand > 1 else x
        depthwise = keras.layers.DepthwiseConv2D(stage.kernel, stride, "same", use_bias=False)
        inside = tf.nn.silu(norm()(depthwise(inside)))
        gate = keras.layers.GlobalAveragePooling2D(keepdims=True)(inside)
        gate = keras.layers.Conv2D(max(1, narrow // 4), 1, activation=tf.nn.silu)(gate)
        inside = inside * keras.layers.Conv2D(inside.shape[-1], 1, activation="sigmoid")(gate)
        inside = convolved(inside, stage.channels, 1)
        return inside + x if stride == 1 and narrow == stage.channels else inside

    images = keras.Input((size.side, size.side, 3))
    x = keras.layers.Rescaling(**models.TO_UNIT_SCALE)(images)
    x = tf.nn.silu(convolved(x, size.family.stem, 3, 2))
    for stage in size.family.stages:
        for layer in range(stage.layers):
            x = block(x, stage, stage.stride if layer == 0 else 1)
    x = tf.nn.silu(convolved(x, size.family.head, 1))
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(images, keras.layers.Dense(size.family.classes)(x))


def resized(images: np.ndarray, side: int) -> np.ndarray:
    """Images [n, h, w, c] with `side` pixels a side, uint8."""
    small = tf.image.resize(images, (side, side), antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(small), 0, 255), tf.uint8).numpy()


class Averaged:
    """An exponential moving average of all of a model's variables, those of batch norm included.

    After update t = 1, 2, …: a ← a + (1 − d) / (1 − dᵗ) · (w − a). That is a ← d a + (1 − d) w with Adam's correction
    for its start: nothing of the weights that training began with is left in it.
    """

    def __init__(self, model: keras.Model, decay: float) -> None:
        self._variables, self._decay = model.variables, decay
        self._average = [tf.Variable(variable) for variable in self._variables]

    def follow(self, updates: tf.Tensor) -> None:
        """After update number `updates`."""
        share = (1 - self._decay) / (1 - self._decay ** tf.cast(updates, tf.float32))
        for average, variable in zip(self._average, self._variables):
            average.assign_add(share * (variable - average))

    def swap(self) -> None:
        """Exchange the model's variables with their averages."""
        for average, variable in zip(self._average, self._variables):
            kept = variable.numpy()
            variable.assign(average)
            average.assign(kept)


def accuracy(hvd: object, answer: Callable, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of these images that is named rightly, in %; each rank judges its part."""
    mine = slice(hvd.rank(), None, hvd.size())
    x, y = images[mine], labels[mine]
    named = np.concatenate([answer(x[i : i + 500]).numpy() for i in range(0, len(x), 500)])
    right, count = hvd.allreduce(tf.constant([np.sum(named == y), len(y)], tf.float64), op=hvd.Sum).numpy()
    return 100 * float(right / count)


def train(
    hvd: object,
    size: Size,
    *,
    images: int,
    batch: int,
    epochs: int,
    rate: float,
    seed: int,
    decay: float,
    synchronised: bool = True,
) -> Iterator[Mapping[str, float]]:
    """Train on all ranks; after each epoch the validation accuracy in %, without and with averaged weights.

    LARS with momentum 0.9 and trust coefficient 0.02, linear warm-up in the first quarter, then polynomial decay (the
    square) to 0; random flips.

    Args:
        images: of CIFAR-10's training set, the first ones. batch: of all ranks together. rate: the highest.
        decay: of the average of the weights.
        synchronised: batch norm over the examples of all ranks; else each rank normalises its own.

    Yields: epoch, training_s (seconds), plain, averaged; at the last epoch also plain_test and averaged_test.
    """  # fmt: skip
    keras.utils.set_random_seed(seed)
    whole, number = data.load("cifar10"), itertools.count()
    x, y = resized(whole.x_train[:images], size.side), whole.y_train[:images]
    looked = resized(whole.x_train[-LOOKS:], size.side), whole.y_train[-LOOKS:]
    judged = resized(whole.x_test[:TEST], size.side), whole.y_test[:TEST]

    def joint() -> keras.layers.Layer:  # with a name, as Horovod names all alike, and a model wants different ones
        return hvd.SyncBatchNormalization(momentum=models.BATCH_NORM_MOMENTUM, name=f"synchronised_{next(number)}")

    model = network(size, joint if synchronised else None)
    steps = len(x) // batch
    updates = steps * epochs
    falling = keras.optimizers.schedules.PolynomialDecay(rate, updates - updates // 4, 0.0, power=2.0)
    warming = schedules.WarmUp(falling, updates // 4)
    optimizer = LARS(warming, trust_coefficient=TRUST, exclude=["bias", "gamma", "beta"])
    variables = model.trainable_variables
    optimizer.build(variables)
    averaged = Averaged(model, decay)

    @tf.function
    def update(some: tf.Tensor, labels: tf.Tensor) -> None:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            logits = model(tf.image.random_flip_left_right(tf.cast(some, tf.float32)), training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        averaged.follow(optimizer.iterations)

    answer = tf.function(lambda some: tf.argmax(model(tf.cast(some, tf.float32), training=False), 1),
                         reduce_retracing=True)  # fmt: skip
    random = np.random.default_rng(seed)
    for epoch in range(1, epochs + 1):
        order, began = random.permutation(len(x)), time.perf_counter()
        for step in range(steps):
            mine = order[step * batch + hvd.rank() : (step + 1) * batch : hvd.size()]
            update(tf.constant(x[mine]), tf.constant(y[mine], tf.int32))
        row = {"epoch": epoch, "training_s": round(time.perf_counter() - began, 3)}
        parts = {"": looked, "_test": judged} if epoch == epochs else {"": looked}
        for name in ("plain", "averaged"):
            row.update({name + part: round(accuracy(hvd, answer, *some), 2) for part, some in parts.items()})
            averaged.swap()
        yield row
