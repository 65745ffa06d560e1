"""Watch who joins and who leaves early, which GPU a rank keeps, and how much it broadcasts."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from course_lib.ranks.instrumentation.patches import Patches
from course_lib.ranks.instrumentation.recorder import Recorder

MOST_SLEEPS = 3  # of Horovod's threads, others have slept 9 times and more when it is initialised
PATIENT = 19  # the niceness of one that others need not wait for
_NAMES = ("rank", "size", "local_rank", "local_size")


def watch(tf: object, recorder: Recorder, patches: Patches, fakes: int) -> None:
    """Patch Horovod and TensorFlow's choice of devices."""
    _watch_init(recorder, patches)
    _watch_broadcasts(recorder, patches)
    _watch_gpus(tf, recorder, patches, fakes)


def _watch_init(recorder: Recorder, patches: Patches) -> None:
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras
    from horovod.tensorflow import mpi_ops

    original = hvd.init
    timeline = os.environ.get("HOROVOD_TIMELINE")

    @functools.wraps(original)
    def init(*args: object, **kwargs: object) -> object:
        if timeline is not None:
            os.environ["HOROVOD_TIMELINE"] = timeline  # evidence: a script may not send it elsewhere
        before = _threads()
        outcome = original(*args, **kwargs)
        _let_others_first(_threads() - before)
        atexit.register(write_all)  # after Horovod's own shutdown was registered, so before it
        recorder.note("init", **{name: getattr(mpi_ops, name)() for name in _NAMES})
        return outcome

    stop_timeline, is_initialized = mpi_ops.stop_timeline, mpi_ops.is_initialized

    def write_all() -> None:
        """Wait until the timeline is written: what its thread has not yet written when Horovod ends is lost."""
        if is_initialized():
            stop_timeline()

    def leave(original: Callable) -> Callable:
        @functools.wraps(original)
        def shutdown() -> None:
            write_all()
            original()

        return shutdown

    def join(original: Callable) -> Callable:
        @functools.wraps(original)
        def joined(*args: object, **kwargs: object) -> object:
            recorder.note("join")
            return original(*args, **kwargs)

        return joined

    joined, shutdown = join(mpi_ops.join), leave(mpi_ops.shutdown)
    for module in (hvd, mpi_ops):
        patches.put(module, "join", lambda _: joined)
    for module in (hvd, hvd_keras, mpi_ops):
        patches.put(module, "init", lambda _: init)
        patches.put(module, "shutdown", lambda _: shutdown)
        patches.guard(module, *_NAMES, "is_initialized", "allreduce", "broadcast", "broadcast_variables")
        patches.guard(module, "_allreduce", "_grouped_allreduce", "DistributedOptimizer", "DistributedGradientTape")


def _threads() -> set[int]:
    return set(map(int, os.listdir("/proc/self/task")))


def _let_others_first(threads: set[int]) -> None:
    """Have the one of Horovod's threads that writes the timeline, if there is one, wait for the core.

    Between two lines it offers the core to others again and again, which costs a rank that has one core a thirtieth of
    it. It hardly ever sleeps, while the others have met those of other ranks.
    """
    for one in threads:
        with contextlib.suppress(OSError):  # it has ended
            status = Path(f"/proc/self/task/{one}/status").read_text()
            sleeps = int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])
            if "\nState:\tR" in status and sleeps <= MOST_SLEEPS:
                os.setpriority(os.PRIO_PROCESS, one, PATIENT)


def _watch_broadcasts(recorder: Recorder, patches: Patches) -> None:
    """Note the bytes of each broadcast that is asked for; rank 0's timeline has the names and times, not the sizes."""
    from horovod.tensorflow import mpi_ops

    def size(tensor: object) -> int:
        elements = tensor.shape.num_elements() if hasattr(tensor, "shape") else np.size(tensor)
        return (elements or 0) * getattr(getattr(tensor, "dtype", None), "size", 4)

    def watched(original: Callable) -> Callable:
        @functools.wraps(original)
        def broadcast(tensor: object, *args: object, **kwargs: object) -> object:
            recorder.note("broadcast", bytes=size(tensor))
            return original(tensor, *args, **kwargs)

        return broadcast

    def watched_in_place(original: Callable) -> Callable:
        @functools.wraps(original)
        def broadcast_(variables: list, *args: object, **kwargs: object) -> object:
            recorder.note("broadcast", bytes=sum(map(size, variables)))
            return original(variables, *args, **kwargs)

        return broadcast_

    import horovod.tensorflow as hvd
    import horovod.tensorflow.functions as functions

    broadcast, broadcast_ = watched(mpi_ops.broadcast), watched_in_place(mpi_ops.broadcast_)
    for module in (mpi_ops, hvd, functions):
        patches.put(module, "broadcast", lambda _: broadcast)
        patches.put(module, "broadcast_", lambda _: broadcast_)


def _watch_gpus(tf: object, recorder: Recorder, patches: Patches, fakes: int) -> None:
    """Note which GPUs the script keeps for this rank; with `fakes`, let it choose among GPUs that are not there."""
    from tensorflow.python.eager import context

    modules = (tf.config, tf.config.experimental)
    fake = [tf.config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(fakes)]
    kept = list(fake)
    real_list, real_visible, real_set, real_growth = (
        tf.config.list_physical_devices,
        tf.config.get_visible_devices,
        tf.config.set_visible_devices,
        tf.config.experimental.set_memory_growth,
    )

    def list_physical_devices(device_type: str | None = None) -> list:
        devices = list(real_list(device_type))
        return devices + fake if device_type in (None, "GPU") else devices

    def get_visible_devices(device_type: str | None = None) -> list:
        devices = list(real_visible(device_type))
        return devices + kept if device_type in (None, "GPU") else devices

    def set_visible_devices(devices: object, device_type: str | None = None) -> None:
        chosen = [devices] if hasattr(devices, "device_type") else list(devices)
        if device_type in (None, "GPU"):
            late = {"late": True} if context.context()._initialized else {}  # real GPUs could no longer be hidden
            recorder.note("gpus", visible=[d.name for d in chosen if d.device_type == "GPU"], **late)
            kept[:] = [d for d in chosen if d in fake]
        if not fakes:
            real_set(devices, device_type)
        elif device_type is None:
            real_set([d for d in chosen if d not in fake], None)

    def set_memory_growth(device: object, enable: bool) -> None:
        if device not in fake:
            real_growth(device, enable)

    for module in modules:
        for function in (list_physical_devices, get_visible_devices, set_visible_devices, set_memory_growth):
            if hasattr(module, function.__name__):
                patches.put(module, function.__name__, lambda _, function=function: function)


def note_cuda_choice(recorder: Recorder, before: str | None) -> None:
    """Note the GPUs that the script has chosen by CUDA_VISIBLE_DEVICES, where it has."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and chosen != before:
        recorder.note("gpus", visible=[f"GPU:{name.strip()}" for name in chosen.split(",") if name.strip()])
