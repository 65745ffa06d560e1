"""A compiled training step and random images, for measuring the speed of one process and of ranks."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def random_batch(batch: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Random images, uint8 [batch, 32, 32, 3], and labels, int32 [batch]."""
    x = tf.cast(tf.random.uniform((batch, 32, 32, 3), 0, 256, tf.int32), tf.uint8)
    return x, tf.random.uniform((batch,), 0, 10, tf.int32)


def training_step(
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    distribute: Callable[[tf.GradientTape], tf.GradientTape] = lambda tape: tape,
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """A compiled training step: (images, labels) → loss. `distribute` wraps the tape, to average gradients."""
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = distribute(tape).gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    return step
