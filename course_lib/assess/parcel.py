"""What comes out of the sandbox: files in one stream, each as a line `NAME BYTES` and that many bytes.

The stream is written by a process that a learner's script shares the sandbox with. So whoever reads it takes it for
the work of a stranger: known names only, plain files only, so many bytes and no more.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO

WEIGHTS = "weights.h5"
EVIDENCE = "evidence"
MOST_FILES = 1000

_HEADER = re.compile(rb"(weights\.h5|evidence/[a-z0-9][a-z0-9._-]{0,60}) (\d{1,12})\n")
_LONGEST_HEADER = 100
_PIECE = 2**20


def write(folder: Path, stream: IO[bytes]) -> None:
    """Write the evidence and the weights in `folder` to `stream`; what is no plain file is left out."""
    try:
        names = sorted(os.listdir(folder / EVIDENCE))[:MOST_FILES]
    except OSError:
        names = []
    for name in [*(f"{EVIDENCE}/{name}" for name in names), WEIGHTS]:
        try:
            handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            about = os.fstat(handle)
            header = f"{name} {about.st_size}\n".encode(errors="replace")
            if stat.S_ISREG(about.st_mode) and _HEADER.fullmatch(header):
                stream.write(header)
                while piece := os.read(handle, _PIECE):
                    stream.write(piece)
        finally:
            os.close(handle)


def read(take: Callable[[int], bytes], folder: Path, most: int) -> None:
    """Put the files of a stream into `folder`, until it ends, has given `most` bytes or makes no sense.

    `take(n)` gives the stream's next n bytes, fewer only at its end. A file cut short is not kept.
    """
    (folder / EVIDENCE).mkdir(parents=True, exist_ok=True)
    for _ in range(MOST_FILES + 1):
        found = _HEADER.fullmatch(_line(take))
        most -= int(found.group(2)) if found else 0
        path = folder / found.group(1).decode() if found else folder
        if not found or most < 0 or path.exists():
            return
        left = int(found.group(2))
        with path.open("wb") as file:
            while left and (piece := take(min(left, _PIECE))):
                file.write(piece)
                left -= len(piece)
        if left:
            path.unlink()
            return


def _line(take: Callable[[int], bytes]) -> bytes:
    line = b""
    while len(line) < _LONGEST_HEADER and (byte := take(1)):
        line += byte
        if byte == b"\n":
            break
    return line
