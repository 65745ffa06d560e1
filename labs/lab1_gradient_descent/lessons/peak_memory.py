"""How much memory a real training step takes: measured in a process of its own, one batch size after the other.

python -m labs.lab1_gradient_descent.lessons.peak_memory 1 256 1024   one line of JSON a batch size, in rising order
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from course_lib.system.errors import CourseError, last_line


def training(batches: Sequence[int]) -> Iterator[dict[str, int]]:
    """Train `models.small_cnn` with SGD for two steps at each batch size; yield {"batch", "peak"} as it goes.

    `peak` is the largest resident memory that the process has had so far, in bytes, TensorFlow included. The images
    are noise: memory does not depend on what they show. CourseError if the process fails.
    """
    # Large pieces then go back to the system as soon as they are freed: the peak is what was in use at a time.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "labs.lab1_gradient_descent.lessons.peak_memory", *map(str, sorted(batches))]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        try:
            for line in process.stdout:
                yield json.loads(line)
            if process.wait():
                errors.seek(0)
                last = last_line(errors.read(), "no message")
                raise CourseError(f"The measured process failed: {last}")
        finally:
            process.kill()
            process.wait()


def _peak_bytes() -> int:
    """The largest resident memory of this process so far, in bytes."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        # Elsewhere than on Linux. There this number would include the process that started us.
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _main(batches: Sequence[int]) -> None:
    import numpy as np

    from course_lib import models

    model = models.small_cnn((28, 28, 1), 10)
    model.compile("SGD", "sparse_categorical_crossentropy")
    numbers = np.random.default_rng(0)
    for batch in batches:
        images, labels = numbers.integers(0, 256, (batch, 28, 28, 1), np.uint8), numbers.integers(0, 10, batch)
        for _ in range(2):
            model.train_on_batch(images, labels)
        print(json.dumps({"batch": batch, "peak": _peak_bytes()}), flush=True)


if __name__ == "__main__":
    _main([int(argument) for argument in sys.argv[1:]])
