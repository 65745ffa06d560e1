"""Hogwild: processes that update the same weights in shared memory, with a lock around each update or without one.

To count what gets lost, every update adds 1 to a counter beside each weight that it touches, in the same way: read,
add, write back. What two processes add to a counter at the same time is counted once. So what is missing in the end
was lost: of the counters exactly, and of the weights about as much.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from labs.lab6_beyond_synchronous.lessons import apart

WAYS = ("alone", "locked", "lock-free")


@dataclass(frozen=True, eq=False)
class Outcome:
    """A run: the weights; updates in a second; the share of what was added to the counters and is missing in them."""

    weights: np.ndarray
    per_second: float
    lost: float


def run(way: str, draw: Callable[..., Any], settings: dict[str, Any], epochs: int = 1) -> Outcome:
    """Go through all examples `epochs` times in a random order: one process ("alone"), or two that share the examples.

    Args:
        way: "alone", "locked" (an update holds the lock from its first reading to its last writing) or "lock-free".
        draw, settings: draw(**settings) → a problem, as in `ratings`; each process draws the same one.

    Raises:
        CourseError: where a process died.
    """
    return apart.call("the run on shared memory", _share, way, draw, settings, epochs)


def _share(way: str, draw: Callable[..., Any], settings: dict[str, Any], epochs: int) -> Outcome:
    problem, number = draw(**settings), 1 if way == "alone" else 2
    lock = multiprocessing.get_context("spawn").Lock() if way == "locked" else None
    with _shared(problem.size) as (memory, weights, count):
        weights[:] = problem.start()
        tasks = [(lock, memory.name, draw, settings, worker, number, epochs) for worker in range(number)]
        with apart.Workers(_work, tasks) as workers:
            for worker in range(number):
                workers.receive(worker)  # "ready"
            memory.unlink()  # all have it open: from now on it vanishes with them, however they end
            for worker in range(number):
                workers.send(worker, "go")
            done = [workers.receive(worker) for worker in range(number)]
        updates, seconds, touched = zip(*done)
        return Outcome(weights.copy(), sum(updates) / max(seconds), 1 - float(count.sum()) / sum(touched))


@contextlib.contextmanager
def _shared(size: int, name: str | None = None) -> Iterator[tuple[SharedMemory, np.ndarray, np.ndarray]]:
    """Shared memory, made or (with a name) opened: itself, weights [size], counters int64 [size], at first all 0."""
    memory = SharedMemory(name, create=name is None, size=16 * size)
    try:
        yield memory, np.ndarray(size, np.float64, memory.buf), np.ndarray(size, np.int64, memory.buf, 8 * size)
    finally:
        with contextlib.suppress(BufferError):  # there are arrays in it: then it is closed with the process
            memory.close()


def _work(
    socket: Connection, lock: Any, name: str, draw: Callable, settings: dict, worker: int, workers: int, epochs: int
) -> None:
    problem = draw(**settings)
    order = np.concatenate([np.random.default_rng(epoch).permutation(problem.examples) for epoch in range(epochs)])
    mine, step, touched = order[worker::workers].tolist(), problem.step, 0
    with _shared(problem.size, name) as (_, weights, count):
        step(weights.copy(), count.copy(), mine[0])  # the first call takes longer
        socket.send("ready")
        socket.recv()  # "go"
        began = time.perf_counter()
        if lock is None:
            for example in mine:
                touched += step(weights, count, example)
        else:
            for example in mine:
                with lock:
                    touched += step(weights, count, example)
        socket.send((len(mine), time.perf_counter() - began, touched))
