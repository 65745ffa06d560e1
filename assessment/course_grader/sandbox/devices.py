"""Which processes hold which GPU, as NVIDIA's driver lists them.

Tested with a pretended `nvidia-smi` only, not on GPUs yet.
"""

from __future__ import annotations

import subprocess

TIMEOUT_S = 10.0  # for an answer: a driver in trouble gives none at all
QUERY = ("nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader")


def processes() -> list[tuple[int, str]]:
    """(process, UUID of a GPU that it computes on), for all that the driver lists.

    Empty where there is no driver, or one that fails or does not answer. In a container the driver may list nothing, or
    the numbers that the processes have on the host.
    """
    try:
        done = subprocess.run(QUERY, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = (line.partition(",") for line in done.stdout.splitlines())
    return [(int(pid), uuid.strip()) for pid, _, uuid in rows if pid.strip().isdecimal()]
