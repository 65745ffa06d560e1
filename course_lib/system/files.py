"""Atomic writes, and locks between processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from course_lib.system.errors import CourseError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Replace `path` atomically: the block writes to the path that this yields, which then gets the name `path`.

    The folder is created if it is missing. If the block fails, `path` stays as it is. If several processes write at the
    same time, the last one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Write a file atomically. Raises OSError if it can't be written."""
    with replacing(path) as draft:
        draft.write_bytes(content)


def require_place(path: Path) -> None:
    """Check that a file can be written later, and create its folder. Raises CourseError (code 2) if it can't."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        path.open("a").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise CourseError(f"{path} can't be written ({error.strerror}): name another file.", code=2) from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the file `path` during the block; other processes wait. The lock ends with its process.

    Without support for locks (a read-only folder, some network file systems) nobody waits.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
