"""Data sets for sandboxes, where there is no network: which file goes where, and what is set in the environment."""

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
    """A data set for a sandbox: its name and source as in `Dataset`, which file goes where, what to set there."""

    name: str
    source: str
    files: dict[Path, Path]
    env: dict[str, str]


def bundle(name: str, folder: Path, *, test: bool = True, limit: int | None = None) -> Bundle:
    """What `load(name, test=test)` needs where there is no network: for a sandbox.

    What has to be made for it goes into `folder` and the course's cache. `limit` is the COURSE_SLICE of the sandbox:
    a slice of the stand-in need not be drawn here. Raises CourseError as `load` does.
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
    """Write these training images into `folder`, as the set is published: for a sandbox in which `load(name,
    test=False)`, and whoever reads the files directly, gets them instead of the set's own.

    Args:
        folder: an empty one, which has to stay as long as the sandbox.
        x_train, y_train: images uint8 [n, h, w, c] of the set's shape, n at least 5, and their labels, int [n].

    Raises CourseError for an unknown name, OSError where the files can't be written.
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
    """The set's files, which lie in the folder `where`."""
    files = {where / file: Path("/data") / published.folder / file for file in published.needed(test)}
    return Bundle(published.name, source, files, {variables.DATA_DIR: "/data"})


def _of_stand_in(published: Published, folder: Path, drawn: Path) -> Bundle:
    """The stand-in in the file `drawn`, if there is one, and a note, made in `folder`, that `load` need not wait."""
    cache = Path("/data/cache")
    inside = cache / paths.cache().name
    note = sources.offline_note(published, folder)
    files = {note: inside / note.name, **({drawn: inside / drawn.name} if drawn.exists() else {})}
    return Bundle("shapes", "stand-in", files, {"XDG_CACHE_HOME": str(cache)})
