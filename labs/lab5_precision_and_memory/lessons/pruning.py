"""Pruning: masks over groups of weights, and small networks whose large kernels keep to them while they train."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
import tensorflow as tf
from tensorflow import keras

from course_lib import models
from course_lib.data.splits import Part, Problem
from course_lib.models import landscape

# Each network compiles a function of its own, as it should; TensorFlow would warn of that in a notebook.
tf.get_logger().setLevel("ERROR")

IMAGES = 6_400
BATCH, EPOCHS = 64, 6  # epochs: of one training
UPDATES_AT_ONCE = 10  # between two looks at the schedule
GRADUAL_END = 0.6  # of a training: then the share is reached
FIRST_RATE = 0.1  # of the dense training before pruning
ROWS = 14  # that a recurrent network reads of an image, of 14 pixels each

# Over which axes of a kernel [height, width, inputs, outputs] weights stay or go together.
GRAINS = {"weights": (), "rows": (1,), "filters": (0, 1, 2)}

Schedule = Callable[[int, int], float]  # (update, updates) → the share of groups that is pruned by then
Choose = Callable[[np.ndarray, float, str], np.ndarray]  # (kernel, density, grain) → which weights stay


@lru_cache(maxsize=1)
def fashion() -> Problem:
    """The first IMAGES of Fashion-MNIST, and what to choose and to judge by."""
    return Problem.fashion(IMAGES)


def mask(
    kernel: np.ndarray, density: float, grain: str = "weights", random: np.random.Generator | None = None
) -> np.ndarray:
    """Which weights stay: bool, in the shape of the kernel. The groups with the largest mean |w| stay, at least one.

    Args:
        kernel: [height, width, inputs, outputs]; for single weights any shape.
        density: the share of groups that stay.
        grain: "weights" (each alone), "rows" (neighbours along the width) or "filters".
        random: then it decides, in place of the weights.
    """
    strength = np.abs(kernel).mean(GRAINS[grain], keepdims=True)
    if random is not None:
        strength = random.random(strength.shape)
    stay = np.zeros(strength.size, bool)
    stay[np.argsort(strength, axis=None, kind="stable")[-max(1, round(density * strength.size)) :]] = True
    return np.broadcast_to(stay.reshape(strength.shape), kernel.shape)


def cubic(final: float) -> Schedule:
    """From 0 to the share `final`, fast at first and slowly at its end (arXiv:1710.01878)."""
    return lambda update, updates: final * (1 - (1 - min(1.0, update / (GRADUAL_END * updates))) ** 3)


class Network:
    """A model, and those of its kernels that can be pruned, each with a mask that holds after every update.

    Args:
        model: gives probabilities [n, 10].
        kernels: variables of the model.
        optimizer: its learning rate falls with a cosine in each training.
    """

    def __init__(self, model: keras.Model, kernels: list[tf.Variable], optimizer: keras.optimizers.Optimizer) -> None:
        self.model, self.kernels = model, kernels
        self.stay = [tf.Variable(tf.ones(kernel.shape), trainable=False) for kernel in kernels]
        self.regrow = False  # a mistake of the diagnosis: the masks are not applied after an update
        variables, optimizer_ = model.trainable_variables, optimizer
        optimizer.build(variables)
        self._optimizer = optimizer
        stay = self.stay

        @tf.function
        def train(images: tf.Tensor, labels: tf.Tensor, at: tf.Tensor, rates: tf.Tensor, masked: tf.Tensor) -> None:
            for number in tf.range(tf.shape(at)[0]):
                with tf.GradientTape() as tape:
                    chosen = tf.cast(tf.gather(images, at[number]), tf.float32)
                    predicted = model(chosen, training=True)
                    each = keras.losses.sparse_categorical_crossentropy(tf.gather(labels, at[number]), predicted)
                    loss = tf.reduce_mean(each)
                slopes = tape.gradient(loss, variables)
                optimizer_.learning_rate.assign(rates[number])
                optimizer_.apply_gradients(zip(slopes, variables))
                if masked:
                    for kernel, kept in zip(kernels, stay):
                        kernel.assign(kernel * kept)

        self._train = train
        self._predict = tf.function(
            lambda images: model(tf.cast(images, tf.float32), training=False), reduce_retracing=True
        )

    def start(self, weights: list[np.ndarray]) -> Network:
        """Take these weights, without any mask."""
        self.model.set_weights(weights)
        self.regrow = False
        for stay in self.stay:
            stay.assign(tf.ones_like(stay))
        return self

    @property
    def density(self) -> float:
        """The share of the prunable weights that are not 0."""
        return float(np.mean(np.concatenate([kernel.numpy().ravel() != 0 for kernel in self.kernels])))

    @property
    def nonzeros(self) -> int:
        """How many prunable weights are not 0."""
        return int(sum(np.count_nonzero(kernel.numpy()) for kernel in self.kernels))

    def prune(
        self, density: float, grain: str = "weights", *, choose: Choose | None = None,
        random: np.random.Generator | None = None,
    ) -> Network:  # fmt: skip
        """Set all but the strongest groups of each kernel to 0, and keep them there.

        Args:
            choose: decides in place of `mask`. random: decides in place of the weights.
        """
        for kernel, stay in zip(self.kernels, self.stay):
            value = kernel.numpy()
            kept = choose(value, density, grain) if choose else mask(value, density, grain, random)
            stay.assign(np.asarray(kept, np.float32))
            kernel.assign(kernel * stay)
        return self

    def train(
        self, part: Part, rate: float, seed: int, schedule: Schedule | None = None, *, choose: Choose | None = None,
        epochs: int = EPOCHS, look: Callable[[int, Network], object] | None = None,
    ) -> Network:  # fmt: skip
        """Train with batches of BATCH and a cosine decay from `rate` to 0; the optimizer's averages start at 0.

        Args:
            seed: draws the order of the images.
            schedule: prunes single weights by itself, every UPDATES_AT_ONCE updates; `choose`: see `prune`.
            look: called with the number of updates made, first with 0, and this network.
        """
        for variable in self._optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        random, size = np.random.default_rng(seed), len(part.labels)
        batches = size // BATCH
        order = [random.permutation(size)[: batches * BATCH].reshape(batches, BATCH) for _ in range(epochs)]
        at = np.concatenate(order).astype(np.int32)
        rates = rate * (1 + np.cos(np.pi * np.arange(len(at)) / len(at))) / 2
        images, labels = tf.constant(part.images), tf.constant(part.labels, tf.int32)
        share = 0.0
        for done in range(0, len(at), UPDATES_AT_ONCE):
            if look:
                look(done, self)
            if schedule and (wanted := schedule(done, len(at))) > share:
                share = wanted
                self.prune(1 - share, choose=choose)
            now = slice(done, done + UPDATES_AT_ONCE)
            chosen, slow = tf.constant(at[now]), tf.constant(rates[now], tf.float32)
            self._train(images, labels, chosen, slow, tf.constant(not self.regrow))
        if look:
            look(len(at), self)
        return self

    def accuracy(self, part: Part) -> float:
        """The share of `part` that is recognised."""
        starts = range(0, len(part.labels), 1_000)
        guesses = [self._predict(part.images[i : i + 1_000]).numpy().argmax(1) for i in starts]
        return float(np.mean(np.concatenate(guesses) == part.labels))

    def settle(self, part: Part) -> Network:
        """Estimate batch norm's means and variances anew, as a network needs that is pruned and not trained again."""
        landscape.settle(self.model, part.images[:2_000])
        return self


def _quick() -> keras.Model:
    return models.quick_cnn((28, 28, 1), 10)


def _lstm(units: int) -> keras.Model:
    images = keras.Input((2 * ROWS, 2 * ROWS, 1))
    x = keras.layers.Rescaling(**models.TO_UNIT_SCALE)(keras.layers.AveragePooling2D()(images))
    x = keras.layers.LSTM(units)(keras.layers.Reshape((ROWS, ROWS))(x))
    return keras.Model(images, keras.layers.Dense(10, activation="softmax")(x))


@cache
def _compiled(units: int) -> Network:
    """One network of a kind is compiled in a process; units = 0: convolutional."""
    if not units:
        model = _quick()
        convolutions = [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)]
        return Network(model, [layer.kernel for layer in convolutions[1:]], keras.optimizers.SGD(0.1, momentum=0.9))
    model = _lstm(units)
    cell = model.layers[-2].cell
    return Network(model, [cell.kernel, cell.recurrent_kernel], keras.optimizers.Adam(0.001, global_clipnorm=1.0))


def convolutional(seed: int) -> Network:
    """`models.quick_cnn` with new weights. Its second and third kernel, 95 % of its weights, can be pruned.

    There is one in a process: the one before it takes these weights, too.
    """
    return _compiled(0).start(initial_weights(seed))


def initial_weights(seed: int) -> list[np.ndarray]:
    """The weights of the convolutional network before any training."""
    keras.utils.set_random_seed(seed)
    return _quick().get_weights()


def recurrent(seed: int, units: int) -> Network:
    """An LSTM that reads an image row by row, and a dense layer. Both kernels of the LSTM can be pruned.

    The image is averaged to 14 × 14 pixels before. There is one of so many units in a process.
    """
    keras.utils.set_random_seed(seed)
    weights = _lstm(units).get_weights()
    return _compiled(units).start(weights)


@cache
def _first_half(seed: int, rate: float) -> list[np.ndarray]:
    return convolutional(seed).train(fashion().train, rate, seed).model.get_weights()


def trained(seed: int, rate: float = FIRST_RATE) -> Network:
    """The convolutional network after one dense training, which is done once in a process."""
    return _compiled(0).start(_first_half(seed, rate))
