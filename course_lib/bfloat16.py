"""bfloat16 where the processor computes with it: whether this one does, and what it gains.

bfloat16 is float32 with 7 mantissa bits in place of 23. Under Keras's policy `mixed_bfloat16` a network multiplies in
bfloat16; its weights, their gradients and the optimizer's state stay in float32:

    if bfloat16.instructions():
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")  # before the model is built

Ask this apart from `if gpus:`, since an assessment on processors shows a script GPUs that do not exist.

It pays where there are instructions for it: AMX (Intel's Xeons since 2023) or AVX512-BF16 (AMD's processors since
Zen 4, some of Intel's). Other processors convert to float32 and back, and are slower than in float32. A rank that
trains on a GPU asks that instead, since GPUs have bfloat16 from compute capability 8.0 on (A100):
`tf.config.experimental.get_device_details(gpu)["compute_capability"] >= (8, 0)`.

Horovod averages the gradients in float32, so as many bytes travel as without. All ranks apply the same average to the
same float32 weights: they agree, also where one of them computes in float32, on another processor.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

CPUINFO = Path("/proc/cpuinfo")
FLAGS = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16"}  # the faster one first: processors with AMX have both
BATCH = 128  # images in a step, as in the assessment's reference
MIN_STEPS = 5  # of each, however little time there is


def instructions() -> str | None:
    """The processor's instructions for bfloat16: "AMX", "AVX512-BF16", or None where it has neither, or is unknown.

    Source: the flags in /proc/cpuinfo, which only Linux has.
    """
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    flags = {flag for line in lines if line.startswith("flags") for flag in line.partition(":")[2].split()}
    return next((name for flag, name in FLAGS.items() if flag in flags), None)


def gain(seconds: float = 2.0) -> float:
    """How many times as fast the assessment's network trains in bfloat16 as in float32, on this processor.

    The ratio of images/s of `models.assessment_cnn` under `mixed_bfloat16` to those in float32: steps of 128 images
    [128, 32, 32, 3] in turn, without input pipeline and Horovod, on the threads that TensorFlow has in this process.
    The median step of each counts. Above 1 it pays. The process's global policy stays as it is.

    Args:
        seconds: how long to measure, after a first step of each, which takes some seconds more.
    """
    float32, mixed = _training_step("float32"), _training_step("mixed_bfloat16")
    for step in (float32, mixed):
        step()  # TensorFlow builds its graph
    times: dict[Callable, list[float]] = {float32: [], mixed: []}
    end = time.perf_counter() + seconds
    while len(times[mixed]) < MIN_STEPS or time.perf_counter() < end:
        for step, taken in times.items():
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
    return statistics.median(times[float32]) / statistics.median(times[mixed])


def _training_step(policy: str) -> Callable[[], float]:
    """A function that takes a training step of a new network with this policy, on the processor; returns the loss."""
    import tensorflow as tf

    from course_lib import models

    def with_policy(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
        return type(layer).from_config({**layer.get_config(), "dtype": policy})

    random = np.random.default_rng(0)
    with tf.device("/CPU:0"):
        model = models.assessment_cnn((32, 32, 3), 10)
        model = tf.keras.models.clone_model(model, clone_function=with_policy)
        images = tf.constant(random.integers(256, size=(BATCH, 32, 32, 3)), tf.float32)
        labels = tf.constant(random.integers(10, size=BATCH))
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True, jit_compile=False)

    @tf.function
    def step() -> tf.Tensor:
        with tf.device("/CPU:0"):
            with tf.GradientTape() as tape:
                value = loss(labels, model(images, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    return lambda: float(step())


if __name__ == "__main__":  # the doctor measures in a process of its own
    print(gain())
