"""Notebook 7b: more stages than there are cores. Each stage's accelerator is a timer; its messages are real ones.

A pass takes a fixed time and computes nothing, so that the processor is free for other stages. The stages are threads
of this process, and neighbours are joined by sockets as ranks are (`pipeline.Wire`).
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from course_lib.parallel import pipeline, schedules

IMAGES, CLASSES = 4, 10  # of a micro-batch


class TimedStage:
    """As `pipeline.Stage`, but a pass only waits: `forward` gives back its inputs, `backward` its gradient.

    Attributes:
        spans: as those of `pipeline.Stage`. most_kept: micro-batches at a time.
    """

    def __init__(self, forward: float, backward: float) -> None:
        self._seconds = {"F": forward, "B": backward}
        self.spans: list[tuple[str, int, float, float]] = []
        self._kept, self.most_kept = 0, 0

    def forward(self, micro: int, inputs: np.ndarray) -> np.ndarray:
        """Wait for the seconds of a forward pass."""
        self._kept += 1
        self.most_kept = max(self.most_kept, self._kept)
        return self._wait("F", micro, inputs)

    def backward(self, micro: int, gradient: np.ndarray) -> np.ndarray:
        """Wait for the seconds of a backward pass."""
        self._kept -= 1
        return self._wait("B", micro, gradient)

    def _wait(self, kind: str, micro: int, array: np.ndarray) -> np.ndarray:
        start = time.monotonic()
        time.sleep(self._seconds[kind])
        self.spans.append((kind, micro, start, time.monotonic()))
        return array


def follow(work: Callable, table: schedules.Table, forward: float, backward: float) -> tuple[schedules.Run, list[int]]:
    """Let a stage for each row of the table do its work, all at the same time.

    Args:
        work: the exercise's; forward, backward: seconds of a pass, of every stage.

    Returns what was measured, and the most micro-batches that each stage kept.

    Raises WrongSchedule, before anything waits, for a table that can't be followed, and what a stage's work raises.
    """
    size, micro = len(table), len(table[0]) // 2
    schedules.check(table, micro)
    joined = [socket.socketpair() for _ in range(size - 1)]
    ends: list[dict[int, socket.socket]] = [{} for _ in range(size)]
    for stage, (after, before) in enumerate(joined):
        ends[stage][stage + 1], ends[stage + 1][stage] = after, before
    wires = [pipeline.Wire(me, connections) for me, connections in enumerate(ends)]
    parts = [TimedStage(forward, backward) for _ in table]
    inputs, labels = [np.zeros((IMAGES, CLASSES))] * micro, [np.zeros(IMAGES, int)] * micro

    errors: list[Exception] = []

    def on_a_stage(me: int) -> None:
        try:
            work(table[me], parts[me], me, size, wires[me], inputs, labels)
        except Exception as error:
            errors.append(error)  # the first is the cause of the others
            for connection in (end for pair in joined for end in pair):
                with contextlib.suppress(OSError):  # it may be closed already
                    connection.shutdown(socket.SHUT_RDWR)  # nobody is to wait for this stage
        wires[me].close()

    with ThreadPoolExecutor(size) as threads:
        list(threads.map(on_a_stage, range(size)))
    if errors:
        raise errors[0]
    return schedules.Run(size, tuple(pipeline.gathered([part.spans for part in parts]))), [p.most_kept for p in parts]
