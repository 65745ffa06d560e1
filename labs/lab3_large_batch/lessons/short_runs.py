"""Training counted in updates: short runs of a small network, by the dozen, for the questions of lab 3.

`fit` counts epochs. A question about batch sizes needs runs that are measured, changed or ended at any update, and a
compiled loop over many updates that leaves a small network's time to its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from course_lib import models
from course_lib.data import splits
from course_lib.data.splits import Part

# Each run compiles functions of its own, as it should; TensorFlow would warn of that in a notebook.
tf.get_logger().setLevel("ERROR")

IMAGES = 12_800
EVALUATION_BATCH = 1_000  # images


class Problem(splits.Problem):
    """A data set in three parts, and the network for it."""

    def model(self, seed: int, normalise: Callable[[], keras.layers.Layer] | None = None) -> keras.Model:
        """The course's quick network, its weights drawn with `seed`."""
        keras.utils.set_random_seed(seed)
        return models.quick_cnn(self.train.images.shape[1:], self.classes, normalise=normalise)


def fashion(images: int = IMAGES) -> Problem:
    """The first `images` of Fashion-MNIST, as in `Problem.fashion`."""
    return Problem.fashion(images)


class Score(NamedTuple):
    """Mean cross-entropy and accuracy."""

    loss: float
    accuracy: float


class Run:
    """A model in training on `part`, one update after the other.

    The order of examples is drawn anew for each epoch; what does not fill a batch at its end is left out.

    Args:
        model: gives probabilities [n, classes].
        optimizer: any of Keras's or of the course's.
        seed: draws the order of the examples, and the weights of `weigh`.
        weigh: makes the weights [batch] of a batch's examples, from the batch size and a random generator.
        decay, exclude: add ½ decay Σ w² to the loss, over all trainable variables but those with one of the words of
            `exclude` in their name.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        part: Part,
        *,
        seed: int,
        weigh: Callable[[int, np.random.Generator], np.ndarray] | None = None,
        decay: float = 0.0,
        exclude: Sequence[str] = (),
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.updates = 0
        self._size, self._weigh = len(part.labels), weigh
        self._random = np.random.default_rng(seed)
        self._order = np.empty(0, np.int32)
        variables = model.trainable_variables
        optimizer.build(variables)
        images, labels = tf.constant(part.images), tf.constant(part.labels, tf.int32)
        decayed = [v for v in variables if decay and not any(word in v.name for word in exclude)]

        def gradients(at: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                predicted = model(tf.cast(tf.gather(images, at), tf.float32), training=True)
                each = keras.losses.sparse_categorical_crossentropy(tf.gather(labels, at), predicted)
                loss = tf.reduce_mean(weights * each) + decay * sum(tf.nn.l2_loss(v) for v in decayed)
            return loss, tape.gradient(loss, variables)

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None])])
        def train(at: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
            total = 0.0
            for number in tf.range(tf.shape(at)[0]):
                loss, slopes = gradients(at[number], weights[number])
                optimizer.apply_gradients(zip(slopes, variables))
                total += loss
            return total / tf.cast(tf.shape(at)[0], tf.float32)

        self._train = train
        self._gradients = tf.function(
            lambda at: gradients(at, 1.0)[1], input_signature=[tf.TensorSpec([None], tf.int32)]
        )

    def train(self, updates: int, batch: int) -> float:
        """Make `updates` more updates with batches of `batch`; return their mean loss, nan if weights overflowed.

        Raises:
            ValueError: for a batch larger than the training data.
        """
        if not 1 <= batch <= self._size:
            raise ValueError(f"A batch has 1 to {self._size} examples here, not {batch}.")
        at = np.stack([self._draw(batch) for _ in range(updates)])
        weights = np.ones(at.shape) if self._weigh is None else [self._weigh(batch, self._random) for _ in at]
        self.updates += updates
        return float(self._train(tf.constant(at), tf.constant(weights, tf.float32)))

    def gradient(self, batch: int) -> list[np.ndarray]:
        """The gradient of the next `batch` examples, one array for each trainable variable; no update."""
        return [slope.numpy() for slope in self._gradients(tf.constant(self._draw(batch)))]

    def score(self, part: Part) -> Score:
        """Loss and accuracy of the model as it predicts: batch norm uses its moving averages."""
        return score(self.model, part)

    def _draw(self, batch: int) -> np.ndarray:
        if len(self._order) < batch:
            self._order = self._random.permutation(self._size).astype(np.int32)
        at, self._order = self._order[:batch], self._order[batch:]
        return at


def score(model: keras.Model, part: Part) -> Score:
    """Mean cross-entropy and accuracy of `model` on `part`."""
    starts = range(0, len(part.labels), EVALUATION_BATCH)
    probabilities = np.concatenate([model.predict_on_batch(part.images[i : i + EVALUATION_BATCH]) for i in starts])
    right = probabilities[np.arange(len(part.labels)), part.labels]
    return Score(float(-np.log(np.maximum(right, 1e-7)).mean()), float((probabilities.argmax(1) == part.labels).mean()))
