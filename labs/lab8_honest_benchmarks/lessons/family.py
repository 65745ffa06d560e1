"""Three networks of one family, scaled like EfficientNet, and their training on all ranks with a large batch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
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

LOOKS = 2_000  # validation images
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


class Training:
    """A size in training on all ranks with a large batch: compiled once, for one run after the other.

    LARS with momentum 0.9 and trust coefficient 0.02, linear warm-up in the first quarter, then polynomial decay (the
    square) to 0; random flips.

    Args:
        images: of CIFAR-10's training set, the first ones. batch: of all ranks together.
        decay: of the average of the weights.
        synchronised: batch norm over the examples of all ranks; else each rank normalises its own.
    """

    def __init__(
        self, hvd: object, size: Size, *, images: int, batch: int, epochs: int, decay: float, synchronised: bool = True
    ) -> None:
        whole, number = data.load("cifar10"), itertools.count()
        self._x, self._y = resized(whole.x_train[:images], size.side), whole.y_train[:images].astype(np.int32)
        self._looked = resized(whole.x_train[-LOOKS:], size.side), whole.y_train[-LOOKS:]
        self._judged = resized(whole.x_test[:TEST], size.side), whole.y_test[:TEST]
        self._hvd, self._batch, self._epochs, self._steps = hvd, batch, epochs, len(self._x) // batch

        def joint() -> keras.layers.Layer:  # with a name, as Horovod names all alike, and a model wants different ones
            return hvd.SyncBatchNormalization(
                momentum=models.BATCH_NORM_MOMENTUM, name=f"synchronised_{next(number)}"
            )  # fmt: skip

        self._network = lambda: network(size, joint if synchronised else None)
        self._model = model = self._network()
        variables = model.trainable_variables
        self._optimizer = optimizer = LARS(0.0, trust_coefficient=TRUST, exclude=["bias", "gamma", "beta"])
        optimizer.build(variables)
        self._averaged = averaged = Averaged(model, decay)

        @tf.function
        def update(some: tf.Tensor, labels: tf.Tensor) -> None:
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                logits = model(tf.cast(some, tf.float32), training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            averaged.follow(optimizer.iterations)

        self._update = update
        self._answer = tf.function(
            lambda some: tf.argmax(model(tf.cast(some, tf.float32), training=False), 1), reduce_retracing=True
        )

    def run(self, rate: float, seed: int) -> Iterator[dict[str, float]]:
        """Train from new weights; after each epoch the validation accuracy in %, without and with averaged weights.

        Args:
            rate: the highest. seed: draws weights, order and flips.

        Yields: epoch, training_s (seconds), plain, averaged; at the last epoch also plain_test and averaged_test.
        """
        keras.utils.set_random_seed(seed)
        self._model.set_weights(self._network().get_weights())
        for variable in self._optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        updates = self._steps * self._epochs
        falling = keras.optimizers.schedules.PolynomialDecay(float(rate), updates - updates // 4, 0.0, power=2.0)
        rates = schedules.WarmUp(falling, updates // 4)
        random = np.random.default_rng(seed)
        for epoch in range(1, self._epochs + 1):
            order, began = random.permutation(len(self._x)), time.perf_counter()
            flipped = random.random(len(order)) < 0.5
            for step in range(self._steps):
                self._optimizer.learning_rate.assign(rates((epoch - 1) * self._steps + step))
                mine = slice(step * self._batch + self._hvd.rank(), (step + 1) * self._batch, self._hvd.size())
                some = self._x[order[mine]]
                some[flipped[mine]] = some[flipped[mine], :, ::-1]
                self._update(tf.constant(some), tf.constant(self._y[order[mine]]))
            row = {"epoch": epoch, "training_s": round(time.perf_counter() - began, 3)}
            parts = {"": self._looked, "_test": self._judged} if epoch == self._epochs else {"": self._looked}
            for name in ("plain", "averaged"):
                for part, some in parts.items():
                    row[name + part] = round(accuracy(self._hvd, self._answer, *some), 2)
                self._averaged.swap()
            yield row
