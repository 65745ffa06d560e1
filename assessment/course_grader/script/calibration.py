"""Measure how fast this host trains the assessment's network, to scale the time limit.

The speed is measured once for each host, number of ranks and build of TensorFlow, on random images, and cached. On GPUs
the measurement fills the folder of compiled kernels from which later runs start (see `sandbox.gpu_kernels`). The
fastest of several short blocks counts, because other programs only make a block slower. A measurement is rejected if
other programs used much of the cores' time.

The labs of a hub read one measurement, which the operator makes with `python -m course_grader.script.calibration` on
the cores of a slot, in a container with the name of the host.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from course_grader.sandbox import gpu_kernels
from course_grader.sandbox.resource_monitor import cores_cpu_seconds
from course_grader.script import slots
from course_lib.ranks import launch
from course_lib.system import gpus, paths
from course_lib.system.errors import CourseError
from course_lib.system.files import write

BATCH_SIZE = 128  # images for each rank and step
BLOCKS = 5
BLOCK_LENGTH_S = 1.0
MAX_OTHERS_SHARE = 0.2  # of the cores' time that other programs use: a host this busy is up to 25 % slower
ATTEMPTS = 3  # another program may be busy for a few seconds only
MAX_FACTOR = 4.0  # a slower host is not suitable for the assessment
_CPUINFO = Path("/proc/cpuinfo")


def factor(images_per_second: float, reference: float) -> float:
    """Return the factor for the time limit on a host that trains `images_per_second`, from 1 to MAX_FACTOR."""
    return min(MAX_FACTOR, max(1.0, reference / images_per_second))


def known(ranks: int) -> float | None:
    """Return the cached images per second of all ranks together; None if this host has not been measured."""
    return _cached().get(_key(ranks), {}).get("images_per_second")


def first_step_seconds(ranks: int) -> float | None:
    """Return the seconds of the first training step of the cached measurement; None if there is none.

    On GPUs most of it is for compiling kernels, unless they were cached before.
    """
    return _cached().get(_key(ranks), {}).get("first_step_seconds")


def measure(ranks: int, env: dict[str, str] | None = None) -> float:
    """Train on `ranks` ranks for a few seconds; return the images per second of all ranks together.

    They are cached, if the cache can be written. Raises CourseError as `launch.call` does, and (code 2) if other
    programs kept the cores busy.
    """
    # If the ranks train on GPUs, the CPU seconds of the cores are not relevant.
    cores = [] if slots.count() else sorted(os.sched_getaffinity(0))
    kernels = gpu_kernels.folder() if slots.count() else None
    env = {**launch.ONE_THREAD, **(gpu_kernels.variables(kernels) if kernels else {}), **(env or {})}
    for _ in range(ATTEMPTS):
        results = launch.call(_training(cores), ranks, env=env, timeout=300)
        speeds, seconds, cpu, cores_cpu, first_steps = zip(*results)
        others = (cores_cpu[0] - sum(cpu)) / (len(cores) * seconds[0]) if cores_cpu[0] is not None else 0.0
        if others <= MAX_OTHERS_SHARE:
            row = {"images_per_second": round(min(speeds), 1), "first_step_seconds": round(max(first_steps), 1)}
            _store({**_cached(), _key(ranks): row})
            return min(speeds)
    raise CourseError(
        f"This host is too busy to be calibrated. Other programs used {others:.0%} of its cores' time: stop them, then "
        "try again.",
        code=2,
    )


def can_keep() -> bool:
    """Return whether measurements can be cached: not in a lab to which the hub gives the operator's, read-only."""
    return _store(_cached())


def _training(cores: list[int]) -> Callable[[], tuple[float, float, float, float | None, float]]:
    """Return the function that each rank runs to measure its speed."""

    def train() -> tuple[float, float, float, float | None, float]:
        """Return images per second, wall-clock seconds, CPU seconds of this rank and of its cores, and the wall-clock
        seconds of the first step."""
        import time

        import horovod.tensorflow as hvd
        import tensorflow as tf

        from course_lib import models

        hvd.init()
        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
        model = models.assessment_cnn((32, 32, 3), 10)
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        loss = tf.keras.losses.SparseCategoricalCrossentropy()
        images = tf.cast(tf.random.uniform((BATCH_SIZE, 32, 32, 3), 0, 256, tf.int32), tf.uint8)
        labels = tf.random.uniform((BATCH_SIZE,), 0, 10, tf.int32)

        @tf.function
        def step() -> None:
            with tf.GradientTape() as tape:
                value = loss(labels, model(images, training=True))
            tape = hvd.DistributedGradientTape(tape)
            optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))

        began = time.perf_counter()
        step()
        first_step = time.perf_counter() - began
        began = time.perf_counter()
        step()
        took = hvd.allreduce(tf.constant(time.perf_counter() - began), op=hvd.Max).numpy()
        steps = max(1, round(BLOCK_LENGTH_S / took))  # the same on all ranks
        blocks = []
        start, cpu_start, cores_start = time.perf_counter(), time.process_time(), cores_cpu_seconds(cores)
        for _ in range(BLOCKS):
            began = time.perf_counter()
            for _ in range(steps):
                step()
            blocks.append(time.perf_counter() - began)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
        cores_cpu = None if cores_start is None else cores_cpu_seconds(cores) - cores_start
        return BATCH_SIZE * hvd.size() * steps / min(blocks), seconds, cpu, cores_cpu, first_step

    return train


def _cached() -> dict[str, dict[str, float]]:
    try:
        table = json.loads(_cache_file().read_text())
    except (OSError, ValueError):
        return {}
    # An earlier version of the course cached only the speeds.
    return {key: row for key, row in table.items() if isinstance(row, dict)} if isinstance(table, dict) else {}


def _store(table: dict[str, dict[str, float]]) -> bool:
    try:
        write(_cache_file(), json.dumps(table, indent=1).encode())
    except OSError:
        return False
    return True


def _cache_file() -> Path:
    return paths.cache() / "calibration.json"


def _key(ranks: int) -> str:
    """Return a key with everything that the speed depends on, and the host's name: hosts may share a home folder.

    The hardware is in it too: a hub that is restored on another host may have the same name.
    """
    versions = [f"{name} {metadata.version(name)}" for name in ("horovod", "keras", "numpy")]
    library = paths.ROOT / "course_lib"
    sources = [Path(__file__), library / "models" / "__init__.py", library / "ranks" / "rank.py"]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    devices = gpus.kinds() if slots.count() else []  # a new driver has to compile all kernels again
    parts = [
        platform.node(),
        _processor(),
        f"{len(os.sched_getaffinity(0))} cores",
        *devices,
        f"{ranks} ranks",
        *versions,
    ]
    return ", ".join([*parts, code.hexdigest()[:8]])


def _processor() -> str:
    """Return the name of the processor's model; of its kind, where the kernel does not know it."""
    with contextlib.suppress(OSError):
        if match := re.search(r"^model name\s*:\s*(.*\S)", _CPUINFO.read_text(errors="replace"), re.MULTILINE):
            return match[1]
    return platform.machine()


def main() -> None:
    """Measure this host, unless its cache has the result, and print the images per second."""
    parser = argparse.ArgumentParser(description="Measure how fast this host trains the assessment's network.")
    parser.add_argument("--ranks", type=int, default=launch.default_ranks())
    ranks, count = parser.parse_args().ranks, slots.count()
    try:
        with slots.take(ranks, gpus=count) as numbers, slots.on_cores(numbers, count):
            speed = known(ranks) or measure(ranks, slots.environment(numbers, count))
            if known(ranks) is None:
                raise CourseError(f"{_cache_file()} cannot be written: correct its permissions.")
    except CourseError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.code) from None
    print(f"{speed:.1f} images/s")


if __name__ == "__main__":
    main()
