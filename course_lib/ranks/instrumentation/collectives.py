"""Log who joins, and which collectives a rank enters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import tensorflow as tf

from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.patches import Patches

_NUMBERS = ("rank", "size", "local_rank", "local_size")


def watch(log: Log, patches: Patches) -> None:
    """Patch Horovod.

    A collective that is called eagerly is logged each time, one in a graph when the graph is traced: its record says
    that every step of this graph enters it.
    """
    import horovod.tensorflow as hvd
    import horovod.tensorflow.functions as functions
    import horovod.tensorflow.keras as hvd_keras
    from horovod.tensorflow import mpi_ops

    def initialised(original: Callable) -> Callable:
        @functools.wraps(original)
        def init(*args: object, **kwargs: object) -> object:
            outcome = original(*args, **kwargs)
            log.note("init", **{name: getattr(mpi_ops, name)() for name in _NUMBERS})
            return outcome

        return init

    def joined(original: Callable) -> Callable:
        @functools.wraps(original)
        def join(*args: object, **kwargs: object) -> object:
            log.note("join")
            return original(*args, **kwargs)

        return join

    def entered(operation: str) -> Callable[[Callable], Callable]:
        def wrap(original: Callable) -> Callable:
            @functools.wraps(original)
            def collective(tensors: object, *args: object, **kwargs: object) -> object:
                several = tensors if isinstance(tensors, (list, tuple)) else [tensors]
                log.note("collective", operation=operation, graph=not tf.executing_eagerly(), **_sizes(several))
                return original(tensors, *args, **kwargs)

            return collective

        return wrap

    init, join = initialised(hvd.init), joined(mpi_ops.join)
    for module in (hvd, hvd_keras, mpi_ops):
        patches.replace(module, "init", lambda _: init)
    for module in (hvd, mpi_ops):
        patches.replace(module, "join", lambda _: join)
    for name, operation in (
        ("_allreduce", "allreduce"),
        ("_grouped_allreduce", "allreduce"),
        ("allgather", "allgather"),
        ("grouped_allgather", "allgather"),
        ("alltoall", "alltoall"),
        ("_reducescatter", "reducescatter"),
        ("_grouped_reducescatter", "reducescatter"),
        ("broadcast", "broadcast"),
        ("broadcast_", "broadcast"),
    ):
        one = entered(operation)(getattr(mpi_ops, name))
        for module in (hvd, mpi_ops, functions):
            if hasattr(module, name):
                patches.replace(module, name, lambda _, one=one: one)


def _sizes(tensors: Iterable[object]) -> dict[str, int]:
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
