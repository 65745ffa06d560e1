"""The program of the ranks for the steps of `all_ranks`, a script for `launch.start`: `work.py NAME ARGUMENTS`.

ARGUMENTS is a JSON object with the keyword arguments of the function NAME. Rank 0 prints "result" and the function's
result as JSON. With fewer GPUs than ranks on this host, the ranks share a GPU and communicate over the CPU and Gloo,
because NCCL does not accept two ranks on one GPU.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import models
from course_lib.command.doctor.gpu.devices import memory_used
from course_lib.command.doctor.gpu.training import random_batch, training_step

MB = 2**20


def pin(number: int | None = None) -> str:
    """Make only the GPU of the local rank (or `number`) visible; return the device for reductions, "" for the GPU."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return ""
    mine = hvd.local_rank() if number is None else number
    tf.config.set_visible_devices(gpus[mine % len(gpus)], "GPU")
    return "" if len(gpus) >= hvd.size() else "/CPU:0"


def gathered(value: object) -> list:
    """The values of all ranks, on each rank; never with NCCL, so that it works for ranks that share a GPU."""
    with tf.device("/CPU:0"):
        return hvd.allgather_object(value)


def pinned(megabytes: int) -> dict:
    """MiB in use on each GPU while each rank has allocated `megabytes` MiB."""
    pin()
    held = tf.ones(megabytes * MB // 4)
    gathered("holds it")
    used = memory_used() if hvd.rank() == 0 else []
    gathered("may leave")
    return {"used": used, "device": held.device}


def all_reduce(sizes: list[int], repeats: int) -> dict:
    """Median seconds of an all-reduce for each size in bytes, and whether all sums were right."""
    device = pin()
    right, medians = True, []
    for number, size in enumerate(sizes):
        values = tf.ones(max(1, size // 4)) * (hvd.rank() + 1)
        name, seconds = f"size-{number}", []
        total = hvd.allreduce(values, op=hvd.Sum, name=name, device_dense=device)
        right &= bool(tf.reduce_all(total == hvd.size() * (hvd.size() + 1) / 2))
        for _ in range(repeats):
            began = time.perf_counter()
            total = hvd.allreduce(values, op=hvd.Sum, name=name, device_dense=device)
            total[:1].numpy()
            seconds.append(time.perf_counter() - began)
        medians.append(float(np.median(seconds)))
    return {"seconds": medians, "right": all(gathered(right)), "size": hvd.size()}


def batch_norm() -> dict:
    """The largest difference between SyncBatchNormalization on all ranks and batch norm on the whole batch."""
    pin()
    whole = tf.random.stateless_normal((8 * hvd.size(), 4, 4, 3), (1, 2)) * 3 + 1
    mine = whole[8 * hvd.rank() : 8 * (hvd.rank() + 1)]
    # The layer has no argument for a device: if ranks share a GPU, it runs on the CPU.
    with tf.device("/CPU:0" if len(tf.config.list_physical_devices("GPU")) < hvd.size() else None):
        across = hvd.SyncBatchNormalization(axis=-1)(mine, training=True)
        alone = tf.keras.layers.BatchNormalization(axis=-1)(whole, training=True)
    expected = alone[8 * hvd.rank() : 8 * (hvd.rank() + 1)]
    own = tf.keras.layers.BatchNormalization(axis=-1)(mine, training=True)
    differences = gathered([float(tf.reduce_max(tf.abs(result - expected))) for result in (across, own)])
    return {"across": max(across for across, _ in differences), "own": max(own for _, own in differences)}


def train(steps: int, batches: list[int]) -> dict:
    """For each batch per rank: images/s of all ranks, and the largest difference of their weights after training."""
    device = pin()
    rates, differences = zip(*(_train(steps, batch, device) for batch in batches))
    return {"images/s": rates, "difference": max(differences), "size": hvd.size()}


def _train(steps: int, batch: int, device: str) -> tuple[float, float]:
    tf.keras.utils.set_random_seed(1 + hvd.rank())
    model = models.assessment_cnn((32, 32, 3), 10)
    with tf.device("/CPU:0"):
        weights = hvd.broadcast_object(model.get_weights(), 0)
    model.set_weights(weights)
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    step = training_step(model, optimizer, lambda tape: hvd.DistributedGradientTape(tape, device_dense=device))
    x, y = random_batch(batch)
    step(x, y).numpy()
    step(x, y).numpy()
    blocks = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(steps):
            loss = step(x, y)
        loss.numpy()
        blocks.append(time.perf_counter() - began)
    seconds = max(gathered(float(np.median(blocks))))
    weights = gathered(np.concatenate([w.numpy().ravel() for w in model.trainable_variables]))
    return batch * hvd.size() * steps / seconds, float(max(np.abs(other - weights[0]).max() for other in weights))


def elastic(steps: int, lose_at: int) -> dict:
    """Train; at step `lose_at` the last rank kills itself, and the others continue from the last commit."""
    device = pin(hvd.rank())  # in an elastic run, each rank has its own host name, and local rank 0
    first, began = hvd.rank(), hvd.size()
    with tf.device(device or None):
        w = tf.Variable(tf.zeros(1000))
    state = hvd.elastic.TensorFlowState([w], step=0, moment=0.0)

    @hvd.elastic.run
    def go_on(state: hvd.elastic.TensorFlowState) -> None:
        while state.step < steps:
            if began == hvd.size() and state.step == lose_at and first == began - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            w.assign_add(hvd.allreduce(tf.ones(1000), op=hvd.Average, device_dense=device))
            state.step += 1
            time.sleep(0.05)
            if state.step % 5 == 0:
                state.commit()

    with tf.device(device or None):
        go_on(state)
    return {"began": began, "ended": hvd.size(), "steps": state.step, "w": float(w[0])}


def main() -> None:
    """Call the function; rank 0 prints its result."""
    name, arguments = sys.argv[1:]
    hvd.init()
    functions = {work.__name__: work for work in (pinned, all_reduce, batch_norm, train, elastic)}
    result = functions[name](**json.loads(arguments))
    if hvd.rank() == 0:
        print("result", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
