"""Advice for errors of TensorFlow, Keras and Horovod whose messages do not say what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from course_lib.ranks.messages import gpu_memory

# Pattern of the message → advice, or a function of the GPUs' numbers that queries the driver and returns advice.
HINTS: dict[str, str | Callable[[Sequence[int] | None], str]] = {
    r"'float' object has no attribute 'dtype'": (
        "Horovod's LearningRateWarmupCallback and LearningRateScheduleCallback raise this with Keras's SGD and "
        "momentum: pass momentum_correction=False to the callback."
    ),
    r"No module named 'tf_keras'|Keras 3": (
        "Horovod 0.28.1 needs Keras 2, which comes with TensorFlow 2.15: run `course doctor` to see which Keras this "
        "environment has."
    ),
    r"URL fetch failure|URLError|Temporary failure in name resolution|Name or service not known": (
        "The network can't be reached, and the sandbox of an assessment has no network: load the images with "
        '`data.load("cifar10")`, after `from course_lib import data`.'
    ),
    gpu_memory.SIGNS: gpu_memory.advice,
    r"Mismatched \w+ |Mismatched data types": (
        "The ranks called different collectives, or gave them tensors of different shapes: all ranks must make the "
        "same collective calls in the same order."
    ),
    r"Unable to find address for": (
        "Gloo needs the name of a host, but it does not resolve: run `course doctor` to see what to add to /etc/hosts."
    ),
    r"Connection (?:closed|reset) by peer": (
        "Another rank ended during a collective: it was killed, or it ended without hvd.shutdown()."
    ),
}


def hint(lines: Iterable[str], gpus: Sequence[int] | None = None) -> str:
    """Advice for the last known error in a failed rank's output; "" if there is none.

    Args:
        lines: the last lines of the rank's output.
        gpus: numbers of the GPUs that the rank could use; default: all that are visible to this process.
    """
    lines = list(lines)
    known = (advice for line in reversed(lines) for error, advice in HINTS.items() if re.search(error, line))
    advice = next(known, "")
    return advice if isinstance(advice, str) else advice(gpus)
