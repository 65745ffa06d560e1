"""Data sets for sandboxes without a network: the files to bind, and the environment variables to set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from course_lib.data import sources, stand_in
from course_lib.data.download import DownloadError
from course_lib.data.published import Published, find
from course_lib.system import paths, variables


@dataclass(frozen=True)
class Bundle:
    """A data set for a sandbox.

    Attributes:
        name, source: as in `Dataset`.
        files: path on the host → path in the sandbox.
        env: environment variables of the sandbox.
    """

    name: str
    source: str
    files: dict[Path, Path]
    env: dict[str, str]


def bundle(name: str, folder: Path, *, test: bool = True, limit: int | None = None) -> Bundle:
    """The files and variables that `load(name, test=test)` needs in a sandbox without a network.

    Args:
        folder: an empty folder for files that are made for the sandbox; others go into the course's cache.
        limit: COURSE_SLICE of the sandbox. With a limit, the sandbox draws the stand-in itself.

    Raises CourseError as `load` does.
    """
    published = find(name)
    try:
        where, source = sources.find(published, test=test)
    except DownloadError:
        if not limit:
            stand_in.load(published)
        return _of_stand_in(published, folder, stand_in.file(published))
    return _of_published(published, where, source, test)


def bundle_of(name: str, folder: Path, x_train: np.ndarray, y_train: np.ndarray) -> Bundle:
    """Write training images in the published format, for a sandbox that gets them instead of the set's own.

    In the sandbox `load(name, test=False)` returns these images, and a script that reads the files gets them too.

    Args:
        folder: an empty folder, which must exist as long as the sandbox.
        x_train, y_train: images uint8 [n, h, w, c] of the set's shape, n at least 5, and their labels, int [n].

    Raises CourseError for an unknown name, OSError if the files can't be written.
    """
    published = find(name)
    try:
        _, source = sources.find(published, test=False)
    except DownloadError:
        copy = folder / stand_in.file(published).name
        np.savez(copy, x_train=x_train, y_train=y_train, x_test=x_train[:0], y_test=y_train[:0])
        return _of_stand_in(published, folder, copy)
    published.write(folder, x_train, y_train)
    return _of_published(published, folder, source, test=False)


def _of_published(published: Published, where: Path, source: str, test: bool) -> Bundle:
    """The bundle of the set's files in the folder `where`."""
    files = {where / file: Path("/data") / published.folder / file for file in published.needed(test)}
    return Bundle(published.name, source, files, {variables.DATA_DIR: "/data"})


def _of_stand_in(published: Published, folder: Path, drawn: Path) -> Bundle:
    """The bundle of the stand-in: the file `drawn`, if it exists, and a note, so that `load` tries no download."""
    cache = Path("/data/cache")
    inside = cache / paths.cache().name
    note = sources.offline_note(published, folder)
    files = {note: inside / note.name, **({drawn: inside / drawn.name} if drawn.exists() else {})}
    return Bundle("shapes", "stand-in", files, {"XDG_CACHE_HOME": str(cache)})
