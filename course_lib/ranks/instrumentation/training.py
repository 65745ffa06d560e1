"""Log the training: the examples of each step, the number of updates, the weights."""

from __future__ import annotations

import atexit
import functools
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from course_lib.ranks.instrumentation import events
from course_lib.ranks.instrumentation.devices import note_cuda_choice
from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches
from course_lib.ranks.instrumentation.training_steps import TrainingSteps, in_xla

DIGEST_INTERVAL_UPDATES = 100  # between two digests of the weights; more at first, at updates 1, 2, 4, 8, …
_PERIODS = (1009, 1013, 1019, 1021)  # primes: no layer's size is a multiple of them
RATE_INTERVAL_S = 1.0  # between two reads of the learning rate, which a schedule computes each time


class Training(events.Progress):
    """The training of this rank so far. TensorFlow calls `step` and `update` from its own threads."""

    def __init__(self, log: Log, report: events.Report) -> None:
        super().__init__(report)
        self.log = log
        self.updates = self.values = 0  # values: numbers changed by all updates together
        self.model: tf.keras.Model | None = None  # the last model that was trained
        self._unwritten: list[np.ndarray] = []
        self._last = np.zeros(0, np.float32)  # brightness of the examples of the last step
        self._written = self._saved = 0  # steps + updates at the last write of the log and of the weights
        self._writing = threading.Lock()

    def step(self, model: tf.keras.Model, brightness: np.ndarray) -> None:
        """Record a training step on examples of this brightness; called when the step begins.

        A second gradient of the same examples, as in sharpness-aware minimisation, does not count as a step.
        """
        if not self.steps:
            note_cuda_choice(self.log)
        with self._lock:
            self.model = model
            if np.array_equal(brightness, self._last):
                return
            self._last = brightness
            self.steps += 1
            self.images += len(brightness)
            self._unwritten.append(brightness)

    def update(self, values: int) -> bool:
        """Count an update that changed so many numbers; return whether to log a digest of the weights."""
        with self._lock:
            self.updates += 1
            self.values += values
            return self.updates % DIGEST_INTERVAL_UPDATES == 0 or self.updates & (self.updates - 1) == 0

    def digest(self, numbers: np.ndarray) -> None:
        """Log the digest of the weights after the last update."""
        self.log.note("digest", updates=self.updates, digest=[float(number) for number in numbers])

    def flush(self) -> None:
        """Write new steps and counts to the log, and report them to the launcher."""
        with self._writing:
            with self._lock:
                steps, self._unwritten = self._unwritten, []
            self.log.append(steps)
            if self.steps + self.updates != self._written:
                self._written = self.steps + self.updates
                counts = {"steps": self.steps, "images": self.images, "updates": self.updates, "values": self.values}
                self.log.note("progress", **counts)
            super().flush()

    def save_weights(self) -> None:
        """Write the weights if training has changed them since the last call."""
        if self.model is None or self._saved == self.steps + self.updates:
            return
        self._saved = self.steps + self.updates
        trained = {id(variable) for variable in self.model.trainable_variables}
        variables = self.model.weights
        self.log.save_weights(_values(variables), [id(variable) in trained for variable in variables])

    def end(self) -> None:
        """Called when the script has ended: write the rest of the log."""
        self.flush()
        self.save_weights()
        self.log.note("end")


def watch(log: Log, patches: Patches, report: events.Report) -> None:
    """Patch Keras's models and optimizers so that they log the training."""
    training = Training(log, report)
    TrainingSteps(lambda examples: [brightness(examples)], training.step).install(patches)
    _watch_updates(patches, training)
    events.in_each_fit(patches, functools.partial(events.FitReporter, training))
    events.in_each_fit(patches, functools.partial(FitLog, training))
    atexit.register(training.end)
    training.flush_periodically()


def brightness(examples: tf.Tensor) -> tf.Tensor:
    """One number for each example, invariant under reflection: images [n, h, w, c] or any [n, …] → float32 [n]."""
    examples = tf.cast(examples, tf.float32)
    number = tf.shape(examples)[0]
    if examples.shape.rank != 4:
        return tf.reduce_mean(tf.reshape(examples, [number, -1]), axis=1)
    # Pixels at the centre have more weight: the plain mean would be 0 for every image if each is standardised.
    height, width, channels = tf.unstack(tf.shape(examples)[1:])
    rows = tf.reshape(examples, [number, height, -1])
    across = tf.reduce_mean(tf.reduce_mean(rows, axis=2) * _window(height), axis=1)
    down = tf.reduce_mean(tf.reduce_mean(rows, axis=1) * tf.repeat(_window(width), channels), axis=1)
    return (across + down) / 2


def _window(length: tf.Tensor) -> tf.Tensor:
    """Symmetric weights [length] of rows or columns, with mean 1: a reflected image has the same brightness."""
    half = tf.sin(np.pi * (tf.range(length, dtype=tf.float32) + 0.5) / tf.cast(length, tf.float32))
    return (half + half[::-1]) / tf.reduce_sum(2 * half) * tf.cast(length, tf.float32)


def _watch_updates(patches: Patches, training: Training) -> None:
    """Count updates, and log digests directly after an update, when averaged gradients have made the weights equal."""

    def watched(original: Callable) -> Callable:
        @functools.wraps(original)
        def apply_gradients(self: object, grads_and_vars: Iterable, *args: object, **kwargs: object) -> object:
            pairs = list(grads_and_vars)
            variables = [variable for gradient, variable in pairs if gradient is not None]
            outcome = original(self, pairs, *args, **kwargs)
            values = sum(variable.shape.num_elements() for variable in variables)
            if in_xla() or not variables:
                return outcome
            if tf.executing_eagerly():
                if training.update(values):
                    training.digest(digest(variables).numpy())
                return outcome
            due = tf.numpy_function(functools.partial(training.update, values), [], tf.bool, stateful=True)
            due.set_shape([])

            def note() -> tf.Tensor:
                with tf.control_dependencies([tf.numpy_function(training.digest, [digest(variables)], [])]):
                    return tf.constant(True)

            tf.cond(due, note, lambda: tf.constant(False))
            return outcome

        return apply_gradients

    for owner in (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer):
        patches.replace(owner, "apply_gradients", watched)


class FitLog(events.FitCallback):
    """Logs the epochs, the first step and the learning rate of a `Model.fit`."""

    def __init__(self, training: Training, initial_epoch: int) -> None:
        super().__init__(initial_epoch)
        self._training, self._log = training, training.log
        self._batches = self._steps = 0  # in this epoch, in this fit
        self._images_before = training.images
        self._last_rate = 0.0  # time of the last read
        self._rates: list[float] = []

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        self._rates.append(self._rate())
        self._log.note("fit", epochs=self.params.get("epochs"), steps=self.params.get("steps"))

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        self._batches, self._first = 0, self._training.steps

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        self._steps += 1
        self._batches += 1
        if self._steps == 1:  # not earlier: some models create their weights in the first batch
            self._log.note("first-step", digest=_name(_values(self.model.trainable_variables)))
        if time.monotonic() - self._last_rate >= RATE_INTERVAL_S:
            self._last_rate = time.monotonic()
            self._rates.append(self._rate())

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        self._rates.append(self._rate())
        images = self._training.images - self._images_before
        metrics = events.numbers(logs)
        self._log.note("epoch", epoch=epoch, images=images, logs=metrics, first=self._first, steps=self._batches)

    def close(self) -> None:
        """Called after the fit: write the log and the weights."""
        if self._steps:
            self._training.flush()
            self._training.save_weights()
            self._log.note("fit-end", learning_rate=max(self._rates, default=None))

    def _rate(self) -> float:
        rate = getattr(self.model.optimizer, "learning_rate", float("nan"))  # learners' optimizers may lack it
        return float(tf.convert_to_tensor(rate))


def digest(tensors: Iterable) -> tf.Tensor:
    """The norm of all tensors as one vector, and four projections of this vector: float32 [5].

    The difference of the projections of two vectors is about as large as the difference of the vectors.
    """
    flat = tf.concat([tf.reshape(tf.cast(tensor, tf.float32), [-1]) for tensor in tensors], 0)
    place = tf.range(tf.size(flat, out_type=tf.int64), dtype=tf.int64)
    waves = [tf.cos(tf.cast(place % period, tf.float32) * (2 * np.pi * 5 / period)) for period in _PERIODS]
    return tf.stack([tf.norm(flat), *(tf.reduce_sum(flat * wave) for wave in waves)])


def _name(weights: Iterable[np.ndarray]) -> str:
    """A short hash of the weights, bit for bit."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in weights)).hexdigest()[:16]


def _values(variables: Iterable) -> list[np.ndarray]:
    return [variable.numpy() for variable in variables]
