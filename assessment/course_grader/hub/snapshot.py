"""Copy a folder that its owner may change meanwhile, without reading anything outside of it.

Every name is opened in the opened folder above it, and no link is followed: what becomes a link while it is copied
leads nowhere. Sizes and numbers are bounded. When the folder was handed in is judged by the change times of the kernel
(`st_ctime`), which its owner can make later and never earlier.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from course_grader.classroom.learners_notebook import Unusable
from course_grader.classroom.submissions import MAX_BYTES as MAX_FILE_BYTES

MAX_BYTES = 100_000_000  # of all files together; nbgrader submits no more
MAX_FILES = 2_000  # that are copied
MAX_ENTRIES = 10_000  # files and folders that are looked at
MAX_DEPTH = 4  # of folders
TIMESTAMP, SECRET = "timestamp.txt", "submission_secret.txt"  # nbgrader writes them last; they are not copied
GRADED = (".ipynb", ".py", ".zip")  # copied first: other files must not use up MAX_BYTES and MAX_FILES


@dataclass
class Listing:
    """What lies in a folder.

    Attributes:
        files: path of each file that may be copied → its size in bytes.
        refused: path of anything else → why it is not copied.
        changed: the latest change of the folder or of anything in it, in nanoseconds since 1970.
    """

    files: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    changed: int = 0

    @property
    def time(self) -> datetime:
        """The latest change."""
        return datetime.fromtimestamp(self.changed / 1e9, timezone.utc)


@dataclass(frozen=True)
class Snapshot:
    """A copy of a folder.

    Attributes:
        digest: of the names and contents of its files.
        refused: path of what was not copied → why.
        time: the latest change of the original, up to the end of the copying.
    """

    digest: str
    refused: dict[str, str]
    time: datetime


@contextlib.contextmanager
def opened(name: str | Path, folder: int | None = None, flags: int = os.O_DIRECTORY) -> Iterator[int]:
    """Open a name, by default a folder, in an opened folder; yield its descriptor. Raises OSError for a link."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def examine(folder: int) -> Listing:
    """List what lies in an opened folder, without hidden files.

    Raises Unusable for too many files that are graded, and if the folder is gone.
    """
    listing = Listing(changed=os.fstat(folder).st_ctime_ns)
    try:
        for number, (path, entry) in enumerate(_entries(folder, listing.refused), 1):
            if number > MAX_ENTRIES:
                listing.refused[path] = f"like all that follows, it comes after {MAX_ENTRIES:,} files and folders"
                break
            listing.changed = max(listing.changed, entry.st_ctime_ns)
            if problem := _problem(entry):
                listing.refused[path] = problem
            elif stat.S_ISREG(entry.st_mode):
                listing.files[path] = entry.st_size
    except OSError as error:
        raise Unusable(f"It cannot be read ({error.strerror}).") from None
    _refuse_surplus(listing)
    return listing


def copy(folder: int, target: Path | None = None) -> Snapshot:
    """Copy the files of an opened folder, but for TIMESTAMP and SECRET, into the new folder `target`.

    Without a target they are read for the digest only. Raises Unusable as `examine`, OSError if `target` can't be
    written.
    """
    listing = examine(folder)
    refused, digest, left = dict(listing.refused), hashlib.sha256(), MAX_BYTES
    if target:
        target.mkdir()
    for path in sorted(listing.files.keys() - {TIMESTAMP, SECRET}, key=_order):
        try:
            content = read(folder, path, min(left, MAX_FILE_BYTES))
        except (OSError, Unusable) as error:
            refused[path] = f"it cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
            continue
        left -= len(content)
        digest.update(os.fsencode(path) + b"\0" + hashlib.sha256(content).digest())
        if target:
            place = target / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    return Snapshot(digest.hexdigest(), refused, examine(folder).time)


def read(folder: int, path: str, limit: int) -> bytes:
    """Return the content of a file below an opened folder.

    Raises OSError if it can't be read, Unusable if it is no file or larger than `limit` bytes.
    """
    name, _, rest = path.partition("/")
    if rest:
        with opened(name, folder) as below:
            return read(below, rest, limit)
    with opened(name, folder, os.O_NONBLOCK) as descriptor:  # what became a FIFO does not block
        entry = os.fstat(descriptor)
        if not stat.S_ISREG(entry.st_mode) or _problem(entry):
            raise Unusable(_problem(entry) or "it is no file")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    if len(content) > limit:
        raise Unusable(f"with it the submission is larger than {MAX_BYTES // 1_000_000} MB")
    return content


def _entries(folder: int, refused: dict[str, str], above: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield (path, what it is) of all that lies below an opened folder; add to `refused` what cannot be read."""
    for name in sorted(os.listdir(folder), key=_order):
        path = above + name
        if name.startswith("."):
            continue
        try:
            entry = os.stat(name, dir_fd=folder, follow_symlinks=False)
            yield path, entry
            if stat.S_ISDIR(entry.st_mode):
                if path.count("/") == MAX_DEPTH:
                    refused[path] = f"it lies more than {MAX_DEPTH} folders deep"
                    continue
                with opened(name, folder) as below:
                    yield from _entries(below, refused, f"{path}/")
        except OSError as error:
            refused[path] = f"it cannot be read ({error.strerror})"


def _order(path: str) -> tuple[bool, bool, str]:
    """Return what files are sorted by: those first that a submission cannot do without, then those that are graded."""
    return path not in (TIMESTAMP, SECRET), not path.endswith(GRADED), path


def _refuse_surplus(listing: Listing) -> None:
    """Move files that are not graded, beyond MAX_FILES, to `refused`. Raises Unusable if too many are graded."""
    surplus = sorted(listing.files, key=_order)[MAX_FILES:]
    if any(path.endswith(GRADED) for path in surplus):
        raise Unusable(f"It has more than {MAX_FILES:,} notebooks and Python files.")
    for path in surplus:
        listing.refused[path] = f"the submission has more than {MAX_FILES:,} files"
        del listing.files[path]


def _problem(entry: os.stat_result) -> str:
    """Return why an entry is not copied; "" for folders and files that are."""
    if stat.S_ISLNK(entry.st_mode):
        return "it is a link"
    if stat.S_ISDIR(entry.st_mode):
        return ""
    if not stat.S_ISREG(entry.st_mode):
        return "it is no file"
    if entry.st_nlink > 1:
        return "it is a hard link: the file has another name"
    return f"it is larger than {MAX_FILE_BYTES // 1_000_000} MB" if entry.st_size > MAX_FILE_BYTES else ""
