"""The NVIDIA GPUs of this host, as its driver lists them. With the standard library alone, for the set-up."""

from __future__ import annotations

import itertools
import os
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
    matches = (re.match(r"GPU \d+: (.+?) \(UUID", line) for line in listing(timeout))
    return [match[1] for match in matches if match]


def visible(gpus: int) -> list[int]:
    """The numbers of the GPUs that CUDA_VISIBLE_DEVICES names, in its order; of all `gpus` where it is not set."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(gpus))
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    names = list(itertools.takewhile(lambda name: not name.startswith("-"), names))  # as CUDA does: -1 ends the list
    lines = [] if all(map(str.isdecimal, names)) else listing()
    numbers = [
        int(name)
        if name.isdecimal()
        else next((number for number, line in enumerate(lines) if f"UUID: {name}" in line), place)
        for place, name in enumerate(names)
    ]
    return list(dict.fromkeys(numbers))
