"""Log which files a rank saves a network to."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import h5py
import tensorflow as tf

from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.patches import Patches
from course_lib.system import variables


def watch(log: Log, patches: Patches) -> None:
    """Patch what Keras, TensorFlow and h5py save networks with."""
    log.note("start", weights=os.path.abspath(os.environ.get(variables.WEIGHTS, "weights.h5")))
    saved: set[str] = set()

    def note(path: object) -> None:
        try:
            place = os.path.abspath(os.fsdecode(path))
        except TypeError:
            return  # not a path: an open file, a group of another HDF5 file
        if place not in saved:
            saved.add(place)
            log.note("save", path=place)

    def watched(original: Callable) -> Callable:
        @functools.wraps(original)
        def saving(self: object, *args: object, **kwargs: object) -> object:
            note(args[0] if args else next((kwargs[name] for name in kwargs if name.startswith("file")), None))
            return original(self, *args, **kwargs)

        return saving

    def hdf5(original: Callable) -> Callable:
        @functools.wraps(original)
        def __init__(self: object, name: object, mode: str = "r", *args: object, **kwargs: object) -> None:
            if mode != "r":
                note(name)
            original(self, name, mode, *args, **kwargs)

        return __init__

    for owner, names in ((tf.keras.Model, ("save", "save_weights")), (tf.train.Checkpoint, ("save", "write"))):
        for name in names:
            patches.replace(owner, name, watched)
    patches.replace(h5py.File, "__init__", hdf5)
