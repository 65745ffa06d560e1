"""A small network that is trained dozens of times: with and without batch norm, of any width, from any start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from course_lib.models import BATCH_NORM_MOMENTUM, TO_UNIT_SCALE

CHANNELS = (16, 32, 64)
MOMENTUM = 0.9


def network(*, width: float = 1, normalise: bool = True, dropout: float = 0.0) -> keras.Model:
    """`models.quick_cnn` for Fashion-MNIST, with `width` times its channels, and what is asked for.

    Args:
        normalise: a batch norm after each convolution; without it the convolution has a bias.
        dropout: the share of the features that is dropped before the dense layer.
    """
    images = keras.Input((28, 28, 1))
    x = layers.Rescaling(**TO_UNIT_SCALE)(images)
    for number, channels in enumerate(CHANNELS):
        stride = 2 if number == 0 else 1
        x = layers.Conv2D(round(width * channels), 3, stride, padding="same", use_bias=not normalise)(x)
        x = layers.BatchNormalization(momentum=BATCH_NORM_MOMENTUM)(x) if normalise else x
        x = layers.ReLU()(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Dropout(dropout)(layers.Flatten()(x))
    return keras.Model(images, layers.Dense(10, activation="softmax")(x))


class Trainer:
    """One network, trained again and again with SGD and momentum, without being traced anew.

    Args:
        form: see `network`.
    """

    def __init__(self, **form: Any) -> None:
        self._form = form
        self.model = network(**form)
        self._velocities = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.model.trainable_variables]
        self._step, self._score = tf.function(self._take_step), tf.function(self._evaluate)

    def start(self, seed: int) -> None:
        """New weights, those of `seed`."""
        keras.utils.set_random_seed(seed)
        self.model.set_weights(network(**self._form).get_weights())
        for v in self._velocities:
            v.assign(tf.zeros_like(v))

    def train(
        self,
        x: np.ndarray,
        y: np.ndarray,
        *,
        seed: int,
        rate: float,
        updates: int,
        batch: int = 64,
        after: Callable[[int], Any] | None = None,
    ) -> None:
        """So many updates from the weights of `seed`, with a cosine decay of `rate` to 0. It ends early at nan.

        Args:
            after: called after each update with their number so far.
        """
        self.start(seed)
        rng, order = np.random.default_rng(seed), np.empty(0, int)
        for update in range(updates):
            if len(order) < batch:
                order = np.concatenate([order, rng.permutation(len(x))])
            rows, order = order[:batch], order[batch:]
            eta = rate * 0.5 * (1 + np.cos(np.pi * update / updates))
            loss = self._step(tf.constant(x[rows], tf.float32), tf.constant(y[rows]), tf.constant(eta, tf.float32))
            if after:
                after(update + 1)
            if update % 20 == 0 and not np.isfinite(loss):
                return

    def score(self, x: np.ndarray, y: np.ndarray, piece: int = 1000) -> tuple[float, float]:
        """Mean loss and accuracy in inference mode."""
        sums = np.zeros(2)
        for at in range(0, len(x), piece):
            part = slice(at, at + piece)
            sums += [float(one) for one in self._score(tf.constant(x[part], tf.float32), tf.constant(y[part]))]
        return tuple(float(one) for one in sums / len(x))

    def _take_step(self, x: tf.Tensor, y: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            p = self.model(x, training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, p))
        weights = self.model.trainable_variables
        for w, g, v in zip(weights, tape.gradient(loss, weights), self._velocities):
            v.assign(MOMENTUM * v - rate * g)
            w.assign_add(v)
        return loss

    def _evaluate(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        p = self.model(x, training=False)
        right = tf.equal(tf.argmax(p, 1), tf.cast(y, tf.int64))
        loss = keras.losses.sparse_categorical_crossentropy(y, p)
        return tf.reduce_sum(loss), tf.reduce_sum(tf.cast(right, tf.float32))
