"""Loading the course's data sets.

`load` takes a set from the first place that has it (see sources.py). Offline and with no files it returns the
stand-in `shapes` (see shapes.py) and says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from course_lib.data import shapes, sources, stand_in
from course_lib.data.download import DownloadError
from course_lib.data.published import PUBLISHED, Arrays, Damaged, Published, find
from course_lib.system import variables
from course_lib.system.errors import CourseError
from course_lib.system.notices import notify


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels of a data set.

    Attributes:
        name: the name of the set; "shapes" if the stand-in replaces it.
        source: "directory", "cache", "download" or "stand-in".
        x_train, x_test: images, uint8 [n, h, w, c].
        y_train, y_test: labels, int64 [n].
        classes: names of the classes.
    """

    name: str
    source: str
    x_train: np.ndarray = field(repr=False)
    y_train: np.ndarray = field(repr=False)
    x_test: np.ndarray = field(repr=False)
    y_test: np.ndarray = field(repr=False)
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Fetched:
    """One row of the report of `fetch`: the source and the folder of a set, and its numbers of images."""

    name: str
    source: str
    folder: Path
    train_images: int
    test_images: int


def load(name: str, *, test: bool = True) -> Dataset:
    """Load a data set, or the stand-in of the same shape if the set is not available.

    With COURSE_SLICE=N in the environment, return only the first N training images and N // 4 test images.

    Args:
        name: "fashion_mnist" or "cifar10".
        test: if False, the test images are not read and need not exist; x_test and y_test are empty.

    Raises CourseError for an unknown name, an invalid setting, or a file that is missing or damaged.
    """
    published, limit, wanted = find(name), images_limit(), name
    classes = published.classes
    try:
        folder, source = sources.find(published, test=test)
    except DownloadError as error:
        sources.say(
            f"{name} is not on this machine and can't be downloaded ({error}): "
            "this run uses the stand-in `shapes`, drawn by the course."
        )
        name, source, classes = "shapes", "stand-in", shapes.CLASSES
        x_train, y_train, x_test, y_test = stand_in.load(published, limit)
        if not test:
            x_test, y_test = x_test[:0], y_test[:0]
    else:
        x_train, y_train, x_test, y_test = _read(published, folder, source, test)
    if limit:
        # Copies: a view would keep the whole set in memory.
        x_train, y_train = x_train[:limit].copy(), y_train[:limit].copy()
        x_test, y_test = x_test[: limit // 4].copy(), y_test[: limit // 4].copy()
    notify("data", name=wanted, loaded=name, images=f"{len(x_train):,}")  # the launcher compares the ranks
    return Dataset(name, source, x_train, y_train, x_test, y_test, classes)


def locate(name: str) -> str:
    """The `source` from which `load(name)` would take the set, without reading it.

    Raises CourseError for an unknown name, or if a file is missing in the set's folder in COURSE_DATA_DIR.
    """
    return sources.locate(find(name))


def fetch(names: Iterable[str] | None = None) -> list[Fetched]:
    """Verify the data sets on this machine, and download those that are missing or damaged.

    Args:
        names: names of data sets; default: all.

    Raises CourseError for an unknown name, a damaged file in COURSE_DATA_DIR, or a failed download.
    """
    report = []
    for published in [find(name) for name in names or PUBLISHED]:
        try:
            folder, source, arrays = _fetch(published)
        except DownloadError as error:
            raise CourseError(
                f"{published.name} can't be downloaded ({error}): the lessons use the stand-in `shapes` until the "
                f"download works, or until COURSE_DATA_DIR has its files in a folder {published.folder}."
            ) from error
        report.append(Fetched(published.name, source, folder, len(arrays[0]), len(arrays[2])))
    return report


def show(report: Sequence[Fetched]) -> None:
    """Print the report of `fetch` as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("data set", "from", "training images", "test images", box=None)
    table.add_column("folder", overflow="fold")
    for row in report:
        table.add_row(row.name, row.source, f"{row.train_images:,}", f"{row.test_images:,}", str(row.folder))
    Console().print(table)


def images_limit() -> int | None:
    """The number of images in COURSE_SLICE; None if it is not set. Raises CourseError for an invalid setting."""
    setting = os.environ.get(variables.SLICE)
    if not setting:
        return None
    if not (setting.isascii() and setting.isdigit() and int(setting) >= 4):
        raise CourseError(f"COURSE_SLICE is {setting!r}: set it to a number of images, at least 4, or unset it.")
    return int(setting)


def _read(published: Published, folder: Path, source: str, test: bool = True) -> Arrays:
    try:
        return published.read(folder, test)
    except Damaged as error:
        path, fault = error.args
    except OSError as error:
        path, fault = error.filename or folder, f"can't be read ({error.strerror})"
    if source == "directory":
        raise CourseError(f"{path} {fault}: copy the published file there again or unset COURSE_DATA_DIR.")
    raise CourseError(f"{path} {fault}: `course data {published.name}` downloads it again.")


def _fetch(published: Published) -> tuple[Path, str, Arrays]:
    try:
        folder, source = sources.find(published, patient=True)
        return folder, source, _read(published, folder, source)
    except CourseError:
        if sources.in_directory(published):
            raise  # never replace the user's own files
        folder, source = sources.fetch(published, patient=True, replace=True)
        return folder, source, _read(published, folder, source)
