"""Train a small model on different data on each rank; afterwards the weights must be equal, bit for bit.

This check detects every silent failure of data-parallel training: Keras 3, gradients without an all-reduce, initial
weights without a broadcast. `course doctor` runs this file on two ranks, or on all GPUs.
"""

from __future__ import annotations

import json

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf


def small_model() -> tf.keras.Model:
    """A classifier of 8 numbers into 3 classes, with different initial weights on each rank."""
    tf.keras.utils.set_random_seed(hvd.rank())
    return tf.keras.Sequential([tf.keras.Input([8]), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(3)])


def examples() -> tuple[np.ndarray, np.ndarray]:
    """64 examples [64, 8] and their labels [64], different ones on each rank."""
    random = np.random.default_rng(hvd.rank())
    return random.normal(size=(64, 8)).astype("float32"), random.integers(3, size=64)


def loss() -> tf.keras.losses.Loss:
    """The loss for `small_model`."""
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def report(model: tf.keras.Model) -> None:
    """On rank 0, print the number of ranks and the largest difference of their weights. Call it on all ranks."""
    weights = np.concatenate([variable.ravel() for variable in model.get_weights()])
    by_rank = hvd.allgather(tf.constant(weights[None])).numpy()  # [ranks, weights]
    difference = float(np.abs(by_rank - by_rank[0]).max())
    if hvd.rank() == 0:
        print("agreement", json.dumps({"size": len(by_rank), "difference": difference}), flush=True)


def main() -> None:
    """Train as in the course, then compare the weights."""
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    # NCCL does not accept two ranks on one GPU: with fewer GPUs than ranks, all ranks use the CPU.
    mine = [gpus[hvd.local_rank()]] if len(gpus) >= hvd.local_size() else []
    tf.config.set_visible_devices(mine, "GPU")
    model = small_model()
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9)), loss())
    model.fit(
        *examples(),
        batch_size=16,
        epochs=2,
        verbose=0,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
    )
    report(model)


if __name__ == "__main__":
    main()
