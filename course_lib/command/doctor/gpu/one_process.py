"""What one process can examine: driver, versions, what is compiled, optimizers, loops, mixed precision, memory, speed.

Each step is a function of the host that yields lines; `runner.STEPS` lists them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from course_lib import models
from course_lib import optimizers as course_optimizers
from course_lib.command.doctor import diagnosis
from course_lib.command.doctor.gpu import devices
from course_lib.command.doctor.gpu.devices import Host, memory_used, missing
from course_lib.command.doctor.gpu.report import Line, failed, passed, tested, untested
from course_lib.cost import roofline
from course_lib.system.errors import CourseError, last_line

SHARED_MEMORY = Path("/dev/shm")
ENOUGH_SHARED = 2**30 * 0.99  # bytes: NVIDIA asks for --shm-size=1g (NCCL's troubleshooting, "Shared memory")
FIRST_STEP_S = 80.0
NEWER_IMAGE = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"

BATCH = 128
IMAGES = 10 * BATCH
TRAINING_FLOPS = 3 * 2 * 4.0e6  # of the assessment's network for one image: forward, and twice that backward
MIN_SHARE = 0.25  # of a published peak that a large product and a copy reach on any sound GPU

# After each of three steps from w = [3, 4] with these gradients and decay 0.1, in float64 (the papers' formulas).
START, GRADIENTS = [3.0, 4.0], ([-0.8, 0.6], [0.5, 0.5], [0.1, -0.2])
CHECK_VALUES = {
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


def driver(host: Host) -> Iterator[Line]:
    """The driver and its GPUs; the shared memory that NCCL exchanges gradients through."""
    if reason := missing(host):
        yield (failed if host.problem else untested)("Driver", reason)
    else:
        names = [gpu.name for gpu in host.gpus]
        counts = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
        yield passed(
            "Driver",
            f"Driver {host.driver}, for CUDA up to {host.cuda or 'an unknown version'}: {counts}.",
            **{"driver": host.driver, "CUDA of the driver": host.cuda},
            **{"compute capability": ", ".join(dict.fromkeys(gpu.capability or "unknown" for gpu in host.gpus))},
            **{"memory MiB": min(gpu.memory for gpu in host.gpus), "GPUs that can be used": host.visible},
        )
    size = shutil.disk_usage(SHARED_MEMORY).total if SHARED_MEMORY.exists() else 0
    yield tested(
        "Shared memory",
        size >= ENOUGH_SHARED,
        f"{SHARED_MEMORY} has {size / 2**30:.1f} GB.",
        f"{SHARED_MEMORY} has {size / 2**20:.0f} MB, and NCCL needs more: start the container with --shm-size 1g.",
        bytes=size,
    )


def stack(host: Host) -> Iterator[Line]:
    """Versions, and whether they fit each other, the driver and the GPUs."""
    report = diagnosis.ask_stack()
    python = platform.python_version()
    titles = ("TensorFlow", "Keras", "Horovod", "CUDA", "cuDNN", "NCCL")
    versions = {"Python": python, **{title: report[title.lower()] for title in titles if report[title.lower()]}}
    problems = diagnosis.stack_problems(python, report, host.visible)
    if host.visible and report["tensorflow"] and report["horovod"]:
        problems += misfits(host, report)
    for problem in problems:
        yield failed("Versions", problem, **versions)
    if not problems:
        yield passed("Versions", f"{', '.join(f'{name} {version}' for name, version in versions.items())}.", **versions)
    if report["horovod"]:
        parts = [diagnosis.CONTROLLERS[name] for name in report["controllers"]] + ["NCCL"] * bool(report["nccl"])
        yield passed("What Horovod was built with", f"{', '.join(parts)}.", NCCL=report["nccl"] or None)


def misfits(host: Host, build: Mapping[str, Any]) -> list[str]:
    """What of TensorFlow's build does not fit driver and GPUs, in sentences with the remedy."""
    cuda, targets = build["cuda"], build["targets"]
    if not cuda:
        return ["This TensorFlow was built without CUDA: run `./course setup`, or use the image for GPUs."]
    problems = []
    if host.cuda and int(host.cuda.split(".")[0]) < int(cuda.split(".")[0]):
        problems.append(
            f"TensorFlow was built for CUDA {cuda}, and driver {host.driver} runs CUDA {host.cuda} at most: update the "
            "driver."
        )
    for capability in _capabilities(host) if targets else ():
        kernels = devices.kernels(capability, targets)
        newer = f"use an image that has them (`containers/launch build --base {NEWER_IMAGE}`)"
        none = f"TensorFlow has no kernels for compute capability {capability}"
        if kernels.kind == "none":
            problems.append(f"{none} ({', '.join(targets)}): {newer}.")
        elif kernels.kind == "ptx" and host.cuda and not devices.at_least(host.cuda, cuda):
            problems.append(
                f"{none} and would compile them, which a driver for CUDA {host.cuda} cannot do with code of "
                f"CUDA {cuda}: update the driver, or {newer}."
            )
    return problems


def _capabilities(host: Host) -> list[str]:
    return sorted({gpu.capability for gpu in host.gpus if gpu.capability})


def first_use(host: Host) -> Iterator[Line]:
    """Seconds of the first training step in a new process, with an empty cache of compiled kernels and a filled one."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        first, second = (_in_new_process(CUDA_CACHE_PATH=folder) for _ in range(2))
        compiled = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    values = {"first process s": first["seconds"], "second process s": second["seconds"], "compiled bytes": compiled}
    where = "" if host.visible else "On the CPU: "
    seconds = f"{where}{first['seconds']:.1f} s, in a second process {second['seconds']:.1f} s."
    yield passed("First training step", seconds, **values)
    if not host.visible:
        yield untested("Kernels", missing(host))
        return
    libraries = ", ".join(first["libraries"]) or "its libraries"
    yield tested(
        "Where it ran",
        "GPU" in first["device"],
        f"On the GPU, with {libraries}.",
        "It ran on the processor though there is a GPU: use an image for this driver.",
        libraries=libraries,
    )
    for capability in _capabilities(host):
        yield _kernels(capability, first["targets"], compiled, first["seconds"] - second["seconds"])


def _kernels(capability: str, targets: list[str], compiled: int, seconds: float) -> Line:
    title = f"Kernels for compute capability {capability}"
    if not targets:
        return untested(title, "TensorFlow does not say what it was built for.", **{"compiled bytes": compiled})
    kernels = devices.kernels(capability, targets)
    values = {"kind": kernels.kind, "target": kernels.target, "saved by the cache s": seconds}
    if kernels.kind == "none":
        return failed(title, f"TensorFlow has none: use an image that has them ({NEWER_IMAGE}).", **values)
    if kernels.kind == "cubin":
        return passed(title, f"TensorFlow has them ({kernels.target}): nothing has to be compiled.", **values)
    return tested(
        title,
        compiled > 0,
        f"The driver compiles them from {kernels.target}; the cache of what was compiled saves {seconds:.1f} s.",
        "They have to be compiled, and nothing was kept: let ~/.nv/ComputeCache be written, or each start waits.",
        **values,
    )


def _in_new_process(**env: str) -> dict[str, Any]:
    """What `first_step` returns in a process of its own: what is loaded and compiled is so once in each."""
    code = f"import json; from {__name__} import first_step; print(json.dumps(first_step()))"
    env = {**os.environ, **env}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=FIRST_STEP_S, env=env
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise CourseError(
            f"A first training step was not done within {FIRST_STEP_S:g} s and was ended: TensorFlow compiles for this "
            f"GPU, or hangs; use an image with kernels for it ({NEWER_IMAGE})."
        ) from None
    except (IndexError, ValueError):
        raise CourseError(
            f"A first training step ended with exit code {done.returncode} ({last_line(done.stderr)}): install the "
            "course again, or use another image."
        ) from None


def first_step() -> dict[str, Any]:
    """One training step of the assessment's network: seconds, device, TensorFlow's targets, CUDA's libraries."""
    _grow()
    began = time.perf_counter()
    model = models.assessment_cnn((32, 32, 3), 10)
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    model.train_on_batch(tf.zeros((BATCH, 32, 32, 3)), tf.zeros((BATCH,)))
    seconds = time.perf_counter() - began
    loaded = re.findall(r"/(lib(?:cudnn|nccl|cublas)\.so[.\d]*)", Path("/proc/self/maps").read_text(errors="replace"))
    return {
        "seconds": seconds,
        "device": model.trainable_variables[0].device,
        "targets": list(tf.sysconfig.get_build_info().get("cuda_compute_capabilities") or ()),
        "libraries": list(dict.fromkeys(loaded)),
    }


def optimizers(host: Host) -> Iterator[Line]:
    """The four optimizers against their check values."""
    _grow()
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
    """`fit` and a loop with a gradient tape, from the same weights on the same images."""
    _grow()
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
        change = f"30 updates bring the loss from {before:.2f} to {value:.2f}"
        good = value < before / 2
        yield tested(title, good, f"{change}.", f"{change}, not to half: the numbers are wrong.", **values)
    difference = abs(after[0] - after[1])
    yield tested(
        "fit and the loop agree",
        difference < 0.1 * before,
        f"Their losses differ by {difference:.1g}.",
        f"Their losses differ by {difference:.2g}: one of them does not train what it should; please report it.",
        difference=difference,
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
    first, *_, last = model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0).history["loss"]
    tf.keras.mixed_precision.set_global_policy("float32")
    types = {layer.compute_dtype for layer in model.layers if layer.weights}, {w.dtype.name for w in model.weights}
    change = f"bring the loss from {first:.2f} to {last:.2f}"
    yield tested(
        "Mixed precision",
        last < first / 2 and types == ({"float16"}, {"float32"}),
        f"Three epochs in float16 with float32 weights {change}.",
        f"Three epochs in float16 {change}: it does not train.",
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
        "A gradient that overflows is skipped, and the scale halved.",
        f"A gradient that overflows makes of the weight 1 {weight:g}, of the scale 1024 {scale:g}: please report it.",
        weight=weight,
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
    part = f"A small product takes {taken:.0f} of {whole:.0f} MiB"
    if_bad = f"{part}, or another program took them: try again alone."
    yield tested("Memory growth", taken < whole / 2, f"{part}.", if_bad, **{"taken MiB": taken})


def speed(host: Host) -> Iterator[Line]:
    """Operations and bytes a second against the published peaks; images a second of the assessment's network."""
    _grow()
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
    """The line on products in float32 of `achieved` FLOP/s: whether they are made on the tensor cores, in TF32, is the
    framework's choice."""
    title = "Products in float32"
    if not (peak and peak.tf32):
        return share_of_peak(title, achieved, peak and peak.float32, "TFLOP/s")
    if achieved > peak.float32:
        return share_of_peak(title, achieved, peak.tf32, "TFLOP/s", " On the tensor cores, in TF32.")
    return share_of_peak(title, achieved, peak.float32, "TFLOP/s", " Not on the tensor cores, in TF32, but outside.")


def share_of_peak(title: str, achieved: float, peak: float | None, unit: str, how: str = "") -> Line:
    """The line on what was achieved, in FLOP/s or bytes/s, of a published peak (None: the course knows none)."""
    scale = {"TFLOP/s": 1e12, "GB/s": 1e9}[unit]
    values = {"achieved": achieved, "peak": peak}
    rate = f"{achieved / scale:.3g} {unit}"
    if not peak:
        return passed(title, f"{rate}; the course knows no published peak for it.", **values)
    rate += f", {achieved / peak:.0%} of the {peak / scale:.3g} published"
    return tested(
        title,
        achieved >= MIN_SHARE * peak,
        f"{rate}.{how}",
        f"{rate}: the GPU is throttled or shared; look at `nvidia-smi -q -d PERFORMANCE` and at who else uses it.{how}",
        **values,
    )


def matmul_flops(size: int, dtype: tf.DType, products: int = 8) -> float:
    """FLOP/s of products of two [size, size] matrices."""
    a = tf.cast(tf.random.uniform((size, size)) / size, dtype)

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
    step = training_step(models.assessment_cnn((32, 32, 3), 10), tf.keras.optimizers.SGD(0.01, momentum=0.9))
    x, y = random_batch(batch)
    return batch / _seconds(lambda: step(x, y), at_least=0.5)


def random_batch(batch: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Images [batch, 32, 32, 3] of noise, and labels [batch]."""
    x = tf.cast(tf.random.uniform((batch, 32, 32, 3), 0, 256, tf.int32), tf.uint8)
    return x, tf.random.uniform((batch,), 0, 10, tf.int32)


def training_step(
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    distribute: Callable[[tf.GradientTape], tf.GradientTape] = lambda tape: tape,
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """A compiled training step: (images, labels) → loss. `distribute` makes of its tape one that averages gradients."""
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = distribute(tape).gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
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
