"""List which processes use which GPU, as NVIDIA's driver sees it.

This is tested with a fake `nvidia-smi` only, not on GPUs yet.
"""

from __future__ import annotations

import subprocess

TIMEOUT_S = 10.0  # a driver in trouble does not answer at all
QUERY = ("nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader")


def processes() -> list[tuple[int, str]]:
    """Return (process id, UUID of a GPU that it computes on) for all processes that the driver lists.

    Return [] if there is no driver, or if it fails or does not answer. In a container the driver may list nothing, or
    the process ids of the host.
    """
    try:
        done = subprocess.run(QUERY, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = (line.partition(",") for line in done.stdout.splitlines())
    return [(int(pid), uuid.strip()) for pid, _, uuid in rows if pid.strip().isdecimal()]
