"""A training that can be stopped and gone on with: small, but with every kind of state that large ones have.

training = Training(Alone(), examples_at, x, y, seed=1)
loss = training.advance()      # one step
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow import keras


class Rank(Protocol):
    """One of the ranks that train together."""

    rank: int
    size: int

    def average(self, array: np.ndarray) -> np.ndarray:
        """The average of all ranks' arrays."""


class Alone:
    """The only rank that there is."""

    rank, size = 0, 1

    def average(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array


class HorovodRank:
    """This process as one of Horovod's ranks."""

    def __init__(self) -> None:
        import horovod.tensorflow as hvd

        hvd.init()
        for gpu in tf.config.list_physical_devices("GPU")[hvd.local_rank() :][:1]:
            tf.config.set_visible_devices(gpu, "GPU")
        self.rank, self.size, self._hvd = hvd.rank(), hvd.size(), hvd

    def average(self, array: np.ndarray) -> np.ndarray:
        """The average of all ranks' arrays, on every rank."""
        return self._hvd.allreduce(array, op=self._hvd.Average, name="average").numpy()

    def broadcast(self, thing: Any) -> Any:
        """What rank 0 has, on every rank."""
        return self._hvd.broadcast_object(thing, root_rank=0)


class Training:
    """A network of one hidden layer, Adam, noise on the inputs, and a learning rate that falls when the loss does not.

    Args:
        me: the rank.
        examples_at: (step, rank, size, batch, examples) → the numbers [batch] of this rank's examples.
        x, y: inputs [n, d] and classes [n].
        seed: of the first weights and of the noise.
        batch: examples of one rank in one step.
    """

    RATE, PATIENCE, DECAY = 0.01, 4, 0.9  # learning rate at first; after so many steps without progress, times DECAY
    NOISE = 0.2  # standard deviation of what is added to the inputs

    def __init__(
        self,
        me: Rank,
        examples_at: Callable,
        x: np.ndarray,
        y: np.ndarray,
        *,
        seed: int,
        batch: int = 16,
        hidden: int = 32,
    ) -> None:
        self.me, self.examples_at, self.x, self.y, self.batch = me, examples_at, x, y, batch
        layers = [
            keras.layers.Dense(hidden, "relu", kernel_initializer=keras.initializers.GlorotUniform(seed)),
            keras.layers.Dense(int(y.max()) + 1, kernel_initializer=keras.initializers.GlorotUniform(seed + 1)),
        ]
        self.model = keras.Sequential([keras.Input(x.shape[1:]), *layers])
        self.optimizer = keras.optimizers.Adam(self.RATE, jit_compile=False)
        self.optimizer.build(self.model.trainable_variables)
        self.best, self.waited = float("inf"), 0
        self.step = 0
        self.random = np.random.default_rng(seed)

    def advance(self) -> float:
        """Take one step; return the loss, averaged over the ranks."""
        rows = self.examples_at(self.step, self.me.rank, self.me.size, self.batch, len(self.x))
        # Every rank draws the noise of all and takes its part: so the generators stay equal.
        noise = self.random.normal(0, self.NOISE, (self.me.size, self.batch, *self.x.shape[1:]))[self.me.rank]
        with tf.GradientTape() as tape:
            logits = self.model(np.float32(self.x[rows] + noise))
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(self.y[rows], logits, from_logits=True))
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        # One message for all: its sum is then taken in the same order in every run.
        flat = self.me.average(np.concatenate([np.ravel(loss), *(np.ravel(gradient) for gradient in gradients)]))
        parts = np.split(flat[1:], np.cumsum([variable.shape.num_elements() for variable in variables])[:-1])
        self.optimizer.apply_gradients((part.reshape(v.shape), v) for part, v in zip(parts, variables))
        self._adapt(float(flat[0]))
        self.step += 1
        return float(flat[0])

    def loss(self) -> float:
        """The mean loss over all examples, without noise; changes nothing."""
        logits = self.model(self.x)
        return float(tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(self.y, logits, from_logits=True)))

    def _adapt(self, loss: float) -> None:
        """Decay the learning rate after PATIENCE steps without a better loss."""
        self.waited = 0 if loss < self.best else self.waited + 1
        self.best = min(self.best, loss)
        if self.waited == self.PATIENCE:
            self.optimizer.learning_rate.assign(self.optimizer.learning_rate * self.DECAY)
            self.waited = 0
