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
MAX_FILES = 1000

_HEADER = re.compile(rb"(weights\.h5|evidence/[a-z0-9][a-z0-9._-]{0,60}) (\d{1,12})\n")
_MAX_HEADER_BYTES = 100
_CHUNK_BYTES = 2**20


def write(folder: Path, stream: IO[bytes]) -> None:
    """Write the evidence and the weights in `folder` to `stream`; what is no plain file is left out."""
    try:
        names = sorted(os.listdir(folder / EVIDENCE))[:MAX_FILES]
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
                while chunk := os.read(handle, _CHUNK_BYTES):
                    stream.write(chunk)
        finally:
            os.close(handle)


def read(take: Callable[[int], bytes], folder: Path, max_bytes: int) -> None:
    """Put the files of a stream into `folder`, until it ends, has given `max_bytes` bytes or makes no sense.

    `take(n)` gives the stream's next n bytes, fewer only at its end. A file cut short is not kept.
    """
    (folder / EVIDENCE).mkdir(parents=True, exist_ok=True)
    for _ in range(MAX_FILES + 1):
        found = _HEADER.fullmatch(_line(take))
        max_bytes -= int(found.group(2)) if found else 0
        path = folder / found.group(1).decode() if found else folder
        if not found or max_bytes < 0 or path.exists():
            return
        left = int(found.group(2))
        with path.open("wb") as file:
            while left and (chunk := take(min(left, _CHUNK_BYTES))):
                file.write(chunk)
                left -= len(chunk)
        if left:
            path.unlink()
            return


def _line(take: Callable[[int], bytes]) -> bytes:
    line = b""
    while len(line) < _MAX_HEADER_BYTES and (byte := take(1)):
        line += byte
        if byte == b"\n":
            break
    return line
