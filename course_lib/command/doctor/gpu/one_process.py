"""Tests in one process on one device: optimizers, training loops, mixed precision, memory, speed.

Each step is a function of the host that yields lines; `runner.STEPS` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from course_lib import models
from course_lib import optimizers as course_optimizers
from course_lib.command.doctor.gpu import devices
from course_lib.command.doctor.gpu.devices import Host, memory_used
from course_lib.command.doctor.gpu.report import Line, passed, tested, untested
from course_lib.command.doctor.gpu.training import random_batch, training_step
from course_lib.cost import roofline
from course_lib.optimizers.check_values import CHECK_VALUES, GRADIENTS, START

BATCH = 128
IMAGES = 10 * BATCH
TRAINING_FLOPS = 3 * 2 * 4.0e6  # per image for the assessment's network; backward counts twice the forward pass
MIN_SHARE = 0.25  # of a published peak, which a large product and a copy exceed on any healthy GPU

CHECK_TOLERANCE = 1e-6


def optimizers(host: Host) -> Iterator[Line]:
    """Compare three steps of each optimizer with its check values."""
    for name, (rates, options, expected) in CHECK_VALUES.items():
        optimizer = getattr(course_optimizers, name)(rates[0], weight_decay=0.1, **options)
        with tf.device(_device()):
            w = tf.Variable(START, dtype=tf.float64)
            weights = []
            for rate, gradient in zip(rates, GRADIENTS):
                optimizer.learning_rate = rate
                optimizer.apply_gradients([(tf.constant(gradient, tf.float64), w)])
                weights.append(w.numpy())
        error = float(np.abs(np.array(weights) - expected).max())
        steps = f"Three steps on {w.device.rpartition('device:')[2] or 'the CPU'}"
        yield tested(
            name,
            error <= CHECK_TOLERANCE,
            f"{steps} agree with the check values to {error:.1g}.",
            f"{steps} differ from the check values by up to {error:.2g}: please report it.",
            error=error,
        )


def loops(host: Host) -> Iterator[Line]:
    """Train with `fit` and in a loop with a gradient tape, from the same weights on the same images."""
    x, y = examples()
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
    by_fit, by_loop = (models.assessment_cnn((32, 32, 3), 10) for _ in range(2))
    before = float(loss(y, by_fit(x, training=True)))
    by_loop.set_weights(by_fit.get_weights())
    by_fit.compile(tf.keras.optimizers.SGD(0.05, momentum=0.9), loss)
    by_fit.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
    step = training_step(by_loop, tf.keras.optimizers.SGD(0.05, momentum=0.9))
    for _ in range(3):
        for first in range(0, IMAGES, BATCH):
            step(x[first : first + BATCH], y[first : first + BATCH])
    after = [float(loss(y, model(x, training=True))) for model in (by_fit, by_loop)]
    values = {"loss before": before, "after fit": after[0], "after the loop": after[1]}
    for title, value in zip(("fit", "A loop with a gradient tape"), after):
        change = f"30 updates reduce the loss from {before:.2f} to {value:.2f}"
        good = value < before / 2
        yield tested(title, good, f"{change}.", f"{change}, but at least half is expected: please report it.", **values)
    difference = abs(after[0] - after[1])
    yield tested(
        "fit and the loop agree",
        difference < 0.1 * before,
        f"Their losses differ by {difference:.1g}.",
        f"Their losses differ by {difference:.2g}, so one of them trains wrongly: please report it.",
        difference=difference,
    )


def mixed_precision(host: Host) -> Iterator[Line]:
    """Train in float16 with float32 weights, and check that the loss scale reacts to an overflow."""
    x, y = examples()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    # A CPU would take minutes for convolutions in float16.
    make, rate = (models.assessment_cnn, 0.05) if host.visible else (models.linear, 1e-3)
    model = make((32, 32, 3), 10)
    model.compile(tf.keras.optimizers.SGD(rate, momentum=0.9), "sparse_categorical_crossentropy")
    first, *_, last = model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0).history["loss"]
    tf.keras.mixed_precision.set_global_policy("float32")
    types = {layer.compute_dtype for layer in model.layers if layer.weights}, {w.dtype.name for w in model.weights}
    change = f"reduce the loss from {first:.2f} to {last:.2f}"
    yield tested(
        "Mixed precision",
        last < first / 2 and types == ({"float16"}, {"float32"}),
        f"Three epochs in float16 with float32 weights {change}.",
        f"Three epochs in float16 {change}, but at least half is expected: please report it.",
        **{"first loss": first, "last loss": last},
    )
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), initial_scale=1024.0)
    with tf.device(_device()):
        w = tf.Variable(1.0)
        optimizer.apply_gradients([(tf.constant(np.inf), w)])
        weight, scale = float(w), float(optimizer.loss_scale)
        scaled = float(optimizer.get_scaled_loss(tf.constant(2.0)))
    yield tested(
        "Loss scale",
        (weight, scale, scaled) == (1.0, 512.0, 1024.0),
        "A gradient that overflows is skipped, and the scale is halved.",
        f"After an overflow the weight is {weight:g}, not 1, or the scale {scale:g}, not 512: please report it.",
        weight=weight,
        scale=scale,
    )


def memory(host: Host) -> Iterator[Line]:
    """With memory growth, a process allocates only the memory that it needs."""
    before = memory_used()
    with tf.device(_device()):
        tf.reduce_sum(tf.matmul(tf.ones((512, 512)), tf.ones((512, 512)))).numpy()
    after = memory_used()
    whole = min((gpu.memory for gpu in host.gpus), default=0)
    if not before or len(after) != len(before) or not whole:
        yield untested("Memory growth", "The driver does not report how much GPU memory is in use.")
        return
    taken = max(b - a for a, b in zip(before, after))
    part = f"A small product takes {taken:.0f} of {whole:.0f} MiB"
    if_bad = f"{part}, unless another program took them: stop other programs and try again."
    yield tested("Memory growth", taken < whole / 2, f"{part}.", if_bad, **{"taken MiB": taken})


def speed(host: Host) -> Iterator[Line]:
    """FLOP/s and bytes/s compared with the published peaks; images/s of the assessment's network."""
    peak = devices.published(host.gpus[0].name) if host.visible and host.gpus else None
    if host.visible:
        yield float32_products(matmul_flops(8192, tf.float32), peak)
        yield share_of_peak("Products in float16", matmul_flops(8192, tf.float16), peak and peak.float16, "TFLOP/s")
    else:
        numpy = roofline.measure_peak(1024, repeats=3)
        achieved = matmul_flops(1024, tf.float32)
        yield passed(
            "Products in float32",
            f"{achieved / 1e12:.3g} TFLOP/s, {achieved / numpy:.0%} of the {numpy / 1e12:.3g} measured with NumPy.",
            achieved=achieved,
            peak=numpy,
        )
    yield share_of_peak("Memory", copy_bandwidth(2**30 if host.visible else 2**27), peak and peak.bandwidth, "GB/s")
    for batch in (BATCH, 8 * BATCH):
        images = images_per_second(batch)
        achieved = images * TRAINING_FLOPS
        share = f", {achieved / peak.float32:.1%} of the float32 peak" if peak else ""
        yield passed(
            f"Training, batch {batch}",
            f"{images:,.0f} images/s of the assessment's network: {achieved / 1e12:.2g} TFLOP/s{share}.",
            **{"images/s": images, "FLOP/s": achieved},
        )


def float32_products(achieved: float, peak: devices.Peak | None) -> Line:
    """The line on products in float32 at `achieved` FLOP/s, which may have used TF32 on the tensor cores."""
    title = "Products in float32"
    if not (peak and peak.tf32):
        return share_of_peak(title, achieved, peak and peak.float32, "TFLOP/s")
    if achieved > peak.float32:
        return share_of_peak(title, achieved, peak.tf32, "TFLOP/s", " On the tensor cores, in TF32.")
    return share_of_peak(title, achieved, peak.float32, "TFLOP/s", " Outside the tensor cores, not in TF32.")


def share_of_peak(title: str, achieved: float, peak: float | None, unit: str, how: str = "") -> Line:
    """The line on a measured rate, in FLOP/s or bytes/s, compared with a published peak (None: unknown)."""
    scale = {"TFLOP/s": 1e12, "GB/s": 1e9}[unit]
    values = {"achieved": achieved, "peak": peak}
    rate = f"{achieved / scale:.3g} {unit}"
    if not peak:
        return passed(title, f"{rate}; the course has no published peak for this device.", **values)
    rate += f", {achieved / peak:.0%} of the {peak / scale:.3g} published"
    return tested(
        title,
        achieved >= MIN_SHARE * peak,
        f"{rate}.{how}",
        f"{rate}: the GPU is throttled or shared; check `nvidia-smi -q -d PERFORMANCE` and its other processes.{how}",
        **values,
    )


def matmul_flops(size: int, dtype: tf.DType, products: int = 8) -> float:
    """Measured FLOP/s of products of two [size, size] matrices."""
    a = tf.cast(tf.random.uniform((size, size)) / size, dtype)

    @tf.function
    def multiply() -> tf.Tensor:
        b = a
        for _ in range(products):
            b = tf.matmul(a, b)
        return b[0, 0]

    return products * roofline.dense_flops(size, size, size) / _seconds(multiply)


def copy_bandwidth(size: int) -> float:
    """Measured bytes/s of reading `size` bytes and writing as many."""
    values = tf.Variable(tf.zeros(size // 4))

    @tf.function
    def change() -> tf.Tensor:
        values.assign(values + 1.0)
        return values[0]

    return 2 * size / _seconds(change)


def images_per_second(batch: int) -> float:
    """Measured images/s of training the assessment's network in one process, with the images on the device."""
    step = training_step(models.assessment_cnn((32, 32, 3), 10), tf.keras.optimizers.SGD(0.01, momentum=0.9))
    x, y = random_batch(batch)
    return batch / _seconds(lambda: step(x, y), at_least=0.5)


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 32, 32, 3] of ten classes that a network learns in a few updates, and labels [n]."""
    rng = np.random.default_rng(1)
    labels = rng.integers(10, size=IMAGES)
    patterns = rng.integers(0, 256, (10, 4, 4, 3)).repeat(8, 1).repeat(8, 2)
    noise = rng.normal(0, 30, (IMAGES, 32, 32, 3))
    return np.clip(patterns[labels] + noise, 0, 255).astype("uint8"), labels


def _seconds(call: Callable[[], tf.Tensor], at_least: float = 0.2) -> float:
    """Seconds of one call, including the wait for the device; the best of three measurements."""
    return roofline.best_time(lambda: call().numpy(), repeats=3, at_least=at_least)


def _device() -> str:
    return "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
