"""How fast this host trains the assessment's network, so that the time limit can be scaled to it.

Measured once for a host, a number of ranks and a build of TensorFlow, on drawn images (what is in them does not
change the speed), then kept. The best of several short blocks counts: what else runs meanwhile makes blocks longer.
What was measured while other programs had much of the cores' time is not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib import metadata
from pathlib import Path

from course_grader.sandbox.resource_monitor import cores_cpu_seconds
from course_grader.script import slots
from course_lib.ranks import launch
from course_lib.system import paths
from course_lib.system.errors import CourseError
from course_lib.system.files import write

BATCH_SIZE = 128  # images of a rank and step
BLOCKS = 5
BLOCK_LENGTH_S = 1.0
MAX_OTHERS = 0.2  # of the cores' time, that other programs may have meanwhile
ATTEMPTS = 3  # another program may be busy for some seconds only
MAX_FACTOR = 4.0  # times the contract's limit, at most: a host slower than that is no host for the assessment


def factor(images_per_second: float, reference: float) -> float:
    """By how much the time limit grows on a host that trains `images_per_second`; 1 where it is fast enough."""
    return min(MAX_FACTOR, max(1.0, reference / images_per_second))


def known(ranks: int) -> float | None:
    """Images per second of all ranks together, if it has been measured on this host; else None."""
    try:
        return json.loads(_memory().read_text()).get(_key(ranks))
    except (OSError, ValueError, AttributeError):
        return None


def measure(ranks: int, env: dict[str, str] | None = None) -> float:
    """Train on `ranks` ranks for some seconds; return, and keep, images per second of all ranks together.

    Raises CourseError as `launch.call` does, and (code 2) where other programs kept the cores busy meanwhile.
    """
    # Of what GPUs do, the clock of these cores says nothing.
    cores = [] if slots.count() else sorted(os.sched_getaffinity(0))

    def train() -> tuple[float, float, float, float | None]:
        """Images per second; then, of the time that this was measured in, seconds in all, those for which this rank
        computed, and those for which its cores did."""
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

        step()
        began = time.perf_counter()
        step()
        took = hvd.allreduce(tf.constant(time.perf_counter() - began), op=hvd.Max).numpy()
        steps = max(1, round(BLOCK_LENGTH_S / took))  # the same on all ranks
        blocks = []
        began_all, own, computed = time.perf_counter(), time.process_time(), cores_cpu_seconds(cores)
        for _ in range(BLOCKS):
            began = time.perf_counter()
            for _ in range(steps):
                step()
            blocks.append(time.perf_counter() - began)
        seconds, own = time.perf_counter() - began_all, time.process_time() - own
        computed = None if computed is None else cores_cpu_seconds(cores) - computed
        return BATCH_SIZE * hvd.size() * steps / min(blocks), seconds, own, computed

    env = {**launch.ONE_THREAD, **(env or {})}
    for _ in range(ATTEMPTS):
        measured = launch.call(train, ranks, env=env, timeout=300)
        speeds, seconds, own, computed = zip(*measured)
        others = (computed[0] - sum(own)) / (len(cores) * seconds[0]) if computed[0] is not None else 0.0
        if others <= MAX_OTHERS:
            _keep(_key(ranks), min(speeds))
            return min(speeds)
    raise CourseError(
        f"This host is too busy to be calibrated, other programs had {others:.0%} of the time of its cores: end them, "
        "then assess again.",
        code=2,
    )


def _keep(key: str, speed: float) -> None:
    path = _memory()
    try:
        everything = json.loads(path.read_text())
    except (OSError, ValueError):
        everything = {}
    try:
        write(path, json.dumps({**everything, key: round(speed, 1)}, indent=1).encode())
    except OSError as error:
        raise CourseError(
            f"{path.parent} cannot be written ({error.strerror}): correct its permissions.", code=2
        ) from None


def _memory() -> Path:
    return paths.cache() / "calibration.json"


def _key(ranks: int) -> str:
    """What the speed depends on. The host's name too: a home may be shared by the hosts of a cluster."""
    versions = [f"{name} {metadata.version(name)}" for name in ("horovod", "keras", "numpy")]
    library = paths.ROOT / "course_lib"
    sources = [Path(__file__), library / "models" / "__init__.py", library / "ranks" / "rank.py"]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    gpus = launch.gpus() if slots.count() else []
    parts = [platform.node(), f"{len(os.sched_getaffinity(0))} cores", *gpus, f"{ranks} ranks", *versions]
    return ", ".join([*parts, code.hexdigest()[:8]])
