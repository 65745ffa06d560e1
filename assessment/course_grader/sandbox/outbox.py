"""Copy files out of the sandbox: the saved weights, and the files of each rank's record.

Learners' code has written these files. So only regular files with known names are copied, up to a total size.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

WEIGHTS = "weights.h5"
RECORD = "record"
MAX_FILES = 1000  # of a rank's record

_NAME = re.compile(r"rank-(\d+)\.[a-z0-9][a-z0-9._-]{0,60}")


def copy_out(work: Path, records: Sequence[Path], target: Path, max_bytes: int) -> None:
    """Copy the weights from `work`, and the files `rank-R.…` from each rank's folder in `records`, into `target`.

    Files beyond `max_bytes` in all are left out. Raises OSError if this host has no room for the copies.
    """
    (target / RECORD).mkdir(parents=True)
    pairs = [(work / WEIGHTS, target / WEIGHTS)]
    for rank, folder in enumerate(records):
        pairs += [(folder / name, target / RECORD / name) for name in _names(folder, rank)]
    for source, copy in pairs:
        max_bytes -= _copy(source, copy, max_bytes)


def _names(folder: Path, rank: int) -> list[str]:
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder)[:MAX_FILES])
        return [name for name in names if (match := _NAME.fullmatch(name)) and match[1] == str(rank)]
    return []


def _copy(source: Path, target: Path, max_bytes: int) -> int:
    """Copy a regular file that is not larger than `max_bytes`; return the number of copied bytes."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
        os.close(handle)
        return 0
    with open(handle, "rb") as file, target.open("xb") as copy:
        shutil.copyfileobj(file, copy)
    return status.st_size
