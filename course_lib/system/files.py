"""Files that are written whole or not at all, and files as locks."""

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
    """A new name beside `path`, whose folder is made if missing; what the block writes there becomes `path` in the end.

    Where the block fails, `path` stays as it was. Of several writers at the same time, the last to end counts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises OSError where it can't be written."""
    with replacing(path) as draft:
        draft.write_bytes(content)


def require_place(path: Path) -> None:
    """Make the folder of a file that is written later. Raises CourseError (code 2) where it can't be written."""
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
    """Let one process at a time through; `path` is the lock's file, and a lock ends with its process.

    Where no lock is to be had (a read-only folder, some network file systems), everyone is let through.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
