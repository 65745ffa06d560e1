"""Watch training: which examples each step reads, how many updates are made, what the weights become."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable

import numpy as np

from course_lib import rank
from course_lib.probe import joining, saving
from course_lib.probe.patches import Patches
from course_lib.probe.recorder import Recorder

PAUSE = 0.2  # seconds between two events of a rank, and between two looks at what is to be written
LOOK = 100  # updates between two digests of the weights; there are more at the beginning


class Training:
    """What this rank has trained so far. TensorFlow calls `step` and `update` from threads of its own."""

    def __init__(self, recorder: Recorder, replaced: Callable[[], list[str]]) -> None:
        self.recorder = recorder
        self.steps = self.images = self.updates = self.values = 0
        self.fitting = 0  # calls of `fit` that are running
        self.model: object = None  # the outermost one that was trained last
        self.replaced = replaced
        self._cuda = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._waiting: list[np.ndarray] = []
        self._written = self._looked = self._kept = 0
        self._lock = threading.Lock()

    def step(self, model: object, brightness: np.ndarray) -> None:
        """A training step begins, on examples of this brightness."""
        self.model = model
        if self.steps == 0:
            joining.note_cuda_choice(self.recorder, self._cuda)
        # Before the step: the weights are those after the last update, on every rank alike.
        done = self.updates or self.steps
        if done != self._looked and (done % LOOK == 0 or done & (done - 1) == 0):
            self._looked = done
            self.recorder.note(
                "digest", updates=self.updates, steps=self.steps, digest=digest(_values(model.trainable_variables))
            )
        with self._lock:
            self.steps += 1
            self.images += len(brightness)
            self._waiting.append(brightness)

    def update(self, values: int) -> None:
        """An optimizer has changed so many values."""
        self.updates += 1
        self.values += values

    def flush(self) -> None:
        """Write down what is new."""
        with self._lock:
            steps, self._waiting = self._waiting, []
        if steps:
            self.recorder.append(steps)
        if self.steps + self.updates != self._written:
            self._written = self.steps + self.updates
            self.recorder.note(
                "progress", steps=self.steps, images=self.images, updates=self.updates, values=self.values
            )
            if not self.fitting:
                rank.tell("images", images=self.images, steps=self.steps)
        if replaced := self.replaced():
            self.recorder.tampered(*replaced)

    def keep(self) -> None:
        """Write down the weights, where training has changed them since the last time."""
        if self.model is None or self._kept == self.steps + self.updates:
            return
        self._kept = self.steps + self.updates
        trained = {id(variable) for variable in self.model.trainable_variables}
        variables = self.model.weights
        self.recorder.keep(_values(variables), [id(variable) in trained for variable in variables])

    def end(self) -> None:
        """The script has ended."""
        self.flush()
        if self.model is not None:
            self.keep()
        self.recorder.tampered()
        self.recorder.note("end")


def watch(tf: object, recorder: Recorder, patches: Patches) -> None:
    """Patch Keras's models and optimizers, and begin to look at what becomes of all patches."""
    training = Training(recorder, list)
    _watch_steps(tf, training, patches)
    _watch_updates(tf, training, patches)
    _watch_fit(tf, training, patches)
    for owner, names in (
        (time, ("time", "monotonic", "perf_counter", "sleep")),
        (builtins, ("open",)),
        (json, ("dumps",)),
        (np, ("concatenate", "ascontiguousarray", "array")),
        (hashlib, ("sha256",)),
        (rank, ("tell",)),
        (tf.keras.Model, ("evaluate", "compile", "train_on_batch", "make_train_function")),
        (tf, ("numpy_function", "reduce_mean")),
    ):
        patches.mind(owner, *names)
    modules = [sys.modules[kind.__module__] for kind in (Training, Recorder, Patches)]
    patches.mind_all(joining, saving, *modules, Training, Recorder, Patches)
    training.replaced = patches.seal()
    atexit.register(training.end)
    threading.Thread(target=_flush_for_ever, args=(training, time.sleep), daemon=True).start()


def _flush_for_ever(training: Training, sleep: Callable[[float], None]) -> None:
    while True:
        sleep(PAUSE)
        with contextlib.suppress(ValueError):  # files that are closed, at the very end
            training.flush()


def _watch_steps(tf: object, training: Training, patches: Patches) -> None:
    """Note the examples of each call of a model under a gradient tape: these are the training steps."""
    from tensorflow.python.eager import record
    from tensorflow.python.ops import control_flow_util

    inside = threading.local()

    def brightness(examples: object) -> object:
        examples = tf.cast(examples, tf.float32)
        return tf.reduce_mean(tf.reshape(examples, [tf.shape(examples)[0], -1]), axis=1)

    def tap(model: object, inputs: object) -> object:
        first = tf.nest.flatten(inputs)[0]
        if tf.executing_eagerly():
            with record.stop_recording():
                training.step(model, brightness(first).numpy())
            return inputs
        # XLA cannot compile a call of Python.
        if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
            return inputs
        step = tf.numpy_function(functools.partial(training.step, model), [brightness(first)], [], stateful=True)
        with tf.control_dependencies([step]):  # before any of the weights change
            return tf.nest.map_structure(tf.identity, inputs)

    def watched(original: Callable) -> Callable:
        @functools.wraps(original)
        def __call__(self: object, *args: object, **kwargs: object) -> object:
            tensors = tf.nest.flatten(args[0]) if args else []
            if (
                getattr(inside, "model", False)
                or not record.could_possibly_record()
                or not tensors
                or not isinstance(tensors[0], (tf.Tensor, np.ndarray))
            ):
                return original(self, *args, **kwargs)
            inside.model = True
            try:
                return original(self, tap(self, args[0]), *args[1:], **kwargs)
            finally:
                inside.model = False

        return __call__

    patches.put(tf.keras.Model, "__call__", watched)


def _watch_updates(tf: object, training: Training, patches: Patches) -> None:
    from tensorflow.python.ops import control_flow_util

    def watched(original: Callable) -> Callable:
        @functools.wraps(original)
        def apply_gradients(self: object, grads_and_vars: Iterable, *args: object, **kwargs: object) -> object:
            pairs = list(grads_and_vars)
            values = sum(variable.shape.num_elements() for gradient, variable in pairs if gradient is not None)
            outcome = original(self, pairs, *args, **kwargs)
            if tf.executing_eagerly():
                training.update(values)
            elif not control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
                averaged = [gradient for gradient, _ in pairs if gradient is not None]
                with tf.control_dependencies(averaged):  # an update that waits for other ranks is none yet
                    tf.numpy_function(lambda: training.update(values), [], [], stateful=True)
            return outcome

        return apply_gradients

    for owner in (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer):
        patches.put(owner, "apply_gradients", watched)


def _watch_fit(tf: object, training: Training, patches: Patches) -> None:
    """Add a callback to each `Model.fit`."""
    watch_class = _watch_class(tf)

    def watched(original: Callable) -> Callable:
        @functools.wraps(original)
        def fit(self: object, *args: object, callbacks: object = None, **kwargs: object) -> object:
            watch = watch_class(training, kwargs.get("initial_epoch", 0))
            args = list(args)
            if len(args) > 5:  # callbacks by position
                callbacks, args[5] = args[5], None
            if isinstance(callbacks, tf.keras.callbacks.CallbackList):
                callbacks.append(watch)
            else:
                given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
                callbacks = [*given, watch]
            if len(args) > 5:
                args[5] = callbacks
            else:
                kwargs["callbacks"] = callbacks
            training.fitting += 1
            try:
                return original(self, *args, **kwargs)
            finally:
                training.fitting -= 1
                watch.close()

        return fit

    patches.put(tf.keras.Model, "fit", watched)


def _watch_class(tf: object) -> type:
    class _Watch(tf.keras.callbacks.Callback):
        """Counts and notes while `fit` runs. Last of the callbacks: it sees what the others made of the metrics."""

        def __init__(self, training: Training, initial_epoch: int) -> None:
            super().__init__()
            self._initial_epoch = initial_epoch
            self._supports_tf_logs = True  # no copy from the device at each step
            self._training = training
            self._recorder = training.recorder
            self._batches = self._steps = 0  # of this epoch, of this fit
            self._before = training.images
            self._told = 0.0
            self._rates: list[float] = []

        def on_train_begin(self, logs: object = None) -> None:
            self._rates.append(self._rate())
            epochs, steps = self.params.get("epochs"), self.params.get("steps")
            rank.tell("fit", epochs=epochs, steps=steps, initial_epoch=self._initial_epoch)
            self._recorder.note("fit", epochs=epochs, steps=steps)

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self._epoch, self._batches = epoch, 0
            self._first = self._training.steps

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            self._steps += 1
            self._batches += 1
            if self._steps == 1:
                # Only now has every model its weights: some are built by their first batch.
                self._recorder.note(
                    "first-step",
                    digest=digest(_values(self.model.trainable_variables)),
                    trainable=len(self.model.trainable_variables),
                    weights=len(self.model.weights),
                )
            if time.monotonic() - self._told >= PAUSE:
                self._told = time.monotonic()
                self._rates.append(self._rate())
                rank.tell("batch", epoch=self._epoch, step=batch, images=self._images, **_numbers(logs))

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            record = {"epoch": epoch, "images": self._images, "logs": _numbers(logs)}
            self._rates.append(self._rate())
            rank.tell("epoch", **record)
            self._recorder.note("epoch", **record, first=self._first, steps=self._batches)

        def close(self) -> None:
            if not self._steps:
                return
            self._training.flush()
            self._training.keep()
            self._recorder.note("fit-end", learning_rate=max(self._rates, default=None))

        @property
        def _images(self) -> int:
            return self._training.images - self._before

        def _rate(self) -> float:
            return float(tf.convert_to_tensor(self.model.optimizer.learning_rate))

    return _Watch


def digest(weights: Iterable[np.ndarray]) -> str:
    """A short name for the bits of weights."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in weights)).hexdigest()[:16]


def _values(variables: Iterable) -> list[np.ndarray]:
    return [variable.numpy() for variable in variables]


def _numbers(logs: object) -> dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}
