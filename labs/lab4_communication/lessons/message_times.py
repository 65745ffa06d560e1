"""Messages and all-reduces timed on real ranks. Each function is called on every rank, after `hvd.init()`.

The sizes take turns, sweep after sweep, so that what else the machine does in a moment falls on all of them. Each is
sent twice and timed once: what comes right after a large one finds its memory and the other rank's thread cold.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

import numpy as np

WARM_UP_SWEEPS = 5  # that are not counted


def all_reduces(sizes: Sequence[int], sweeps: int) -> np.ndarray:
    """Seconds of Horovod's all-reduces, one after the other, as this rank sees them: [sweeps, sizes].

    Args:
        sizes: bytes of float32 tensors, multiples of 4.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    tensors = [tf.ones(size // 4) for size in sizes]
    seconds = np.empty((sweeps, len(sizes)))
    for sweep in range(-WARM_UP_SWEEPS, sweeps):
        for place, tensor in enumerate(tensors):
            for _ in range(2):
                began = time.perf_counter()
                hvd.allreduce(tensor, op=hvd.Sum, name=f"bytes.{sizes[place]}")
                seconds[max(sweep, 0), place] = time.perf_counter() - began
    return seconds


def messages(sizes: Sequence[int], sweeps: int) -> np.ndarray:
    """Seconds of a bare TCP message between ranks 0 and 1 of one host, half of there and back: [sweeps, sizes].

    The other ranks wait, and return NaN.
    """
    import horovod.tensorflow as hvd

    rank = hvd.rank()
    seconds = np.full((sweeps, len(sizes)), np.nan)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = hvd.broadcast_object(listener.getsockname()[1], root_rank=0)
        if rank < 2:
            with socket.create_connection(("127.0.0.1", port)) if rank else listener.accept()[0] as wire:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for sweep in range(-WARM_UP_SWEEPS, sweeps):
                    for place, size in enumerate(sizes):
                        for _ in range(2):
                            seconds[max(sweep, 0), place] = _there_and_back(wire, size, begins=rank == 0) / 2
        hvd.allreduce(np.zeros(1, np.float32), name="end")
    return seconds


def _there_and_back(wire: socket.socket, size: int, begins: bool) -> float:
    payload, space = bytes(size), memoryview(bytearray(size))
    began = time.perf_counter()
    if begins:
        wire.sendall(payload)
    got = 0
    while got < size:
        got += wire.recv_into(space[got:])
    if not begins:
        wire.sendall(payload)
    return time.perf_counter() - began
