"""Find a published data set: in COURSE_DATA_DIR, else in Keras's cache, else on the internet."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import os
import shutil
import sys
import tarfile
import time
import uuid
import zlib
from pathlib import Path

from course_lib.data.download import DownloadError, download, probe
from course_lib.data.published import Published
from course_lib.system import paths, variables
from course_lib.system.errors import CourseError
from course_lib.system.files import locked, write
from course_lib.system.rank import rank

TIMEOUT_S = 4  # seconds to wait for a server before the stand-in is used
LONG_TIMEOUT_S = 30  # seconds to wait if the user asked for a download
RETRY_AFTER = 600  # seconds after a failed download before the next try, so that not every rank waits


def find(published: Published, *, patient: bool = False, test: bool = True) -> tuple[Path, str]:
    """Return the folder with the set's files, downloaded if necessary, and its source as in `data.Dataset`.

    Args:
        patient: wait LONG_TIMEOUT_S for a server, and retry a recent failure.
        test: if False, COURSE_DATA_DIR need not have the files of the test images.

    Raises:
        DownloadError: the set is not on this machine, and the download failed.
        CourseError: the set's files are incomplete.
    """
    if folder := in_directory(published, test=test):
        return folder, "directory"
    if folder := _in_cache(published):
        return folder, "cache"
    if archive := _archive(published):
        with locked(paths.cache() / f"{published.name}.lock"):
            return _in_cache(published) or _unpack(published, archive), "cache"
    return fetch(published, patient=patient)


def locate(published: Published) -> str:
    """The source that `find` would return, without a download; "stand-in" if there is none."""
    if in_directory(published):
        return "directory"
    if _in_cache(published) or _archive(published):
        return "cache"
    try:
        _raise_recent_failure(published)
        probe(next(iter(published.downloads)), timeout=TIMEOUT_S)
    except DownloadError:
        return "stand-in"
    return "download"


def in_directory(published: Published, *, test: bool = True) -> Path | None:
    """The set's folder in COURSE_DATA_DIR; None if it does not exist. Raises CourseError if a file is missing."""
    setting = os.environ.get(variables.DATA_DIR)
    if not setting:
        return None
    root = Path(setting).expanduser()
    if not root.is_dir():
        raise CourseError(f"COURSE_DATA_DIR is {setting}, which is not a folder: correct it or unset it.")
    folder = root / published.folder
    try:
        if not folder.exists():
            return None
        lacking = next((file for file in published.needed(test) if not (folder / file).is_file()), None)
    except OSError as error:
        raise CourseError(f"{folder} can't be read ({error.strerror}): correct its permissions.") from None
    if lacking:
        advice = "copy the published file there or unset COURSE_DATA_DIR"
        if lacking in published.test_files and (folder / published.files[0]).is_file():
            advice = f'data.load("{published.name}", test=False) needs no test images'
        raise CourseError(f"{folder / lacking} is missing: {advice}.")
    return folder


def fetch(published: Published, *, patient: bool, replace: bool = False) -> tuple[Path, str]:
    """Download files that are missing in Keras's cache; return the folder and the source.

    The source is "cache" if another rank has just downloaded the set.

    Args:
        patient: wait longer for a server, and retry a recent failure.
        replace: also replace damaged files.

    Raises:
        DownloadError: the download failed.
        CourseError: the archive is damaged or can't be unpacked.
    """
    cache = _keras_caches()[0]
    with locked(paths.cache() / f"{published.name}.lock"):
        folder = _in_cache(published)
        if folder and not replace:
            return folder, "cache"
        if not patient:
            _raise_recent_failure(published)
        try:
            for url, sha256 in published.downloads.items():
                path = cache / (published.archive or f"{published.folder}/{url.rsplit('/', 1)[1]}")
                if not (path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256):
                    download(url, path, sha256, timeout=LONG_TIMEOUT_S if patient else TIMEOUT_S)
        except OSError as error:
            _remember_failure(published, error)
            raise error if isinstance(error, DownloadError) else DownloadError(str(error)) from error
        _failure(published).unlink(missing_ok=True)
        return _unpack(published, path) if published.archive else path.parent, "download"


@functools.cache
def say(line: str) -> None:
    """Write a line to stderr, once per process and only on rank 0."""
    if rank() == 0:
        print(line, file=sys.stderr, flush=True)


def _keras_caches() -> list[Path]:
    """The folders in which Keras keeps data sets; the course downloads into the first."""
    homes = [os.environ.get("KERAS_HOME"), "~/.keras"]
    return [Path(home).expanduser() / "datasets" for home in homes if home]


def _in_cache(published: Published) -> Path | None:
    for cache in _keras_caches():
        folder = cache / published.folder
        if all(_can_be_read(folder / file) for file in published.files):
            return folder
    return None


def _archive(published: Published) -> Path | None:
    """The archive in Keras's cache, if there is one. Keras unpacks it when it loads the set for the first time."""
    archives = [cache / published.archive for cache in _keras_caches() if published.archive]
    return next((archive for archive in archives if _can_be_read(archive)), None)


def _can_be_read(path: Path) -> bool:
    """Whether `path` is a file that this account can read."""
    with contextlib.suppress(OSError):
        return path.is_file() and os.access(path, os.R_OK)
    return False


def _unpack(published: Published, archive: Path) -> Path:
    """Unpack the set's files into a folder next to the archive, all or none; return the folder."""
    folder = archive.parent / published.folder
    part = archive.parent / f".{published.folder}.{uuid.uuid4().hex}.part"
    try:
        part.mkdir()
        with tarfile.open(archive) as tar:
            for member in tar:  # in the archive's order: seeking back would decompress it again from the start
                file = member.name.rpartition("/")[2]
                if member.isfile() and file in published.files and (content := tar.extractfile(member)):
                    (part / file).write_bytes(content.read())
        if missing := sorted(set(published.files) - {path.name for path in part.iterdir()}):
            raise tarfile.ReadError(f"no {missing[0]}")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CourseError(
            f"{archive} is cut short or damaged: `course data {published.name}` downloads it again."
        ) from error
    except OSError as error:
        raise CourseError(
            f"{archive} can't be unpacked into its folder ({error.strerror}): "
            "unpack it into another folder and set COURSE_DATA_DIR to that folder."
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _failure(published: Published) -> Path:
    """The file that records a failed download: its text is the reason, its age decides when to retry."""
    return paths.cache() / f"{published.name}.offline"


def offline_note(published: Published, folder: Path) -> Path:
    """Write the record of a failed download into `folder`; in a sandbox's cache it prevents waiting for the network."""
    note = folder / _failure(published).name
    note.write_text("there is no network here")
    return note


def _remember_failure(published: Published, error: OSError) -> None:
    with contextlib.suppress(OSError):
        write(_failure(published), str(error).encode())


def _raise_recent_failure(published: Published) -> None:
    note = _failure(published)
    try:
        recent = time.time() - note.stat().st_mtime < RETRY_AFTER
        reason = note.read_text()
    except OSError:
        return
    if recent:
        raise DownloadError(reason)
