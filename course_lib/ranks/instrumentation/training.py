"""Watch training: which examples each step reads, how many updates are made, what the weights become."""

from __future__ import annotations

import atexit
import builtins
import functools
import hashlib
import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from course_lib.ranks import channel, events
from course_lib.ranks.instrumentation import gradients, joining, saving
from course_lib.ranks.instrumentation.patches import Patches
from course_lib.ranks.instrumentation.recorder import Recorder

DIGEST_INTERVAL_UPDATES = 100  # between two digests of the weights; there are more at the beginning
RATE_INTERVAL_S = 1.0  # between two looks at the learning rate: a schedule computes it each time
KEPT_PART = 8  # the weights are kept again where so much of all updates has come since


class Training(events.Progress):
    """What this rank has trained so far. TensorFlow calls `step` and `update` from threads of its own."""

    def __init__(self, recorder: Recorder, replaced: Callable[[], list[str]]) -> None:
        super().__init__()
        self.recorder = recorder
        self.updates = self.values = self.moved = 0
        self.examples_with_gradient = 0
        self.updates_without_gradient = 0  # since the last one of the same variables
        self.model: object = None  # the outermost one that was trained last
        self.replaced = replaced
        self._flushing = threading.Lock()
        self._cuda = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._unwritten: list[np.ndarray] = []
        self._applied: list[tuple[int, ...]] = []
        self._times: Counter[int] = Counter()  # variable → its updates
        self._sizes: dict[int, int] = {}
        self._learned_by: dict[int, int] = {}  # variables that are updated together → examples in gradients by then
        self._seen: dict[int, tuple[int, int]] = {}  # model → updates before its last step, fingerprint of its weights
        self._moments = np.zeros(6)  # of x and y, see `used`: number, sums of x, y, x², y², xy
        self._shown = np.zeros(0)
        self._compared: list[tuple[np.ndarray, np.ndarray]] = []  # not yet in the moments
        self._looks: set[str] = set()
        self._kept: list[np.ndarray] = []  # the network's weights during training, not long before its end
        self._written = self._digested = self._saved = self._kept_at = 0  # steps and updates by then

    def step(self, model: object, brightness: np.ndarray, weights: np.ndarray) -> None:
        """A training step begins, on examples of this brightness, with weights that have this fingerprint."""
        self.model, self._shown = model, brightness
        if self._seen and id(model) not in self._seen:
            self.look("trains more than one network")
        updates, before = self._seen.get(id(model), (0, int(weights)))
        if id(model) in self._seen and not self.updates:  # a loop that changes the weights itself
            with self._lock:
                self._applied.append((before, 0, int(weights), 0))
        self._seen[id(model)] = self.updates, int(weights)
        if self.updates and updates == self.updates and before != int(weights):
            self.moved += 1
        if self.steps == 0:
            joining.note_cuda_choice(self.recorder, self._cuda)
        # Before the step: the weights are those after the last update, on every rank alike.
        done = self.updates or self.steps
        if done != self._digested and (done % DIGEST_INTERVAL_UPDATES == 0 or done & (done - 1) == 0):
            self._digested = done
            # Of the weights as the graph read them: by now an optimizer may let them decay. Of a model that this very
            # step builds there is nothing to read in the graph.
            name = f"{int(weights):x}" if weights else digest(_values(model.trainable_variables))
            self.recorder.note("digest", updates=self.updates, steps=self.steps, digest=name)
        if done - self._kept_at > done // KEPT_PART:
            self._kept_at, self._kept = done, _values(model.weights)
        with self._lock:
            self.steps += 1
            self.images += len(brightness)
            self._unwritten.append(brightness)

    def came(self, examples: int) -> None:
        """Gradients of so many examples have gone through the network."""
        with self._lock:
            self.examples_with_gradient += int(examples)

    def used(self, given: np.ndarray, shown: np.ndarray | None = None) -> None:
        """Brightness of what the network's first layer with weights was given, and of the examples that the network
        was given; None for those of the last step."""
        shown = self._shown if shown is None else shown
        if shown.shape != given.shape:
            given = np.zeros_like(shown)  # other examples: they count as unlike
        with self._lock:
            self._compared.append((shown, given))

    @property
    def input_correlation(self) -> float:
        """Correlation of the two over all examples; 0 where one of them is the same for all, or nothing is known."""
        with self._lock:
            compared, self._compared = self._compared, []
        if compared:
            x, y = (np.concatenate(values).astype(float) for values in zip(*compared))
            self._moments += [len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y]
        number, x, y, xx, yy, xy = self._moments
        spread = (number * xx - x * x) * (number * yy - y * y)
        return float((number * xy - x * y) / spread**0.5) if spread > 0 else 0.0

    def update(self, sizes: Mapping[int, int], *fingerprints: np.ndarray) -> None:
        """An optimizer has changed variables: `sizes` has their numbers of values; fingerprints of the weights before,
        of what it applied, and of the weights after."""
        together = hash(frozenset(sizes))
        with self._lock:
            self.updates += 1
            self.values += sum(sizes.values())
            self.updates_without_gradient += self._learned_by.get(together) == self.examples_with_gradient
            self._learned_by[together] = self.examples_with_gradient
            self._times.update(sizes.keys())
            self._sizes.update(sizes)
            self._applied.append((*map(int, fingerprints), together))

    @property
    def values_updated_often(self) -> int:
        """Values that are updated at least half as often as those that are updated most."""
        most = max(self._times.values(), default=0)
        return sum(self._sizes[one] for one, times in self._times.items() if 2 * times >= most)

    def look(self, what: str) -> None:
        """Have a person look at this."""
        if what not in self._looks:
            self._looks.add(what)
            self.recorder.note("look", what=what)

    def flush(self) -> None:
        """Write down, and tell, what is new."""
        with self._flushing:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            steps, self._unwritten = self._unwritten, []
            applied, self._applied = self._applied, []
        self.recorder.append(steps, applied)
        if self.steps + self.updates != self._written:
            self._written = self.steps + self.updates
            counts = {"steps": self.steps, "images": self.images, "updates": self.updates, "values": self.values}
            counts.update(
                moved=self.moved,
                examples_with_gradient=self.examples_with_gradient,
                updates_without_gradient=self.updates_without_gradient,
                values_updated_often=self.values_updated_often,
            )
            alike = self.input_correlation
            if self._moments[0]:
                counts["input_correlation"] = round(alike, 3)
            self.recorder.progress(**counts)
        super().flush()
        if replaced := self.replaced():
            self.recorder.tampered(*replaced)

    def save_weights(self) -> None:
        """Write down the weights, where training has changed them since the last time."""
        if self.model is None or self._saved == self.steps + self.updates:
            return
        self._saved = self.steps + self.updates
        trained = {id(variable) for variable in self.model.trainable_variables}
        variables = self.model.weights
        self.recorder.save_weights(_values(variables), [id(variable) in trained for variable in variables], self._kept)

    def end(self) -> None:
        """The script has ended."""
        with self._flushing:  # so that what another thread writes is no later
            self._flush()
            if self.model is not None:
                self.save_weights()
            self.recorder.tampered()
            self.recorder.note("end")


def watch(tf: object, recorder: Recorder, patches: Patches) -> None:
    """Patch Keras's models and optimizers, and begin to look at what becomes of all patches."""
    training = Training(recorder, list)
    _watch_steps(tf, training, patches)
    _watch_updates(tf, training, patches)
    events.report_fits(tf, patches.put, training)
    _watch_fits(tf, training, patches)
    for owner, names in (
        (time, ("time", "monotonic", "perf_counter", "sleep")),
        (builtins, ("open",)),
        (json, ("dumps",)),
        (np, ("concatenate", "ascontiguousarray", "array")),
        (hashlib, ("sha256",)),
        (channel, ("tell",)),
        (tf.keras.Model, ("evaluate", "compile", "train_on_batch", "make_train_function")),
        (tf, ("numpy_function", "reduce_mean")),
    ):
        patches.guard(owner, *names)
    classes = (events.Progress, Training, Recorder, Patches)
    modules = [sys.modules[one.__module__] for one in classes]
    patches.guard_all(gradients, joining, saving, *modules, *classes, gradients.Gradients)
    training.replaced = patches.seal()
    atexit.register(training.end)
    events.flush_for_ever(training)


def _watch_steps(tf: object, training: Training, patches: Patches) -> None:
    """Note the examples of each training step."""

    def measured(model: object, examples: object) -> list:
        # Some models have no weights before their first batch.
        return [brightness(examples), fingerprint(model.trainable_variables if model.built else ())]

    def brightness(examples: object) -> object:
        examples = tf.cast(examples, tf.float32)
        number = tf.shape(examples)[0]
        if examples.shape.rank != 4:
            return tf.reduce_mean(tf.reshape(examples, [number, -1]), axis=1)
        # The middle of images counts most: standardised one by one, all have the mean 0.
        height, width, channels = tf.unstack(tf.shape(examples)[1:])
        rows = tf.reshape(examples, [number, height, -1])
        across = tf.reduce_mean(tf.reduce_mean(rows, axis=2) * window(height), axis=1)
        down = tf.reduce_mean(tf.reduce_mean(rows, axis=1) * tf.repeat(window(width), channels), axis=1)
        return (across + down) / 2

    def window(length: object) -> object:
        """Weights of rows or columns, in the mean 1, alike from either end: a mirrored image stays as bright."""
        half = tf.sin(np.pi * (tf.range(length, dtype=tf.float32) + 0.5) / tf.cast(length, tf.float32))
        return (half + half[::-1]) / tf.reduce_sum(2 * half) * tf.cast(length, tf.float32)

    sceptic = gradients.Gradients(training.look, training.came, training.used, brightness)
    events.on_training_steps(tf, patches.put, measured, training.step, sceptic)
    sceptic.watch(tf, patches)


def _watch_updates(tf: object, training: Training, patches: Patches) -> None:
    numbers: defaultdict[object, int] = defaultdict(lambda: len(numbers))  # of variables, in the order of their updates

    def watched(original: Callable) -> Callable:
        @functools.wraps(original)
        def apply_gradients(self: object, grads_and_vars: Iterable, *args: object, **kwargs: object) -> object:
            pairs = list(grads_and_vars)
            known = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
            sizes = {numbers[variable.ref()]: variable.shape.num_elements() for _, variable in known}
            if events.in_xla(tf):
                return original(self, pairs, *args, **kwargs)
            before = fingerprint(variable for _, variable in known)
            applied = fingerprint(gradient for gradient, _ in known)
            outcome = original(self, pairs, *args, **kwargs)
            found = [before, applied, fingerprint(variable for _, variable in known)]
            if tf.executing_eagerly():
                training.update(sizes, *(one.numpy() for one in found))
            else:
                tf.numpy_function(functools.partial(training.update, sizes), found, [], stateful=True)
            return outcome

        return apply_gradients

    for owner in (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer):
        patches.put(owner, "apply_gradients", watched)


def _watch_fits(tf: object, training: Training, patches: Patches) -> None:
    """Note the epochs of each `Model.fit`, its first step and its learning rate."""
    recorder = training.recorder

    class Watch(tf.keras.callbacks.Callback):
        def __init__(self, initial_epoch: int) -> None:
            super().__init__()
            self._supports_tf_logs = True  # no copy from the device at each step
            self._images_before = training.images
            self._batches = self._steps = 0  # of this epoch, of this fit
            self._last_rate = 0.0  # when it was noted
            self._rates: list[float] = []

        def on_train_begin(self, logs: object = None) -> None:
            self._rates.append(self._rate())
            recorder.note("fit", epochs=self.params.get("epochs"), steps=self.params.get("steps"))

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self._batches, self._first = 0, training.steps

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            self._steps += 1
            self._batches += 1
            if self._steps == 1:
                # Only now has every model its weights: some are built by their first batch.
                recorder.note(
                    "first-step",
                    digest=digest(_values(self.model.trainable_variables)),
                    trainable=len(self.model.trainable_variables),
                    weights=len(self.model.weights),
                )
            if time.monotonic() - self._last_rate >= RATE_INTERVAL_S:
                self._last_rate = time.monotonic()
                self._rates.append(self._rate())

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            self._rates.append(self._rate())
            images, steps = training.images - self._images_before, self._batches
            metrics = events.numbers(logs)
            recorder.note("epoch", epoch=epoch, images=images, logs=metrics, first=self._first, steps=steps)

        def close(self) -> None:
            if not self._steps:
                return
            training.flush()
            training.save_weights()
            recorder.note("fit-end", learning_rate=max(self._rates, default=None))

        def _rate(self) -> float:
            return float(tf.convert_to_tensor(self.model.optimizer.learning_rate))

    events.in_each_fit(tf, patches.put, Watch)


def fingerprint(tensors: Iterable) -> object:
    """A number of all bits of the tensors, int64 []."""
    import tensorflow as tf

    flat = tf.constant([-1])
    parts = [tf.reshape(tf.cast(tensor, tf.float32), flat) for tensor in tensors]
    if not parts:
        return tf.constant(0, tf.int64)
    code = tf.raw_ops.Fingerprint(data=tf.concat(parts, 0)[None], method="farmhash64")
    return tf.bitcast(code, tf.int64)[0]


def digest(weights: Iterable[np.ndarray]) -> str:
    """A short name for the bits of weights."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in weights)).hexdigest()[:16]


def _values(variables: Iterable) -> list[np.ndarray]:
    return [variable.numpy() for variable in variables]
