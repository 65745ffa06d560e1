"""Report a rank's training to the launcher: events `fit`, `batch` and `epoch` of each `Model.fit`, `images` otherwise.

If the launcher asks for it (`RankTask.training_events`), `rank` installs this before the script starts; the script
needs no change. It only counts steps and images; `instrumentation` logs more.
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

INTERVAL_S = 0.2  # minimum time between two events of a rank
CALLBACKS_POSITION = 5  # position of `callbacks` in the arguments of `Model.fit`

Report = Callable[..., None]  # report(kind, **data)


class Progress:
    """Training steps and images of this rank so far. TensorFlow calls `count` from its own threads."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.steps = self.images = 0
        self.fitting = 0  # number of running calls of `fit`, which report other events
        self._lock = threading.Lock()
        self._reported = 0  # number of steps

    def count(self, images: int) -> None:
        """Count a training step on so many images; called when the step begins."""
        with self._lock:
            self.steps += 1
            self.images += images

    def flush(self) -> None:
        """Report new steps, if there are any and no `fit` is running."""
        if self.steps != self._reported:
            self._reported = self.steps
            if not self.fitting:
                self.report("images", images=self.images, steps=self.steps)

    def flush_periodically(self) -> None:
        """Call `flush` every INTERVAL_S in a thread."""
        sleep = time.sleep

        def flush() -> None:
            while True:
                sleep(INTERVAL_S)
                with contextlib.suppress(ValueError):  # files are closed when the process ends
                    self.flush()

        threading.Thread(target=flush, daemon=True).start()


class FitCallback(tf.keras.callbacks.Callback):
    """A callback for `in_each_fit`; `close` is called after the fit, also after an error."""

    def __init__(self, initial_epoch: int) -> None:
        super().__init__()
        self._initial_epoch = initial_epoch
        self._supports_tf_logs = True  # avoids a copy from the device at each step

    def close(self) -> None:
        """Called after the fit."""


class FitReporter(FitCallback):
    """Reports the start of a `Model.fit`, a batch every INTERVAL_S, and each epoch."""

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
        """Called after the fit: report what is new."""
        self._progress.fitting -= 1
        self._progress.flush()

    @property
    def _images(self) -> int:
        return self._progress.images - self._images_before


def install(report: Report) -> None:
    """Patch Keras in this process so that `report` receives the events of the training."""
    progress, patches = Progress(report), Patches()
    steps = TrainingSteps(lambda examples: [tf.shape(examples)[0]], lambda _, images: progress.count(int(images)))
    steps.install(patches)
    in_each_fit(patches, functools.partial(FitReporter, progress))
    atexit.register(progress.flush)
    progress.flush_periodically()


def in_each_fit(patches: Patches, callback: Callable[[int], FitCallback]) -> None:
    """Add `callback(initial_epoch)` to each `Model.fit`, after all other callbacks, which may change the metrics."""

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
    """The scalar metrics in a callback's logs, as floats."""
    return {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}
