"""The processor cores that this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """How many there are: fewer than the machine has, where a scheduler or `taskset` has bound this process to some."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
