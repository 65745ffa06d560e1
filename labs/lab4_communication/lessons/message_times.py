"""Messages and all-reduces timed on real ranks. Each function is called on every rank, after `hvd.init()`.

The sizes take turns, sweep after sweep, so that what else the machine does in a moment falls on all of them. Each is
sent twice and timed once: what comes right after a large one finds its memory and the other rank's thread cold.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd

from course_lib.cost.allreduce import Link

WARM_UP_SWEEPS = 5  # that are not counted
KIB = 1024
# Supersteps (bytes, pieces): the first three are fitted on, the others predicted.
STEPS = ((16 * KIB, 1), (64 * KIB, 1), (256 * KIB, 1), (128 * KIB, 1), (128 * KIB, 16))


def bsp(sizes: Sequence[int], seconds: Sequence[float], computing: float) -> tuple[float, float]:
    """g in seconds for each byte and l in seconds of supersteps of w + g h + l, by least squares on relative errors."""
    seconds = np.asarray(seconds, float)
    columns = np.stack([np.asarray(sizes, float), np.ones(len(seconds))], 1) / seconds[:, None]
    g, l = np.linalg.lstsq(columns, (seconds - computing) / seconds, rcond=None)[0]  # noqa: E741
    return float(g), float(l)


def compare(computing: float, seconds: Sequence[float], link: Link) -> pd.DataFrame:
    """Measured supersteps of STEPS beside both models, in µs.

    Args:
        computing: w, seconds; seconds: of each superstep; link: α and β of a bare message.
    """
    g, l = bsp([size for size, _ in STEPS[:3]], seconds[:3], computing)  # noqa: E741
    rows = [
        {
            "bytes": size,
            "writes": pieces,
            "used": "fit" if place < 3 else "test",
            "measured, µs": 1e6 * seconds[place],
            "BSP, µs": 1e6 * (computing + g * size + l),
            "α–β, µs": 1e6 * (computing + (pieces + 1) * link.alpha + link.beta * (size + 1)),
        }
        for place, (size, pieces) in enumerate(STEPS)
    ]
    return pd.DataFrame(rows).assign(w=1e6 * computing, g=1e9 * g, l=1e6 * l)


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

    seconds = np.full((sweeps, len(sizes)), np.nan)
    with _connected() as wire:
        for sweep in range(-WARM_UP_SWEEPS, sweeps if wire else -WARM_UP_SWEEPS):
            for place, size in enumerate(sizes):
                for _ in range(2):
                    seconds[max(sweep, 0), place] = _there_and_back(wire, size, begins=hvd.rank() == 0) / 2
    return seconds


def supersteps(steps: Sequence[tuple[int, int]], sweeps: int) -> tuple[np.ndarray, np.ndarray]:
    """Supersteps of ranks 0 and 1 of one host: each computes, then both send, then each waits until both are done.

    Args:
        steps: (bytes, pieces): what each rank sends to the other in all, and in how many writes.

    Returns:
        seconds of the computation alone, [sweeps], and of the supersteps, [sweeps, steps], as this rank sees them.
    """
    alone, seconds = np.full(sweeps, np.nan), np.full((sweeps, len(steps)), np.nan)
    numbers = np.ones(100_000, np.float32)
    with _connected() as wire:
        for sweep in range(-WARM_UP_SWEEPS, sweeps if wire else -WARM_UP_SWEEPS):
            for place, (size, pieces) in enumerate(steps):
                for _ in range(2):
                    began = time.perf_counter()
                    _compute(numbers)
                    computed = time.perf_counter()
                    _exchange(wire, size, pieces)
                    _exchange(wire, 1, 1)  # the barrier
                    alone[max(sweep, 0)] = computed - began
                    seconds[max(sweep, 0), place] = time.perf_counter() - began
    return alone, seconds


@contextmanager
def _connected() -> Iterator[socket.socket | None]:
    """A TCP connection between ranks 0 and 1; the other ranks get none, and wait at the end."""
    import horovod.tensorflow as hvd

    rank = hvd.rank()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = hvd.broadcast_object(listener.getsockname()[1], root_rank=0)
        if rank < 2:
            with socket.create_connection(("127.0.0.1", port)) if rank else listener.accept()[0] as wire:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield wire
        else:
            yield None
        hvd.allreduce(np.zeros(1, np.float32), name="end")


def _compute(numbers: np.ndarray) -> None:
    for _ in range(20):
        numbers @ numbers


def _exchange(wire: socket.socket, size: int, pieces: int) -> None:
    """Send `size` bytes in `pieces` writes and receive as many, at the same time."""
    payload, space, piece = memoryview(bytes(size)), memoryview(bytearray(size)), -(-size // pieces)
    sent = got = 0
    while sent < size or got < size:
        readable, writable, _ = select.select([wire] if got < size else [], [wire] if sent < size else [], [])
        if writable:
            sent += wire.send(payload[sent : min(size, (sent // piece + 1) * piece)], socket.MSG_DONTWAIT)
        if readable:
            got += wire.recv_into(space[got:])


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
