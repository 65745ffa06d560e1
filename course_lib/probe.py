"""Record, inside a rank, what a Keras script does: what it initialises, sees, reads, reduces into, saves.

`rank` installs the probe before the script starts; the script needs no change. Two things come of it:
live events for whoever watches (`fit`, `batch`, `epoch`), and evidence in a folder for whoever judges:

    rank-R.jsonl       one record a line: init, gpus, fit, epoch, save
    rank-R.npz         examples: fingerprints (uint64) of the examples of each training step, in order;
                       steps: how many examples each step held; epochs: how many steps each epoch held;
                       weights after training, w0, w1, …

With COURSE_FAKE_GPUS=N the script sees N GPUs that are not there, so that its choice can be checked on a CPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from course_lib import rank

PAUSE = 0.2  # seconds between two `batch` events of a rank


class Recorder:
    """Writes one rank's evidence into `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = next(
            (os.environ[n] for n in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK") if n in os.environ),
            "0",
        )
        self._lines = (folder / f"rank-{number}.jsonl").open("a", buffering=1)
        self._arrays = folder / f"rank-{number}.npz"

    def note(self, kind: str, **data: object) -> None:
        """Append one record."""
        self._lines.write(json.dumps({"kind": kind, **data}) + "\n")

    def keep(self, **arrays: np.ndarray) -> None:
        """Replace the arrays kept of this rank."""
        draft = self._arrays.with_suffix(".tmp")
        with draft.open("wb") as file:
            np.savez(file, **arrays)
        draft.replace(self._arrays)


def install(folder: Path) -> None:
    """Patch TensorFlow, Keras and Horovod in this process so that they report to `folder`."""
    import tensorflow as tf

    recorder = Recorder(folder)
    _watch_init(recorder)
    _watch_gpus(tf, recorder, int(os.environ.get("COURSE_FAKE_GPUS", "0")))
    _watch_saves(tf, recorder)
    _watch_fit(tf, recorder)


def _watch_init(recorder: Recorder) -> None:
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras

    original = hvd.init

    def init(*args: object, **kwargs: object) -> object:
        outcome = original(*args, **kwargs)
        names = ("rank", "size", "local_rank", "local_size")
        recorder.note("init", **{name: getattr(hvd, name)() for name in names})
        return outcome

    hvd.init = hvd_keras.init = init


def _watch_gpus(tf: object, recorder: Recorder, fakes: int) -> None:
    """Note which GPUs the script keeps for this rank; with `fakes`, let it choose among GPUs that are not there."""
    modules = (tf.config, tf.config.experimental)
    fake = [tf.config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(fakes)]
    real_list, real_set, real_growth = (
        tf.config.list_physical_devices,
        tf.config.set_visible_devices,
        tf.config.experimental.set_memory_growth,
    )

    def list_physical_devices(device_type: str | None = None) -> list:
        devices = list(real_list(device_type))
        return devices + fake if device_type in (None, "GPU") else devices

    def set_visible_devices(devices: object, device_type: str | None = None) -> None:
        chosen = [devices] if hasattr(devices, "device_type") else list(devices)
        if device_type in (None, "GPU"):
            recorder.note("gpus", visible=[d.name for d in chosen if d.device_type == "GPU"])
        if not fakes:
            real_set(devices, device_type)

    def set_memory_growth(device: object, enable: bool) -> None:
        if device not in fake:
            real_growth(device, enable)

    for module in modules:
        module.list_physical_devices = list_physical_devices
        module.set_visible_devices = set_visible_devices
        module.set_memory_growth = set_memory_growth


def _watch_saves(tf: object, recorder: Recorder) -> None:
    def watched(original: Callable) -> Callable:
        def save(self: object, path: object, *args: object, **kwargs: object) -> object:
            recorder.note("save", path=os.path.abspath(str(path)))
            return original(self, path, *args, **kwargs)

        return save

    for owner, name in (
        (tf.keras.Model, "save"),
        (tf.keras.Model, "save_weights"),
        (tf.train.Checkpoint, "save"),
    ):
        setattr(owner, name, watched(getattr(owner, name)))


def _watch_fit(tf: object, recorder: Recorder) -> None:
    """Add a callback to each `Model.fit`, and a tap to the data that it trains on."""
    adapter = sys.modules[tf.keras.Model.__module__].data_adapter
    real_fit, real_handler = tf.keras.Model.fit, adapter.get_data_handler
    waiting: list = []  # the watch of the fit that is about to ask for its data

    def fit(self: object, *args: object, callbacks: object = None, **kwargs: object) -> object:
        watch = _watch_class(tf)(recorder, kwargs.get("initial_epoch", 0))
        waiting.append(watch)
        callbacks = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
        try:
            return real_fit(self, *args, callbacks=[*callbacks, watch], **kwargs)
        finally:
            waiting.clear()
            watch.close()

    def get_data_handler(*args: object, **kwargs: object) -> object:
        handler = real_handler(*args, **kwargs)
        if waiting:  # the first handler that `fit` asks for is the one it trains from
            handler._dataset = waiting.pop().tap(handler._dataset)
        return handler

    tf.keras.Model.fit = fit
    adapter.get_data_handler = get_data_handler


def _watch_class(tf: object) -> type:
    class _Watch(tf.keras.callbacks.Callback):
        """Counts and notes while `fit` runs. Last of the callbacks: it sees what the others made of the metrics."""

        def __init__(self, recorder: Recorder, initial_epoch: int) -> None:
            super().__init__()
            self._initial_epoch = initial_epoch
            self._supports_tf_logs = True  # no copy from the device at each step
            self._recorder = recorder
            self._tapped: list[np.ndarray] = []  # may run ahead of training: the pipeline prefetches
            self._epochs: list[int] = []  # steps of each epoch
            self._steps = self._images = 0
            self._told = 0.0
            self._rates: list[float] = []

        def tap(self, dataset: object) -> object:
            def fingerprint(*batch: object) -> object:
                examples = tf.nest.flatten(batch)[0]
                rows = tf.reshape(examples, [tf.shape(examples)[0], -1])
                marks = tf.bitcast(tf.fingerprint(rows), tf.uint64)
                with tf.control_dependencies([tf.numpy_function(self._tapped.append, [marks], [], stateful=True)]):
                    return tf.nest.map_structure(tf.identity, batch if len(batch) > 1 else batch[0])

            return dataset.map(fingerprint)

        def on_train_begin(self, logs: object = None) -> None:
            self._note_fit()

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self._epochs.append(0)
            self._epoch = epoch

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            self._images += len(self._tapped[self._steps]) if self._steps < len(self._tapped) else 0
            self._steps += 1
            self._epochs[-1] += 1
            if self._steps == 1:
                # Only now has every model its weights: some are built by their first batch.
                self._recorder.note(
                    "first-step",
                    digest=_digest(self.model.get_weights()),
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
            self._recorder.note("epoch", **record, steps=self._epochs[-1], digest=_digest(self.model.get_weights()))

        def close(self) -> None:
            if not self._epochs:
                return
            read = self._tapped[: self._steps]
            weights = {f"w{i}": w for i, w in enumerate(self.model.get_weights())}
            self._recorder.note(
                "fit-end", digest=_digest(weights.values()), learning_rate=max(self._rates, default=None)
            )
            self._recorder.keep(
                examples=np.concatenate(read) if read else np.zeros(0, np.uint64),
                steps=np.array([len(r) for r in read], np.int64),
                epochs=np.array(self._epochs, np.int64),
                **weights,
            )

        def _note_fit(self) -> None:
            self._rates.append(self._rate())
            epochs, steps = self.params.get("epochs"), self.params.get("steps")
            rank.tell("fit", epochs=epochs, steps=steps, initial_epoch=self._initial_epoch)
            self._recorder.note("fit", epochs=epochs, steps=steps)

        def _rate(self) -> float:
            return float(tf.convert_to_tensor(self.model.optimizer.learning_rate))

    return _Watch


def _numbers(logs: object) -> dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}


def _digest(weights: object) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in weights)).hexdigest()[:16]
