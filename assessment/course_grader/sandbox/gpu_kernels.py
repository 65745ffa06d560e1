"""Compiled GPU kernels, kept from one process to the next.

TensorFlow has no kernels for some GPUs: the driver compiles them when a process first needs them, on an H100 for 16
seconds. It keeps them in a folder, by default in the user's home, which is another in each sandbox.

The calibration, which runs the course's own code only, fills one folder for each kind of GPU. No script sees this
folder: each rank gets a copy of it in memory, so what it writes there is gone with it. It can write there because the
driver opens the cache's index for writing and may do without the cache if it cannot.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

from course_lib.system import gpus, paths

IN_SANDBOX = Path("/gpu-kernels")  # a rank's copy
LARGEST = 2**32  # bytes; the driver allows no more
ROOM = 2**26  # bytes in a rank's copy for kernels that only its script needs


def folder() -> Path | None:
    """Return the private folder for this host's GPUs and their driver, made if missing; None if there is none."""
    kinds = sorted(set(gpus.kinds()))
    if not kinds:
        return None
    path = paths.cache() / "gpu-kernels" / re.sub(r"[^\w.]+", "-", "_".join(kinds))
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)  # fails if it is another account's
    except OSError:
        return None
    return path


def variables(path: Path) -> dict[str, str]:
    """Return the environment variables with which CUDA keeps compiled kernels in a folder."""
    return {"CUDA_CACHE_PATH": str(path), "CUDA_CACHE_MAXSIZE": str(LARGEST)}


def size_of_copy(path: Path) -> int:
    """Return the bytes of a file system that has room for a copy, and for what a script adds to it."""
    return ROOM + sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def copy(source: str, target: str) -> None:
    """Copy the kernels into an existing folder; what cannot be copied is compiled again."""
    with contextlib.suppress(OSError):  # shutil.Error is one
        shutil.copytree(source, target, dirs_exist_ok=True)
