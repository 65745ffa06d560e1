"""What each rank does for a step: `work.py NAME ARGUMENTS`, as a script of `launch.start`; rank 0 prints the result.

ARGUMENTS is a JSON object, the function's keywords. Where there are fewer GPUs than ranks of this host, they share one,
and what they exchange goes through the processor and Gloo: NCCL refuses two ranks on one GPU.
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
from course_lib.command.doctor.gpu.host import memory_used
from course_lib.command.doctor.gpu.lines import RESULT

MB = 2**20


def pin(number: int | None = None) -> str:
    """Keep the GPU of this rank's local rank (or `number`) alone; return the device to reduce on, "" for its own."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if not gpus:
        return ""
    mine = hvd.local_rank() if number is None else number
    tf.config.set_visible_devices(gpus[mine % len(gpus)], "GPU")
    return "" if len(gpus) >= hvd.size() else "/CPU:0"


def gathered(value: object) -> list:
    """What each rank gives, on all ranks; never through NCCL, so that it works where ranks share a GPU."""
    with tf.device("/CPU:0"):
        return hvd.allgather_object(value)


def pinned(megabytes: int) -> dict:
    """MiB in use on each GPU while all ranks hold `megabytes` on theirs."""
    pin()
    held = tf.ones(megabytes * MB // 4)
    gathered("holds it")
    used = memory_used() if hvd.rank() == 0 else []
    gathered("may leave")
    return {"used": used, "device": held.device}


def all_reduce(sizes: list[int], repeats: int) -> dict:
    """Median seconds of all-reduces of so many bytes, one at a time; whether all sums were right."""
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
    # Its layer takes no device: where ranks share a GPU, all of it is on the CPU.
    with tf.device("/CPU:0" if len(tf.config.list_physical_devices("GPU")) < hvd.size() else None):
        across = hvd.SyncBatchNormalization(axis=-1)(mine, training=True)
        alone = tf.keras.layers.BatchNormalization(axis=-1)(whole, training=True)
    expected = alone[8 * hvd.rank() : 8 * (hvd.rank() + 1)]
    own = tf.keras.layers.BatchNormalization(axis=-1)(mine, training=True)
    found = [float(tf.reduce_max(tf.abs(one - expected))) for one in (across, own)]
    found = gathered(found)
    return {"across": max(one for one, _ in found), "own": max(own for _, own in found)}


def train(steps: int, batches: list[int]) -> dict:
    """For each batch of a rank: images/s of all ranks, and by how much their weights differ after training."""
    device = pin()
    found = [_train(steps, batch, device) for batch in batches]
    return {"images/s": [rate for rate, _ in found], "difference": max(apart for _, apart in found), "size": hvd.size()}


def _train(steps: int, batch: int, device: str) -> tuple[float, float]:
    tf.keras.utils.set_random_seed(1 + hvd.rank())
    model = models.assessment_cnn((32, 32, 3), 10)
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
    with tf.device("/CPU:0"):
        weights = hvd.broadcast_object(model.get_weights(), 0)
    model.set_weights(weights)
    x = tf.cast(tf.random.uniform((batch, 32, 32, 3), 0, 256, tf.int32), tf.uint8)
    y = tf.random.uniform((batch,), 0, 10, tf.int32)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        tape = hvd.DistributedGradientTape(tape, device_dense=device)
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value

    step().numpy()
    step().numpy()
    blocks = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(steps):
            value = step()
        value.numpy()
        blocks.append(time.perf_counter() - began)
    seconds = max(gathered(float(np.median(blocks))))
    every = gathered(np.concatenate([w.numpy().ravel() for w in model.trainable_variables]))
    return batch * hvd.size() * steps / seconds, float(max(np.abs(other - every[0]).max() for other in every))


def elastic(steps: int, lose_at: int) -> dict:
    """Train; at a step the last rank kills itself; those that are left go on from the last commit."""
    device = pin(hvd.rank())  # each rank seems to be on a host of its own
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
    """Do one of these; rank 0 tells what came of it."""
    name, arguments = sys.argv[1:]
    hvd.init()
    result = {"pinned": pinned, "all_reduce": all_reduce, "batch_norm": batch_norm, "train": train, "elastic": elastic}
    found = result[name](**json.loads(arguments))
    if hvd.rank() == 0:
        print(RESULT + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
