"""Times of this machine: steps of a training, answers of a network, and the operations that both are made of."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from course_lib import models
from course_lib.system.processes import Supervised

BUSY = "while True: sum(range(10**6))"


@contextlib.contextmanager
def beside_another_program() -> Iterator[None]:
    """While this lasts, another program keeps one core busy; it ends with the block, or with this process."""
    with Supervised([sys.executable, "-c", BUSY], timeout=600):
        time.sleep(0.3)  # until it is under way
        yield


class Training:
    """`quick_cnn` in training by SGD with momentum, one step at a time; `normalise` as for `quick_cnn`."""

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        batch: int = 64,
        rate: float = 0.05,
        seed: int = 0,
        normalise: Callable | None = None,
    ) -> None:
        import tensorflow as tf
        from tensorflow import keras

        tf.keras.utils.set_random_seed(seed)
        self._x, self._y, self._batch = x, y, batch
        self._random = np.random.default_rng(seed)
        self.model = model = models.quick_cnn(x.shape[1:], int(y.max()) + 1, normalise=normalise)
        optimizer = keras.optimizers.SGD(rate, 0.9)
        loss_of = keras.losses.SparseCategoricalCrossentropy()

        @tf.function
        def update(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(images, training=True))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            return loss

        self._update = update
        self._answer = tf.function(lambda images: tf.argmax(model(images, training=False), axis=1))

    def step(self) -> float:
        """Make an update with a batch drawn at random; return its seconds."""
        chosen = self._random.integers(len(self._x), size=self._batch)
        began = time.perf_counter()
        self._update(self._x[chosen].astype(np.float32), self._y[chosen]).numpy()
        return time.perf_counter() - began

    def steps(self, number: int) -> np.ndarray:
        """The seconds of each of so many steps."""
        return np.array([self.step() for _ in range(number)])

    def accuracy(self, x: np.ndarray, y: np.ndarray) -> float:
        """The share of these images that it names rightly."""
        return float(np.mean(self._answer(x.astype(np.float32)).numpy() == y))


def latencies(model: Callable, images: np.ndarray, batch: int, calls: int) -> np.ndarray:
    """Seconds of each call of `model` with `batch` images, after some that don't count."""
    import tensorflow as tf

    answer = tf.function(lambda x: model(x, training=False), reduce_retracing=True)
    given = tf.constant(np.resize(images, (batch, *images.shape[1:])).astype(np.float32))
    return times(lambda: answer(given).numpy(), calls)


def times(operation: Callable[[], object], calls: int, warm: int = 3) -> np.ndarray:
    """Seconds of each call of `operation`, after `warm` that don't count."""
    found = []
    for _ in range(warm + calls):
        began = time.perf_counter()
        operation()
        found.append(time.perf_counter() - began)
    return np.array(found[warm:])


def kernels(batch: int = 64) -> dict[str, tuple[float, Callable[[], object]]]:
    """Operations that kernel benchmarks time, and those of a step of `quick_cnn`: name → (FLOP, the operation).

    FLOP count two for each multiply-add. A layer's operation is its three products: forward, the gradient of its
    input, the gradient of its weights.
    """
    import tensorflow as tf

    def given(*shape: int) -> tf.Tensor:
        return tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)

    def product(size: int) -> tuple[float, Callable[[], object]]:
        a, b = given(size, size), given(size, size)
        multiply = tf.function(lambda: tf.matmul(a, b))
        return 2.0 * size**3, lambda: multiply()[0, 0].numpy()

    def convolution(height: int, inputs: int, outputs: int, stride: int) -> tuple[float, Callable[[], object]]:
        image, kernel = given(batch, height, height, inputs), given(3, 3, inputs, outputs)
        shape = tf.nn.conv2d(image, kernel, stride, "SAME").shape
        error = given(*shape)

        @tf.function
        def layer() -> tf.Tensor:
            forward = tf.nn.conv2d(image, kernel, stride, "SAME")
            to_input = tf.nn.conv2d_transpose(error, kernel, image.shape, stride, "SAME")
            to_kernel = tf.raw_ops.Conv2DBackpropFilter(
                input=image,
                filter_sizes=kernel.shape,
                out_backprop=error,
                strides=[1, stride, stride, 1],
                padding="SAME",
            )
            return forward[0, 0, 0, 0] + to_input[0, 0, 0, 0] + to_kernel[0, 0, 0, 0]

        return 3 * 2.0 * np.prod(shape) * 9 * inputs, lambda: layer().numpy()

    def cell(units: int) -> tuple[float, Callable[[], object]]:
        lstm = tf.keras.layers.LSTMCell(units)
        x, state = given(batch, units), [given(batch, units), given(batch, units)]
        lstm(x, state)
        once = tf.function(lambda: lstm(x, state)[0][0, 0])
        return 2.0 * batch * 8 * units**2, lambda: once().numpy()

    return {
        "large product, 1024³": product(1024),
        "LSTM cell, 128 units": cell(128),
        "convolution 1 of the network": convolution(28, 1, 16, 2),
        "convolution 2": convolution(7, 16, 32, 1),
        "convolution 3": convolution(3, 32, 64, 1),
    }
