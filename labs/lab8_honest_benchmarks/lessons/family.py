"""Three networks of one family, scaled like EfficientNet, and their training with a large batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from course_lib import data, models
from course_lib.cost.networks import EFFICIENTNET, Family, Stage, Tensor
from course_lib.optimizers import LARS, schedules

SMALLEST = Family(16, (Stage(1, 3, 1, 16, 1), Stage(4, 3, 2, 24, 2), Stage(4, 3, 2, 40, 2)), head=160, classes=10)
DEPTH, WIDTH, SIDE = 1.2, 1.1, 1.15  # by which each step of the family grows (arXiv:1905.11946)
BASE_SIDE = 16  # pixels
TRUST = 0.02  # LARS's coefficient, as in 3e

LOOKS, TEST = 1_000, 2_500  # images to validate and to test


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


def timed() -> dict[str, tuple[Size, int]]:
    """The sizes whose training step is timed, each with images that take about as long: B0 with 8."""
    return {**{name: (size, 256) for name, size in SIZES.items()}, "B0": (Size(EFFICIENTNET, 224), 8)}


def step(size: Size, images: int) -> tuple[int, Callable[[], object]]:
    """How many images, and a training step with them that is compiled and warm."""
    model, random = network(size), np.random.default_rng(0)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)
    some = tf.constant(random.integers(0, 256, (images, size.side, size.side, 3)), tf.float32)
    labels = tf.constant(random.integers(0, size.family.classes, images), tf.int32)

    @tf.function
    def once() -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(some, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    for _ in range(2):
        once().numpy()
    return images, lambda: once().numpy()


class Training:
    """A size in training with a large batch, in one process: compiled once, for one run after the other.

    LARS with momentum 0.9 and trust coefficient 0.02, linear warm-up in the first quarter, then polynomial decay (the
    square) to 0; random flips.

    Args:
        images: of CIFAR-10's training set, the first ones.
        decay: of the average of the weights.
    """

    def __init__(self, size: Size, *, images: int, batch: int, epochs: int, decay: float) -> None:
        whole = data.load("cifar10")
        self._x, self._y = resized(whole.x_train[:images], size.side), whole.y_train[:images].astype(np.int32)
        self._looked = resized(whole.x_train[-LOOKS:], size.side), whole.y_train[-LOOKS:]
        self._judged = resized(whole.x_test[:TEST], size.side), whole.y_test[:TEST]
        self._batch, self._epochs, self._steps = batch, epochs, len(self._x) // batch
        self._size, self._model = size, network(size)
        model = self._model
        variables = model.trainable_variables
        self._optimizer = optimizer = LARS(0.0, trust_coefficient=TRUST, exclude=["bias", "gamma", "beta"])
        optimizer.build(variables)
        self._averaged = averaged = Averaged(model, decay)

        @tf.function
        def update(some: tf.Tensor, labels: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                logits = model(tf.cast(some, tf.float32), training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            averaged.follow(optimizer.iterations)

        self._update = update
        self._answer = tf.function(
            lambda some: tf.argmax(model(tf.cast(some, tf.float32), training=False), 1), reduce_retracing=True
        )

    def run(self, rate: float, seed: int, *, test: bool, anew: bool) -> Iterator[dict[str, float]]:
        """Train from new weights; after each epoch the validation accuracy in %, without and with averaged weights.

        Args:
            rate: the highest. seed: draws weights, order and flips. test: whether test images judge the last epoch.
            anew: whether both are also judged with statistics of batch norm that are estimated anew for them.

        Yields: epoch, plain, averaged; where asked for, the same with _anew, and at the end with _test.
        """
        keras.utils.set_random_seed(seed)
        self._model.set_weights(network(self._size).get_weights())
        for variable in self._optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        updates = self._steps * self._epochs
        falling = keras.optimizers.schedules.PolynomialDecay(float(rate), updates - updates // 4, 0.0, power=2.0)
        rates = schedules.WarmUp(falling, updates // 4)
        random = np.random.default_rng(seed)
        for epoch in range(1, self._epochs + 1):
            order = random.permutation(len(self._x))
            flipped = random.random(len(order)) < 0.5
            for step in range(self._steps):
                self._optimizer.learning_rate.assign(rates((epoch - 1) * self._steps + step))
                mine = slice(step * self._batch, (step + 1) * self._batch)
                some = self._x[order[mine]]
                some[flipped[mine]] = some[flipped[mine], :, ::-1]
                self._update(tf.constant(some), tf.constant(self._y[order[mine]]))
            row: dict[str, float] = {"epoch": epoch}
            parts = {"": self._looked, "_test": self._judged} if test and epoch == self._epochs else {"": self._looked}
            for name in ("plain", "averaged"):
                for part, some in parts.items():
                    row[name + part] = round(self._accuracy(*some), 2)
                if anew:
                    row[name + "_anew"] = round(self._anew(), 2)
                self._averaged.swap()
            yield row

    def _anew(self) -> float:
        """Validation accuracy with statistics of batch norm that are means over eight batches of training images."""
        kept = self._model.get_weights()
        norms = [layer for layer in self._model.layers if isinstance(layer, keras.layers.BatchNormalization)]
        for number in range(8):
            for norm in norms:
                norm.momentum = number / (number + 1)
            some = self._x[number * self._batch : (number + 1) * self._batch]
            self._model(tf.cast(some, tf.float32), training=True)
        for norm in norms:
            norm.momentum = models.BATCH_NORM_MOMENTUM
        accuracy = self._accuracy(*self._looked)
        self._model.set_weights(kept)
        return accuracy

    def _accuracy(self, images: np.ndarray, labels: np.ndarray) -> float:
        """The share of these images that is named rightly, in %."""
        named = [self._answer(images[first : first + 500]).numpy() for first in range(0, len(images), 500)]
        return 100 * float(np.mean(np.concatenate(named) == labels))
