"""Report to whoever watches a run how its ranks train: `fit`, `batch` and `epoch` of each `Model.fit`, or `images`, of
a script that has its own loop.

`rank` installs this before the script starts, where the launcher asks for it (`RankTask.training_events`); the script
needs no change. It counts steps and images only; `instrumentation` logs more.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from course_lib.ranks.instrumentation.patches import Patches
from course_lib.ranks.instrumentation.training_steps import TrainingSteps

INTERVAL_S = 0.2  # between two events of a rank
CALLBACKS_POSITION = 5  # among the arguments of `Model.fit`

Report = Callable[..., None]  # report(kind, **data)


class Progress:
    """Training steps and images of this rank so far. TensorFlow calls `count` from threads of its own."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.steps = self.images = 0
        self.fitting = 0  # calls of `fit` that are running: these report more
        self._lock = threading.Lock()
        self._reported = 0  # steps

    def count(self, images: int) -> None:
        """A training step begins, on so many images."""
        with self._lock:
            self.steps += 1
            self.images += images

    def flush(self) -> None:
        """Report what is new."""
        if self.steps != self._reported:
            self._reported = self.steps
            if not self.fitting:
                self.report("images", images=self.images, steps=self.steps)

    def flush_periodically(self) -> None:
        """Call `flush` again and again, in a thread."""
        sleep = time.sleep

        def flush() -> None:
            while True:
                sleep(INTERVAL_S)
                with contextlib.suppress(ValueError):  # files that are closed, at the very end
                    self.flush()

        threading.Thread(target=flush, daemon=True).start()


class FitCallback(tf.keras.callbacks.Callback):
    """A callback that `in_each_fit` adds; `close` is called when the fit has ended, however it did."""

    def __init__(self, initial_epoch: int) -> None:
        super().__init__()
        self._initial_epoch = initial_epoch
        self._supports_tf_logs = True  # no copy from the device at each step

    def close(self) -> None:
        """The fit has ended."""


class FitReporter(FitCallback):
    """Reports of a `Model.fit` that it begins, now and then a batch, and each epoch."""

    def __init__(self, progress: Progress, initial_epoch: int) -> None:
        super().__init__(initial_epoch)
        self._progress = progress
        self._images_before = progress.images
        self._last_event = 0.0
        progress.fitting += 1

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        self._progress.report("fit", epochs=epochs, steps=steps, initial_epoch=self._initial_epoch)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        if time.monotonic() - self._last_event >= INTERVAL_S:
            self._last_event = time.monotonic()
            values = numbers(logs)
            self._progress.report("batch", epoch=self._epoch, step=batch, images=self._images, **values)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        self._progress.report("epoch", epoch=epoch, images=self._images, logs=numbers(logs))

    def close(self) -> None:
        """End what is reported of this call of `fit`."""
        self._progress.fitting -= 1
        self._progress.flush()

    @property
    def _images(self) -> int:
        return self._progress.images - self._images_before


def install(report: Report) -> None:
    """Patch Keras in this process so that `report` gets the events of its training."""
    progress, patches = Progress(report), Patches()
    steps = TrainingSteps(lambda examples: [tf.shape(examples)[0]], lambda _, images: progress.count(int(images)))
    steps.install(patches)
    in_each_fit(patches, functools.partial(FitReporter, progress))
    atexit.register(progress.flush)
    progress.flush_periodically()


def in_each_fit(patches: Patches, callback: Callable[[int], FitCallback]) -> None:
    """Add `callback(initial_epoch)` to each `Model.fit`, behind all other callbacks: it sees what they made of the
    metrics."""

    def with_callback(original: Callable) -> Callable:
        @functools.wraps(original)
        def fit(self: tf.keras.Model, *given: Any, callbacks: Any = None, **kwargs: Any) -> tf.keras.callbacks.History:
            added = callback(kwargs.get("initial_epoch", 0))
            args = list(given)
            if len(args) > CALLBACKS_POSITION:
                callbacks, args[CALLBACKS_POSITION] = args[CALLBACKS_POSITION], None
            if isinstance(callbacks, tf.keras.callbacks.CallbackList):
                callbacks.append(added)
                added.set_model(self)
                added.set_params(getattr(callbacks, "params", None) or {})
            else:
                others = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
                callbacks = [*others, added]
            if len(args) > CALLBACKS_POSITION:
                args[CALLBACKS_POSITION] = callbacks
            else:
                kwargs["callbacks"] = callbacks
            try:
                return original(self, *args, **kwargs)
            finally:
                added.close()

        return fit

    patches.replace(tf.keras.Model, "fit", with_callback)


def numbers(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Of what Keras tells a callback, the metrics that are single numbers."""
    return {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}
