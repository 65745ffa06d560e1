"""Notebook 7b: a network on two real ranks, its serial twin, and what the messages between the ranks cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.parallel import pipeline, schedules
from course_lib.parallel.pipeline import Layers

Batch = tuple[np.ndarray, np.ndarray]


def micro_batches(batch: Batch, micro: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Images [n, pixels] and labels [n] in `micro` pieces; where they don't divide evenly the first are larger."""
    images, labels = batch
    return np.array_split(images, micro), np.array_split(labels, micro)


def with_a_reserve(stages: int, micro: int) -> list[list[schedules.Task]]:
    """One forward, one backward, in which each stage begins two micro-batches ahead of the next one, not one."""
    return schedules.one_forward_one_backward(stages, micro, lead=2)


def serial(layers: Layers, batch: Batch, rate: float, steps: int) -> tuple[list[float], Layers]:
    """The losses of some steps with the whole batch at once, and the layers after them."""
    stage = pipeline.Stage(layers, last=True)
    losses = []
    for _ in range(steps):
        loss, slope = pipeline.cross_entropy(stage.forward(0, batch[0]), batch[1])
        stage.backward(0, slope)
        stage.update(rate)
        losses.append(loss)
    return losses, stage.layers


def on_this_rank(
    work: Callable, layers: Layers, end: int, batch: Batch, micro: int, rate: float, steps: int,
    make: Callable = schedules.one_forward_one_backward,
) -> dict[str, Any]:  # fmt: skip
    """As a rank of two: `steps` steps of the stage that is this rank's; `end`: layers of the first one.

    Returns losses [steps], the stage's layers, the spans of each step, the most micro-batches kept and the bytes sent
    in one step. `work` is the exercise's.
    """
    import horovod.tensorflow as hvd

    hvd.init()
    me, size = hvd.rank(), hvd.size()
    stage = pipeline.stages(layers, [end])[me]
    table = make(size, micro)
    schedules.check(table, micro)
    wire = pipeline.connect()
    inputs, labels = micro_batches(batch, micro)
    losses, spans = [], []
    for _ in range(steps):
        hvd.allgather_object(me)  # nobody begins before the other is here
        wire.sent_bytes = 0
        losses.append(work(table[me], stage, me, size, wire, inputs, labels))
        spans.append(list(stage.spans))
        stage.update(rate)
    wire.close()
    return {
        "losses": losses,
        "layers": stage.layers,
        "spans": spans,
        "kept": stage.most_kept,
        "bytes": wire.sent_bytes,
    }


def serial_seconds(layers: Layers, batch: Batch, repeats: int) -> list[float]:
    """Seconds of the passes of a step with the whole batch on one rank, while the other waits; empty on the other."""
    import horovod.tensorflow as hvd

    hvd.init()
    found = []
    if hvd.rank() == 0:
        for _ in range(repeats):
            stage = pipeline.Stage(layers, last=True)
            began = time.monotonic()
            _, slope = pipeline.cross_entropy(stage.forward(0, batch[0]), batch[1])
            stage.backward(0, slope)
            found.append(time.monotonic() - began)
    hvd.allgather_object(hvd.rank())
    return found


def message_seconds(numbers: int, repeats: int = 200) -> dict[str, float]:
    """As a rank of two: the median seconds until a message and its answer are through, halved, by way.

    Ways: "socket" and "all-to-all". A message has so many float32.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    me, wire = hvd.rank(), pipeline.connect()
    array = np.ones(numbers, np.float32)
    there, back = ([0, numbers], [0, 0]), ([0, 0], [numbers, 0])

    def by_socket(turn: int) -> None:
        if me:
            wire.send(0, "B", turn, wire.receive(0, "F", turn))
        else:
            wire.send(1, "F", turn, array)
            wire.receive(1, "B", turn)

    def by_all_to_all(turn: int) -> None:
        for splits in (there, back):
            mine = splits[me]
            hvd.alltoall(tf.constant(array[: sum(mine)]), splits=tf.constant(mine), name="message")

    found = {}
    for way, exchange in (("socket", by_socket), ("all-to-all", by_all_to_all)):
        seconds = []
        for turn in range(repeats + 10):
            began = time.monotonic()
            exchange(turn)
            seconds.append((time.monotonic() - began) / 2)
        found[way] = float(np.median(seconds[10:]))
        hvd.allgather_object(me)  # nobody goes on before the other is here
    wire.close()
    return found
