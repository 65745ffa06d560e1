"""What comes out of the sandbox: the saved weights, and the files that each rank leaves in its record.

Strangers have written these files: known names only, plain files only, so many bytes and no more.
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
MAX_FILES = 1000  # of a record

_NAME = re.compile(r"rank-(\d+)\.[a-z0-9][a-z0-9._-]{0,60}")


def copy_out(work: Path, records: Sequence[Path], taken: Path, most: int) -> None:
    """Copy into `taken` the weights from `work` and, of each rank's folder in `records`, the files `rank-R.…`, at most
    `most` bytes in all.

    Raises OSError where this host can't hold them.
    """
    (taken / RECORD).mkdir(parents=True)
    found = [(work / WEIGHTS, taken / WEIGHTS)]
    for rank, folder in enumerate(records):
        found += [(folder / name, taken / RECORD / name) for name in _names(folder, rank)]
    for source, target in found:
        most -= _copy(source, target, most)


def _names(folder: Path, rank: int) -> list[str]:
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder)[:MAX_FILES])
        return [name for name in names if (match := _NAME.fullmatch(name)) and match[1] == str(rank)]
    return []


def _copy(source: Path, target: Path, most: int) -> int:
    """Copy a plain file that is not larger than `most` bytes; return how many they were."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_size > most:
        os.close(handle)
        return 0
    with open(handle, "rb") as file, target.open("xb") as copy:
        shutil.copyfileobj(file, copy)
    return about.st_size
