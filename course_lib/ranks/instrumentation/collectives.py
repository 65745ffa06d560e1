"""Log a rank's calls of `hvd.init`, `hvd.join` and the collectives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import tensorflow as tf

from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches

NUMBERS = ("rank", "size", "local_rank", "local_size")
TENSORS = ("tensor", "tensors", "variables")  # Horovod's names of the first argument of a collective
OPERATIONS = {  # function of `mpi_ops` → collective
    "_allreduce": "allreduce",
    "_grouped_allreduce": "allreduce",
    "allgather": "allgather",
    "grouped_allgather": "allgather",
    "alltoall": "alltoall",
    "_reducescatter": "reducescatter",
    "_grouped_reducescatter": "reducescatter",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
}


def watch(log: Log, patches: Patches) -> None:
    """Patch Horovod so that it logs the calls.

    An eager collective is logged at each call. A collective in a graph is logged once, when the graph is traced; every
    step of the graph executes it.
    """
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras
    from horovod.tensorflow import functions, mpi_ops

    replacements = {"init": _logged_init(hvd.init, log), "join": _logged(mpi_ops.join, lambda: log.note("join"))}
    for name, operation in OPERATIONS.items():
        replacements[name] = _logged(getattr(mpi_ops, name), functools.partial(_note_collective, log, operation))
    for module in (hvd, hvd_keras, mpi_ops, functions):
        for name, replacement in replacements.items():
            # hvd_keras has its own functions for arrays, which call these.
            if hasattr(module, name) and (name == "init" or module is not hvd_keras):
                patches.put(module, name, replacement)


def _logged_init(original: Callable, log: Log) -> Callable:
    from horovod.tensorflow import mpi_ops

    @functools.wraps(original)
    def init(*args: object, **kwargs: object) -> object:
        returned = original(*args, **kwargs)
        log.note("init", **{name: getattr(mpi_ops, name)() for name in NUMBERS})
        return returned

    return init


def _logged(original: Callable, note: Callable) -> Callable:
    """Wrap `original` so that `note` is called first, with the same arguments."""

    @functools.wraps(original)
    def logged(*args: object, **kwargs: object) -> object:
        note(*args, **kwargs)
        return original(*args, **kwargs)

    return logged


def _note_collective(log: Log, operation: str, *args: object, **kwargs: object) -> None:
    """Log a call of a collective; its first argument has the tensors."""
    tensors = args[0] if args else next((kwargs[name] for name in TENSORS if name in kwargs), ())
    several = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    log.note("collective", operation=operation, graph=not tf.executing_eagerly(), **_sizes(several))


def _sizes(tensors: Iterable[tf.Tensor]) -> dict[str, int]:
    """The number of values in the tensors, how many of them are floating-point, and their bytes."""
    values = floating = nbytes = 0
    for tensor in tensors:
        if not hasattr(tensor, "dtype"):
            tensor = tf.convert_to_tensor(tensor)
        elements, kind = tf.TensorShape(tensor.shape).num_elements() or 0, tf.as_dtype(tensor.dtype)
        values += elements
        floating += elements * kind.is_floating
        nbytes += elements * kind.size
    return {"values": values, "floating": floating, "bytes": nbytes}
