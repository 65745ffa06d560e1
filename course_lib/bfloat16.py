"""bfloat16 on this processor: does it have instructions for it, and how much faster is training with them?

bfloat16 is float32 with 7 mantissa bits instead of 23. Under Keras's policy `mixed_bfloat16` a network multiplies in
bfloat16; its weights, their gradients and the optimizer's state stay in float32:

    if bfloat16.instructions():
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")  # before the model is built

Do not put this test under `if gpus:`, since an assessment on processors shows the script GPUs that do not exist.

bfloat16 is faster on processors with instructions for it: AMX (Intel Xeon since 2023) or AVX512-BF16 (AMD since Zen 4,
some of Intel's). Other processors convert to float32 and back, and are slower than in float32. A rank that trains on a
GPU should test the GPU instead, since GPUs have bfloat16 from compute capability 8.0 on (A100):
`tf.config.experimental.get_device_details(gpu)["compute_capability"] >= (8, 0)`.

Horovod averages the gradients in float32, so the ranks send as many bytes as without bfloat16. All ranks apply the same
average to the same float32 weights: the weights stay equal, even if a rank on another processor computes in float32.
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
MIN_STEPS = 5  # of each precision, even if they take longer than the time to measure


def instructions() -> str | None:
    """The processor's instructions for bfloat16: "AMX", "AVX512-BF16", or None if it has neither.

    Source: the flags in /proc/cpuinfo. None on systems other than Linux, which do not have this file.
    """
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    flags = {flag for line in lines if line.startswith("flags") for flag in line.partition(":")[2].split()}
    return next((name for flag, name in FLAGS.items() if flag in flags), None)


def gain(seconds: float = 2.0) -> float:
    """The speedup of training the assessment's network in bfloat16 over float32 on this processor.

    The ratio of images/s of `models.assessment_cnn` under `mixed_bfloat16` to those in float32, from the median step of
    each. Steps of both take turns, on images [128, 32, 32, 3], without input pipeline and Horovod, on the threads of
    TensorFlow in this process. Above 1, bfloat16 is faster. The global policy of the process does not change.

    Args:
        seconds: duration of the measurement, after one step of each to build the graphs, which takes some seconds more.
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
    """A function that makes one training step of a new network under this policy, on the CPU, and returns the loss."""
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


if __name__ == "__main__":  # `course doctor` measures in a separate process
    print(gain())
