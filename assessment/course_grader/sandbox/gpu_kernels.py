"""A cache of compiled GPU kernels for the sandboxes.

TensorFlow has no kernels for some GPUs. The driver then compiles them when a process first needs them, which takes 16
seconds on an H100, and caches them in a folder, by default in the user's home. Each sandbox has its own, empty home.

The calibration, which runs only the course's code, fills one folder for each kind of GPU. No script can read this
folder: each rank gets a copy in memory, which is deleted with the sandbox. The copy is writable, because the driver
opens the cache's index for writing and may ignore a read-only cache.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

from course_lib.system import gpus, paths

IN_SANDBOX = Path("/gpu-kernels")  # a rank's copy
LARGEST = 2**32  # bytes; the driver's maximum
ROOM = 2**26  # free bytes in a rank's copy, for kernels that only its script needs


def folder() -> Path | None:
    """Return the private folder for this host's GPUs and driver, created if missing; None if there are no GPUs, or if
    it can't be created."""
    kinds = sorted(set(gpus.kinds()))
    if not kinds:
        return None
    path = paths.cache() / "gpu-kernels" / re.sub(r"[^\w.]+", "-", "_".join(kinds))
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)  # fails if the folder belongs to another account
    except OSError:
        return None
    return path


def variables(path: Path) -> dict[str, str]:
    """Return the environment variables with which CUDA caches compiled kernels in a folder."""
    return {"CUDA_CACHE_PATH": str(path), "CUDA_CACHE_MAXSIZE": str(LARGEST)}


def size_of_copy(path: Path) -> int:
    """Return the size in bytes of a file system for a copy, including ROOM."""
    return ROOM + sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def copy(source: str, target: str) -> None:
    """Copy the kernels into an existing folder; kernels that cannot be copied are compiled again."""
    with contextlib.suppress(OSError):  # shutil.Error is an OSError
        shutil.copytree(source, target, dirs_exist_ok=True)
