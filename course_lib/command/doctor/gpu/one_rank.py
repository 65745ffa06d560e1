"""What one process can show on one device: optimizers, loops, mixed precision, memory, speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import tensorflow as tf

from course_lib import models
from course_lib import optimizers as course_optimizers
from course_lib.command.doctor.gpu import peaks
from course_lib.command.doctor.gpu.host import Host, memory_used
from course_lib.command.doctor.gpu.lines import Line, judged, passed, untested
from course_lib.cost import roofline

BATCH = 128
IMAGES = 10 * BATCH
TRAINING_FLOPS = 3 * 2 * 4.0e6  # of the assessment's network for one image: forward, and twice that backward

# After each of three steps from w = [3, 4] with these gradients and decay 0.1, in float64 (the papers' formulas).
START, GRADIENTS = [3.0, 4.0], ([-0.8, 0.6], [0.5, 0.5], [0.1, -0.2])
CHECKS = {
    "LARS": ((1, 0.5, 0.5), {}, ((3.0016667, 3.9966667), (3.0015098, 3.9918038), (2.9999866, 3.9867392))),
    "LARC": (
        (1, 0.5, 0.5),
        {"trust_coefficient": 0.02},
        ((3.0333333, 3.9333333), (2.9820401, 3.8296131), (2.8813536, 3.7112136)),
    ),
    "LAMB": ((0.01, 0.01, 0.005), {}, ((3.0223607, 3.9552786), (3.0177626, 3.9057131), (3.0119583, 3.8817266))),
    "NovoGrad": ((0.01, 0.01, 0.005), {}, ((3.0050000, 3.9900000), (3.0017198, 3.9714848), (2.9981535, 3.9617191))),
}
CHECK_TOLERANCE = 1e-6


def optimizers(host: Host) -> Iterator[Line]:
    """The four optimizers against their check values."""
    _grow()
    for name, (rates, options, expected) in CHECKS.items():
        optimizer = getattr(course_optimizers, name)(rates[0], weight_decay=0.1, **options)
        with tf.device(_device()):
            w = tf.Variable(START, dtype=tf.float64)
            found = []
            for rate, gradient in zip(rates, GRADIENTS):
                optimizer.learning_rate = rate
                optimizer.apply_gradients([(tf.constant(gradient, tf.float64), w)])
                found.append(w.numpy())
        error = float(np.abs(np.array(found) - expected).max())
        yield judged(
            name,
            error <= CHECK_TOLERANCE,
            f"Three steps on {_where(w)} agree with the check values to {error:.1g}.",
            f"Three steps on {_where(w)} differ from the check values by up to {error:.2g}: please report it.",
            error=error,
        )


def loops(host: Host) -> Iterator[Line]:
    """`fit` and a loop with a gradient tape, from the same weights on the same images."""
    _grow()
    x, y = examples()
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
    by_fit, by_hand = (models.assessment_cnn((32, 32, 3), 10) for _ in range(2))
    before = float(loss(y, by_fit(x, training=True)))
    by_hand.set_weights(by_fit.get_weights())
    by_fit.compile(tf.keras.optimizers.SGD(0.05, momentum=0.9), loss)
    by_fit.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
    step = stepper(by_hand, tf.keras.optimizers.SGD(0.05, momentum=0.9), loss)
    for _ in range(3):
        for first in range(0, IMAGES, BATCH):
            step(x[first : first + BATCH], y[first : first + BATCH])
    after = [float(loss(y, model(x, training=True))) for model in (by_fit, by_hand)]
    values = {"loss before": before, "after fit": after[0], "after the loop": after[1]}
    for title, value in zip(("fit", "A loop with a gradient tape"), after):
        yield judged(
            title,
            value < before / 2,
            f"30 updates bring the loss from {before:.2f} to {value:.2f}.",
            f"30 updates bring the loss from {before:.2f} to {value:.2f}, not to half: the numbers are wrong.",
            **values,
        )
    apart = abs(after[0] - after[1])
    yield judged(
        "fit and the loop agree",
        apart < 0.1 * before,
        f"Their losses differ by {apart:.1g}.",
        f"Their losses differ by {apart:.2g}: one of them does not train what it should; please report it.",
        difference=apart,
    )


def mixed_precision(host: Host) -> Iterator[Line]:
    """Training in float16 with float32 weights, and a loss scale that gives way to an overflow."""
    _grow()
    x, y = examples()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    # A processor takes minutes for convolutions in float16.
    make, rate = (models.assessment_cnn, 0.05) if host.visible else (models.linear, 1e-3)
    model = make((32, 32, 3), 10)
    model.compile(tf.keras.optimizers.SGD(rate, momentum=0.9), "sparse_categorical_crossentropy")
    history = model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0).history["loss"]
    kinds = {layer.compute_dtype for layer in model.layers if layer.weights}, {w.dtype.name for w in model.weights}
    good = history[-1] < history[0] / 2 and kinds == ({"float16"}, {"float32"})
    yield judged(
        "Mixed precision",
        good,
        f"Three epochs in float16 with float32 weights bring the loss from {history[0]:.2f} to {history[-1]:.2f}.",
        f"Three epochs in float16 bring the loss from {history[0]:.2f} to {history[-1]:.2f}: it does not train.",
        **{"first loss": history[0], "last loss": history[-1]},
    )
    yield _loss_scale()
    tf.keras.mixed_precision.set_global_policy("float32")


def _loss_scale() -> Line:
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), initial_scale=1024.0)
    with tf.device(_device()):
        w = tf.Variable(1.0)
        optimizer.apply_gradients([(tf.constant(np.inf), w)])
        kept, scale = float(w), float(optimizer.loss_scale)
        scaled = float(optimizer.get_scaled_loss(tf.constant(2.0)))
    return judged(
        "Loss scale",
        kept == 1.0 and scale == 512.0 and scaled == 1024.0,
        "A gradient that overflows is skipped, and the scale halved.",
        f"After a gradient that overflows the weight 1 is {kept:g} and the scale 1024 is {scale:g}: please report it.",
        weight=kept,
        scale=scale,
    )


def memory(host: Host) -> Iterator[Line]:
    """With memory growth a process takes what it needs, not all of the GPU."""
    before = memory_used()
    _grow()
    with tf.device(_device()):
        tf.reduce_sum(tf.matmul(tf.ones((512, 512)), tf.ones((512, 512)))).numpy()
    after = memory_used()
    whole = min((gpu.memory for gpu in host.gpus), default=0)
    if not before or len(after) != len(before) or not whole:
        yield untested("Memory growth", "The driver does not say how much of its GPUs' memory is in use.")
        return
    taken = max(b - a for a, b in zip(before, after))
    yield judged(
        "Memory growth",
        taken < whole / 2,
        f"A small product takes {taken:.0f} of {whole:.0f} MiB.",
        f"A small product takes {taken:.0f} of {whole:.0f} MiB, or another program took them: try again alone.",
        **{"taken MiB": taken},
    )


def speed(host: Host) -> Iterator[Line]:
    """Operations and bytes a second against the published peaks; images a second of the assessment's network."""
    _grow()
    name = host.gpus[0].name if host.visible and host.gpus else "this processor"
    peak = peaks.published(name) if host.visible else None
    if host.visible:
        yield float32_products(matmul_flops(8192, tf.float32), peak, host)
        achieved = matmul_flops(8192, tf.float16)
        yield _share("Products in float16", achieved, peak and peak.float16, 1e12, "TFLOP/s", host)
    else:
        measured = roofline.measure_peak(1024, repeats=3)
        yield _share("Products in float32", matmul_flops(1024, tf.float32), measured, 1e12, "TFLOP/s", host)
    rate = copy_bandwidth(2**30 if host.visible else 2**27)
    yield _share("Memory", rate, peak.bandwidth if peak else None, 1e9, "GB/s", host)
    for batch in (BATCH, 8 * BATCH):
        images = images_per_second(batch)
        achieved = images * TRAINING_FLOPS
        share = f", {achieved / peak.float32:.1%} of the float32 peak" if peak else ""
        yield passed(
            f"Training, batch {batch}",
            f"{images:,.0f} images/s of the assessment's network: {achieved / 1e12:.2g} TFLOP/s{share}.",
            **{"images/s": images, "FLOP/s": achieved},
        )


def float32_products(achieved: float, peak: peaks.Peak | None, host: Host) -> Line:
    """The line on products in float32 of `achieved` FLOP/s: whether they are made on the tensor cores, in TF32, is the
    framework's choice."""
    on_tensor_cores = bool(peak and peak.tf32 and achieved > peak.float32)
    of = peak and (peak.tf32 if on_tensor_cores else peak.float32)
    line = _share("Products in float32", achieved, of, 1e12, "TFLOP/s", host)
    if not (peak and peak.tf32):
        return line
    how = "On the tensor cores, in TF32" if on_tensor_cores else "Not on the tensor cores, in TF32, but outside of them"
    return replace(line, text=f"{line.text} {how}.")


MIN_SHARE = 0.25  # of a published peak that a large product and a copy reach on any sound GPU


def _share(title: str, achieved: float, peak: float | None, unit: float, word: str, host: Host) -> Line:
    values = {"achieved": achieved, "peak": peak}
    told = f"{achieved / unit:.3g} {word}"
    if not peak:
        return passed(title, f"{told}; the course knows no published peak for it.", **values)
    whose = "published" if host.visible else "measured with NumPy"
    told += f", {achieved / peak:.0%} of the {peak / unit:.3g} {whose}"
    return judged(
        title,
        achieved >= MIN_SHARE * peak or not host.visible,
        f"{told}.",
        f"{told}: the GPU is throttled or shared; look at `nvidia-smi -q -d PERFORMANCE` and at who else uses it.",
        **values,
    )


def matmul_flops(size: int, kind: tf.DType, products: int = 8) -> float:
    """FLOP/s of products of two [size, size] matrices."""
    a = tf.cast(tf.random.uniform((size, size)) / size, kind)

    @tf.function
    def multiply() -> tf.Tensor:
        b = a
        for _ in range(products):
            b = tf.matmul(a, b)
        return b[0, 0]

    return products * roofline.dense_flops(size, size, size) / _seconds(multiply)


def copy_bandwidth(size: int) -> float:
    """Bytes/s of reading `size` bytes and writing as many."""
    values = tf.Variable(tf.zeros(size // 4))

    @tf.function
    def change() -> tf.Tensor:
        values.assign(values + 1.0)
        return values[0]

    return 2 * size / _seconds(change)


def images_per_second(batch: int) -> float:
    """Of training the assessment's network in one process, the images on the device."""
    model = models.assessment_cnn((32, 32, 3), 10)
    step = stepper(model, tf.keras.optimizers.SGD(0.01, momentum=0.9), tf.keras.losses.SparseCategoricalCrossentropy())
    x = tf.cast(tf.random.uniform((batch, 32, 32, 3), 0, 256, tf.int32), tf.uint8)
    y = tf.random.uniform((batch,), 0, 10, tf.int32)
    return batch / _seconds(lambda: step(x, y), at_least=0.5)


def stepper(
    model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, loss: Callable
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """A compiled training step: (images, labels) → loss."""
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value

    return step


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 32, 32, 3] of ten classes that a network learns within some updates, and labels [n]."""
    rng = np.random.default_rng(1)
    labels = rng.integers(10, size=IMAGES)
    patterns = rng.integers(0, 256, (10, 4, 4, 3)).repeat(8, 1).repeat(8, 2)
    noise = rng.normal(0, 30, (IMAGES, 32, 32, 3))
    return np.clip(patterns[labels] + noise, 0, 255).astype("uint8"), labels


def _seconds(call: Callable[[], tf.Tensor], at_least: float = 0.2) -> float:
    """Of one call, the best of three measurements, each with the device's end awaited."""
    return roofline.best_time(lambda: call().numpy(), repeats=3, at_least=at_least)


def _grow() -> None:
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def _device() -> str:
    return "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"


def _where(variable: tf.Variable) -> str:
    return variable.device.rpartition("device:")[2] or "the CPU"
