"""The processor cores that this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The number of cores that this process may use, which a scheduler or `taskset` can limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
