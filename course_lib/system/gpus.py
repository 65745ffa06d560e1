"""The NVIDIA GPUs of this host, as its driver lists them. With the standard library alone, for the set-up."""

from __future__ import annotations

import re
import subprocess

TIMEOUT_S = 20.0  # for an answer: a driver in trouble gives none at all


def listing(timeout: float = TIMEOUT_S) -> list[str]:
    """The lines of `nvidia-smi -L`, one for each GPU: "GPU 0: NVIDIA H200 (UUID: GPU-…)".

    Empty where there is no driver, or one that fails or does not answer.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in done.stdout.splitlines() if line.startswith("GPU ")] if done.returncode == 0 else []


def names(timeout: float = TIMEOUT_S) -> list[str]:
    """The names of the GPUs; empty as `listing` is."""
    found = (re.match(r"GPU \d+: (.+?) \(UUID", line) for line in listing(timeout))
    return [match[1] for match in found if match]
