"""Errors of TensorFlow, Keras and Horovod whose words do not say what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from course_lib.ranks.messages import gpu_memory

# What an error says → what to do about it, or a function of the GPUs' numbers that says so: it asks their driver.
HINTS: dict[str, str | Callable[[Sequence[int] | None], str]] = {
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
    gpu_memory.SIGNS: gpu_memory.advice,
    r"Mismatched \w+ |Mismatched data types": (
        "The ranks called different collectives, or gave them tensors of different shapes: all ranks must make the "
        "same collective calls in the same order."
    ),
    r"Unable to find address for": (
        "The name of a host does not resolve there, and Gloo needs it: `course doctor` says what to add to /etc/hosts."
    ),
    r"Connection (?:closed|reset) by peer": (
        "Another rank left in the middle of a collective: it was killed, or ended without hvd.shutdown()."
    ),
}


def hint(lines: Iterable[str], gpus: Sequence[int] | None = None) -> str:
    """What to do about the known error that a failed rank's last `lines` name last; "" where they name none.

    `gpus`: the numbers of those that the rank could use; default: all that are visible to this process.
    """
    lines = list(lines)
    known = (advice for line in reversed(lines) for error, advice in HINTS.items() if re.search(error, line))
    advice = next(known, "")
    return advice if isinstance(advice, str) else advice(gpus)
