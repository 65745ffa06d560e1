"""Watch which files a rank saves a network to."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable

from course_lib.ranks import environment
from course_lib.ranks.instrumentation.patches import Patches
from course_lib.ranks.instrumentation.recorder import Recorder

_WRITING = os.O_WRONLY | os.O_RDWR
_MOVING = ("os.rename", "os.link", "os.symlink", "os.truncate")
_COMMANDS = {"os.system": 0, "subprocess.Popen": 1}  # event → which of its arguments is the command
_COPYING = re.compile(r"\b(cp|mv|ln|install|rsync)\b")


def watch(tf: object, recorder: Recorder, patches: Patches) -> None:
    """Patch what saves, and listen to what Python itself opens: for writing, the file of the weights.

    What TensorFlow's functions for files, or other programs, copy there is not opened by Python: they are watched too.
    """
    import h5py

    weights = os.path.abspath(os.environ.get(environment.WEIGHTS, "weights.h5"))
    recorder.note("start", weights=weights)
    told: set[str] = set()

    def save(path: object) -> None:
        try:
            place = os.path.abspath(os.fsdecode(path))
        except TypeError:
            return  # not a path: an open file, a group of another HDF5 file
        if place not in told:
            told.add(place)
            recorder.note("save", path=place)

    def watched(original: Callable) -> Callable:
        @functools.wraps(original)
        def saving(self: object, path: object = None, *args: object, **kwargs: object) -> object:
            if path is not None:
                save(path)
                return original(self, path, *args, **kwargs)
            save(next((value for name, value in kwargs.items() if name.startswith("file")), None))
            return original(self, *args, **kwargs)

        return saving

    for owner, name in (
        (tf.keras.Model, "save"),
        (tf.keras.Model, "save_weights"),
        (tf.train.Checkpoint, "save"),
        (tf.train.Checkpoint, "write"),
    ):
        patches.put(owner, name, watched)

    def hdf5(original: Callable) -> Callable:
        @functools.wraps(original)
        def __init__(self: object, name: object, mode: str = "r", *args: object, **kwargs: object) -> None:
            if mode != "r":
                save(name)
            original(self, name, mode, *args, **kwargs)

        return __init__

    patches.put(h5py.File, "__init__", hdf5)

    evidence = os.path.join(os.path.abspath(recorder.folder), "")

    def listen(event: str, args: tuple) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, (str, bytes)) and isinstance(flags, int) and flags & _WRITING:
                changed(path)
        elif event in _MOVING:
            for path in args[:2]:
                if isinstance(path, (str, bytes)):
                    changed(path)
        elif event in _COMMANDS:
            command = _text(args[_COMMANDS[event]])
            if _COPYING.search(command) and (os.path.basename(weights) in command or environment.WEIGHTS in command):
                changed(weights)

    def changed(path: str | bytes | os.PathLike) -> None:
        place = os.path.abspath(os.fsdecode(path))
        if place == weights:
            save(place)
        elif place.startswith(evidence):  # the recorder's own files are open already
            recorder.tampered("the evidence")

    def moving(original: Callable) -> Callable:
        @functools.wraps(original)
        def move(src: object, dst: object, *args: object, **kwargs: object) -> None:
            changed(dst)
            original(src, dst, *args, **kwargs)

        return move

    for name in ("copy", "rename"):
        patches.put(tf.io.gfile, name, moving)
    sys.addaudithook(listen)


def _text(command: object) -> str:
    words = command if isinstance(command, (list, tuple)) else [command]
    return " ".join(os.fsdecode(word) for word in words if isinstance(word, (str, bytes, os.PathLike)))
