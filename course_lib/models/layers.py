"""Batch norm over groups of examples."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras


@keras.saving.register_keras_serializable("course_lib")
class GhostBatchNormalization(keras.layers.Layer):
    """Batch norm with the statistics of groups of `ghost` examples (Hoffer et al. 2017, arXiv:1705.08741).

    x̂ = (x − μ_g) / √(σ²_g + ε), y = γ x̂ + β, with the mean and variance of ghost batch g: the first `ghost` examples,
    the next `ghost` ones, …; the last ghost batch also has the remainder. Inference uses moving averages of the mean
    of the ghost batches' statistics: moving ← momentum · moving + (1 − momentum) · mean.

    The input is [batch, …, channels]. With ghost ≥ batch this is ordinary batch norm.

    Args:
        ghost: examples of a ghost batch, at least 2.
        momentum: of the moving averages.
        epsilon: ε.

    Raises:
        ValueError: for a ghost batch of fewer than 2 examples.
    """

    def __init__(self, ghost: int, momentum: float = 0.99, epsilon: float = 1e-3, **options: Any) -> None:
        super().__init__(**options)
        if ghost < 2:
            raise ValueError(f"A ghost batch needs at least 2 examples to have a variance, not {ghost}.")
        self.ghost, self.momentum, self.epsilon = ghost, momentum, epsilon

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create γ, β and the moving averages, one number for each channel."""
        shape = input_shape[-1:]
        self.gamma = self.add_weight("gamma", shape, initializer="ones")
        self.beta = self.add_weight("beta", shape, initializer="zeros")
        self.moving_mean = self.add_weight("moving_mean", shape, initializer="zeros", trainable=False)
        self.moving_variance = self.add_weight("moving_variance", shape, initializer="ones", trainable=False)
        super().build(input_shape)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Normalise x [batch, …, channels]; in training, also update the moving averages."""
        if not (training and self.trainable):
            return self._normalise(x, self.moving_mean, self.moving_variance)
        whole = tf.shape(x)[0]
        ghost_index = tf.minimum(tf.range(whole) // self.ghost, tf.maximum(whole // self.ghost, 1) - 1)
        mean = self._ghost_means(x, ghost_index)
        deviation = x - self._per_example(mean, ghost_index, x)
        variance = self._ghost_means(tf.square(deviation), ghost_index)
        for moving, now in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(self.momentum * moving + (1 - self.momentum) * tf.reduce_mean(now, 0))
        scale = self.gamma * tf.math.rsqrt(variance + self.epsilon)
        return deviation * self._per_example(scale, ghost_index, x) + self.beta

    def _normalise(self, x: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        return (x - mean) * (self.gamma * tf.math.rsqrt(variance + self.epsilon)) + self.beta

    def _ghost_means(self, x: tf.Tensor, ghost_index: tf.Tensor) -> tf.Tensor:
        """The mean of each ghost batch: [batch, …, channels] → [ghosts, channels]."""
        each = tf.reduce_mean(x, list(range(1, len(x.shape) - 1)))
        return tf.math.segment_mean(each, ghost_index)

    def _per_example(self, values: tf.Tensor, ghost_index: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        """For each example, the row of its ghost batch: [ghosts, channels] → [batch, 1, …, channels]."""
        rows = tf.gather(values, ghost_index)
        return tf.reshape(rows, [-1, *[1] * (len(like.shape) - 2), like.shape[-1]])

    def get_config(self) -> dict[str, Any]:
        """All arguments."""
        own = {"ghost": self.ghost, "momentum": self.momentum, "epsilon": self.epsilon}
        return {**super().get_config(), **own}
