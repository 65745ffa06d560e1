"""Errors of TensorFlow, Keras and Horovod whose words do not say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What an error says → what to do about it.
HINTS = {
    r"'float' object has no attribute 'dtype'": (
        "Horovod's LearningRateWarmupCallback and LearningRateScheduleCallback raise this with Keras's SGD and a "
        "momentum: give the callback momentum_correction=False."
    ),
    r"No module named 'tf_keras'|Keras 3": (
        "Horovod 0.28.1 needs Keras 2, as TensorFlow 2.15 has it: run `course doctor`, it says which one this "
        "environment has."
    ),
    r"URL fetch failure|URLError|Temporary failure in name resolution|Name or service not known": (
        "The network can't be reached, and an assessment's sandbox has none: load the images with "
        '`data.load("cifar10")`, after `from course_lib import data`.'
    ),
    r"CUDA_ERROR_OUT_OF_MEMORY|OOM when allocating (?!.*device:CPU)": (
        "A GPU has too little memory: give each rank a GPU of its own (tf.config.set_visible_devices with "
        "hvd.local_rank()), or take a smaller batch."
    ),
    r"Mismatched \w+ |Mismatched data types": (
        "The ranks called different collectives, or gave them tensors of different shapes: all ranks must make the "
        "same collective calls in the same order."
    ),
    r"Connection (?:closed|reset) by peer": (
        "Another rank left in the middle of a collective: it was killed, or ended without hvd.shutdown()."
    ),
}


def hint(lines: Iterable[str]) -> str:
    """What to do about the known error that a failed rank's last `lines` name last; "" where they name none."""
    lines = list(lines)
    return next(
        (advice for line in reversed(lines) for error, advice in HINTS.items() if re.search(error, line)),
        "",
    )
