"""Log the files to which a rank saves a network."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import h5py
import tensorflow as tf

from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches
from course_lib.system import variables


class Saving:
    """Logs each file to which a network is saved, once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._saved: set[str] = set()

    def note(self, path: object) -> None:
        """Log a save to `path`; ignore arguments that are not paths, such as an open file or an HDF5 group."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        place = os.path.abspath(os.fsdecode(path))
        if place not in self._saved:
            self._saved.add(place)
            self._log.note("save", path=place)

    def method(self, original: Callable) -> Callable:
        """Wrap a method of Keras or TensorFlow that saves to its first argument."""

        @functools.wraps(original)
        def save(model: object, *args: object, **kwargs: object) -> object:
            self.note(args[0] if args else next((kwargs[name] for name in kwargs if name.startswith("file")), None))
            return original(model, *args, **kwargs)

        return save

    def hdf5(self, original: Callable) -> Callable:
        """Wrap the constructor of `h5py.File`."""

        @functools.wraps(original)
        def init(file: object, name: object, mode: str = "r", *args: object, **kwargs: object) -> None:
            if mode != "r":
                self.note(name)
            original(file, name, mode, *args, **kwargs)

        return init


def watch(log: Log, patches: Patches) -> None:
    """Patch the functions of Keras, TensorFlow and h5py that save networks."""
    log.note("start", weights=os.path.abspath(os.environ.get(variables.WEIGHTS, "weights.h5")))
    saving = Saving(log)
    for owner, names in ((tf.keras.Model, ("save", "save_weights")), (tf.train.Checkpoint, ("save", "write"))):
        for name in names:
            patches.replace(owner, name, saving.method)
    patches.replace(h5py.File, "__init__", saving.hdf5)
