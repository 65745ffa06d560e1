"""Log who joins, and which collectives a rank enters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import tensorflow as tf

from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches

NUMBERS = ("rank", "size", "local_rank", "local_size")
TENSORS = ("tensor", "tensors", "variables")  # what Horovod calls the first argument of a collective
OPERATIONS = {  # function of `mpi_ops` → the collective that it enters
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
    """Patch Horovod.

    A collective that is called eagerly is logged each time, one in a graph when the graph is traced: its record says
    that every step of this graph enters it.
    """
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras
    from horovod.tensorflow import functions, mpi_ops

    replacements = {"init": _logged_init(hvd.init, log), "join": _logged(mpi_ops.join, lambda: log.note("join"))}
    for name, operation in OPERATIONS.items():
        replacements[name] = _logged(getattr(mpi_ops, name), functools.partial(_note_collective, log, operation))
    for module in (hvd, hvd_keras, mpi_ops, functions):
        for name, replacement in replacements.items():
            # hvd_keras has functions of its own for arrays, which call these.
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
    """`original`, before which `note` is called with the same arguments."""

    @functools.wraps(original)
    def logged(*args: object, **kwargs: object) -> object:
        note(*args, **kwargs)
        return original(*args, **kwargs)

    return logged


def _note_collective(log: Log, operation: str, *args: object, **kwargs: object) -> None:
    """Log a collective, whose tensors are its first argument."""
    tensors = args[0] if args else next((kwargs[name] for name in TENSORS if name in kwargs), ())
    several = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    log.note("collective", operation=operation, graph=not tf.executing_eagerly(), **_sizes(several))


def _sizes(tensors: Iterable[tf.Tensor]) -> dict[str, int]:
    """How many numbers the tensors hold, how many of them are of floating point, and how many bytes they take."""
    values = floating = octets = 0
    for tensor in tensors:
        if not hasattr(tensor, "dtype"):
            tensor = tf.convert_to_tensor(tensor)
        elements, kind = tf.TensorShape(tensor.shape).num_elements() or 0, tf.as_dtype(tensor.dtype)
        values += elements
        floating += elements * kind.is_floating
        octets += elements * kind.size
    return {"values": values, "floating": floating, "bytes": octets}
