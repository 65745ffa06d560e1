"""Tell whoever watches a run how its ranks train: `fit`, `batch` and `epoch` of each `Model.fit`, or `images`, of a
script that has its own loop.

`rank` installs this before the script starts, where the launcher is asked for it (`environment.TRAINING_EVENTS`); the
script needs no change. It counts steps and images only; `instrumentation` logs more.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np

from course_lib.ranks import channel

INTERVAL_S = 0.2  # between two events of a rank

# (owner, name, wrap): put what `wrap` makes of `owner.name` in its place
Replace = Callable[[object, str, Callable[[Callable], Callable]], None]


class Progress:
    """Training steps and images of this rank so far. TensorFlow calls `count` from threads of its own."""

    def __init__(self) -> None:
        self.steps = self.images = 0
        self.fitting = 0  # calls of `fit` that are running: these tell more
        self._lock = threading.Lock()
        self._told = 0

    def count(self, images: int) -> None:
        """A training step begins, on so many images."""
        with self._lock:
            self.steps += 1
            self.images += images

    def flush(self) -> None:
        """Tell what is new."""
        if self.steps != self._told:
            self._told = self.steps
            if not self.fitting:
                channel.tell("images", images=self.images, steps=self.steps)


def install() -> None:
    """Patch Keras in this process so that the launcher is told of its training."""
    import tensorflow as tf

    progress = Progress()

    def replace(owner: object, name: str, wrap: Callable[[Callable], Callable]) -> None:
        setattr(owner, name, wrap(getattr(owner, name)))

    on_training_steps(
        tf, replace, lambda _, examples: [tf.shape(examples)[0]], lambda _, images: progress.count(int(images))
    )
    report_fits(tf, replace, progress)
    atexit.register(progress.flush)
    flush_for_ever(progress)


def flush_for_ever(progress: Progress) -> None:
    """Call `progress.flush` again and again, in a thread."""
    sleep = time.sleep

    def flush() -> None:
        while True:
            sleep(INTERVAL_S)
            with contextlib.suppress(ValueError):  # files that are closed, at the very end
                progress.flush()

    threading.Thread(target=flush, daemon=True).start()


def on_training_steps(
    tf: object, replace: Replace, measure: Callable[[object, object], list], step: Callable[..., None]
) -> None:
    """Before each call of a model under a gradient tape, which is a training step, call `step(model, *measured)`.

    A model that another one calls is a part of its step. `measure` makes, of the model and the tensor of the step's
    examples (of several inputs the largest), the tensors whose values are `measured`. A function that XLA compiles
    cannot call Python: where a model is called in one, the call of the function is the step, and the largest of its
    arguments has the examples.
    """
    from tensorflow.python.eager import record
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    inside = threading.local()
    trained_by: weakref.WeakKeyDictionary[object, object] = weakref.WeakKeyDictionary()  # compiled function → model

    def batches(*given: object) -> list:
        """The tensors among arguments."""
        return [one for one in tf.nest.flatten(given) if isinstance(one, (tf.Tensor, np.ndarray))]

    def size(tensor: object) -> int:
        return tf.TensorShape(getattr(tensor, "shape", None))[1:].num_elements() or 0

    def after(operation: object, tensors: object) -> object:
        """The same tensors, once the operation is done."""

        def then(one: object) -> object:
            return _with_mask_of(one, tf.identity(one)) if isinstance(one, tf.Tensor) else one

        with tf.control_dependencies([operation]):
            return tf.nest.map_structure(then, tensors)

    def note(model: object, tensors: list) -> Callable[[object], object]:
        """Measure a step's examples. Returns a function that reports the step and gives its argument back, in a graph
        once that is done."""

        def listener(*measured: np.ndarray) -> None:
            if model.trainable_variables:  # else it changes images only
                step(model, *measured)

        def reported(outcome: object) -> object:
            if tf.executing_eagerly():
                listener(*(one.numpy() for one in measured))
                return outcome
            return after(tf.numpy_function(listener, measured, [], stateful=True), outcome)

        with record.stop_recording():
            measured = measure(model, max(tensors, key=size))
        return reported

    def tapped(original: Callable) -> Callable:
        @functools.wraps(original)
        def __call__(self: object, *args: object, **kwargs: object) -> object:
            if not args and "inputs" in kwargs:
                args = (kwargs.pop("inputs"),)
            trains = record.could_possibly_record() and args and batches(tf.nest.flatten(args[0])[:1])
            if not trains or getattr(inside, "step", False):
                return original(self, *args, **kwargs)
            reported = None
            if not in_xla(tf):
                reported = note(self, tf.nest.flatten(args[0]))
            elif compiled := getattr(inside, "compiled", None):
                trained_by[compiled] = self
            later = tf.executing_eagerly() and not self.built  # its weights are made by this very call
            if reported and not later:  # before any of them change
                args = (reported(args[0]), *args[1:])
            inside.step = True
            try:
                outcome = original(self, *args, **kwargs)
            finally:
                inside.step = False
            return reported(outcome) if reported and later else outcome

        return __call__

    def compiled(original: Callable) -> Callable:
        @functools.wraps(original)
        def __call__(self: object, *args: object, **kwargs: object) -> object:
            if not self._jit_compile or getattr(inside, "compiled", None):
                return original(self, *args, **kwargs)
            inside.compiled = self
            try:
                outcome = original(self, *args, **kwargs)
            finally:
                inside.compiled = None
            tensors = batches(args, kwargs)
            return note(trained_by[self], tensors)(outcome) if self in trained_by and tensors else outcome

        return __call__

    replace(tf.keras.Model, "__call__", tapped)
    replace(Function, "__call__", compiled)


def in_xla(tf: object) -> bool:
    """Whether what is traced now is for XLA, where Python can't be called."""
    from tensorflow.python.ops import control_flow_util

    graph = tf.compat.v1.get_default_graph()
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(graph)


def _with_mask_of(tensor: object, other: object) -> object:
    """`other`, with the mask that Keras has put on `tensor`, if it has."""
    if hasattr(tensor, "_keras_mask"):
        other._keras_mask = tensor._keras_mask
    return other


def in_each_fit(tf: object, replace: Replace, callback: Callable[[int], object]) -> None:
    """Add `callback(initial_epoch)` to each `Model.fit`, behind all other callbacks: it sees what they made of the
    metrics. When the fit has ended, however it did, the callback's method `close` is called."""

    def with_callback(original: Callable) -> Callable:
        @functools.wraps(original)
        def fit(self: object, *args: object, callbacks: object = None, **kwargs: object) -> object:
            added = callback(kwargs.get("initial_epoch", 0))
            args = list(args)
            if len(args) > 5:  # callbacks by position
                callbacks, args[5] = args[5], None
            if isinstance(callbacks, tf.keras.callbacks.CallbackList):
                callbacks.append(added)
                added.set_model(self)
                added.set_params(getattr(callbacks, "params", None) or {})
            else:
                given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
                callbacks = [*given, added]
            if len(args) > 5:
                args[5] = callbacks
            else:
                kwargs["callbacks"] = callbacks
            try:
                return original(self, *args, **kwargs)
            finally:
                added.close()

        return fit

    replace(tf.keras.Model, "fit", with_callback)


def report_fits(tf: object, replace: Replace, progress: Progress) -> None:
    """Tell of each `Model.fit`: that it begins, now and then of a batch, of each epoch."""

    class Reporter(tf.keras.callbacks.Callback):
        def __init__(self, initial_epoch: int) -> None:
            super().__init__()
            self._initial_epoch = initial_epoch
            self._supports_tf_logs = True  # no copy from the device at each step
            self._images_before = progress.images
            self._last_event = 0.0
            progress.fitting += 1

        def on_train_begin(self, logs: object = None) -> None:
            epochs, steps = self.params.get("epochs"), self.params.get("steps")
            channel.tell("fit", epochs=epochs, steps=steps, initial_epoch=self._initial_epoch)

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self._epoch = epoch

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            if time.monotonic() - self._last_event >= INTERVAL_S:
                self._last_event = time.monotonic()
                channel.tell("batch", epoch=self._epoch, step=batch, images=self._images, **numbers(logs))

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            channel.tell("epoch", epoch=epoch, images=self._images, logs=numbers(logs))

        def close(self) -> None:
            progress.fitting -= 1
            progress.flush()

        @property
        def _images(self) -> int:
            return progress.images - self._images_before

    in_each_fit(tf, replace, Reporter)


def numbers(logs: object) -> dict[str, float]:
    """Of what Keras tells a callback, the metrics that are single numbers."""
    return {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}
