"""The course's data sets, and how ranks share them.

`load` takes a set from the first place that has it (see sources.py). Offline and with no files it returns the
stand-in `shapes` (see shapes.py) and says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from course_lib.data import shapes, sources
from course_lib.data.download import DownloadError, locked
from course_lib.data.published import PUBLISHED, Arrays, Damaged, Published
from course_lib.system import paths, variables
from course_lib.system.errors import CourseError
from course_lib.system.files import replacing
from course_lib.system.notices import notify


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images uint8 [n, h, w, c], labels int64 [n], and the names of the classes.

    `name` is "shapes" where the stand-in has replaced the set; `source` is "directory", "cache", "download"
    or "stand-in".
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
    """One line of the report of `fetch`: where a set is, and how many images it has."""

    name: str
    source: str
    folder: Path
    train_images: int
    test_images: int


@dataclass(frozen=True)
class Bundle:
    """A data set for a sandbox: its name and source as in `Dataset`, which file goes where, what to set there."""

    name: str
    source: str
    files: dict[Path, Path]
    env: dict[str, str]


def load(name: str, *, test: bool = True) -> Dataset:
    """Load "fashion_mnist" or "cifar10", or the stand-in of the same shape where the set is not to be had.

    With `test` False the test images are neither needed nor read: x_test and y_test are empty.

    With COURSE_SLICE=N in the environment, return the first N training and N // 4 test images only. Raises CourseError
    for an unknown name, a bad setting, or a file that is missing or damaged.
    """
    published, limit, wanted = _published(name), images_limit(), name
    try:
        folder, source = sources.find(published, test=test)
    except DownloadError as error:
        sources.say(
            f"{name} is not on this machine and can't be downloaded ({error}): "
            "this run uses the stand-in `shapes`, drawn by the course."
        )
        arrays, name, source, classes = _stand_in(published, limit), "shapes", "stand-in", shapes.CLASSES
        if not test:
            arrays = *arrays[:2], *(array[:0] for array in arrays[2:])
    else:
        arrays, classes = _read(published, folder, source, test), published.classes
    if limit:
        # Copies, so that the rest of the set does not stay in memory.
        arrays = tuple(a[:n].copy() for a, n in zip(arrays, (limit, limit, limit // 4, limit // 4)))
    notify("data", name=wanted, loaded=name, images=f"{len(arrays[0]):,}")  # all ranks must have the same
    return Dataset(name, source, *arrays, classes)


def locate(name: str) -> str:
    """Where `load(name)` would take the set from, without reading it: the `source` of a Dataset.

    Raises CourseError for an unknown name, or when the set's folder in COURSE_DATA_DIR lacks a file.
    """
    return sources.locate(_published(name))


def bundle(name: str, folder: Path, *, test: bool = True, limit: int | None = None) -> Bundle:
    """What `load(name, test=test)` needs where there is no network: for a sandbox.

    What has to be made for it goes into `folder` and the course's cache. `limit` is the COURSE_SLICE of the sandbox:
    a slice of the stand-in need not be drawn here. Raises CourseError as `load` does.
    """
    published = _published(name)
    try:
        where, source = sources.find(published, test=test)
    except DownloadError:
        if not limit:
            _stand_in(published, None)
        return _stand_in_bundle(published, folder, _kept(published)[0])
    return _published_bundle(published, where, source, test)


def bundle_of(name: str, folder: Path, x_train: np.ndarray, y_train: np.ndarray) -> Bundle:
    """Write these training images into `folder`, as the set is published: for a sandbox in which `load(name,
    test=False)`, and whoever reads the files directly, gets them instead of the set's own.

    Args:
        folder: an empty one, which has to stay as long as the sandbox.
        x_train, y_train: images uint8 [n, h, w, c] of the set's shape, n at least 5, and their labels, int [n].

    Raises CourseError for an unknown name, OSError where the files can't be written.
    """
    published = _published(name)
    try:
        _, source = sources.find(published, test=False)
    except DownloadError:
        kept = folder / _kept(published)[0].name
        np.savez(kept, x_train=x_train, y_train=y_train, x_test=x_train[:0], y_test=y_train[:0])
        return _stand_in_bundle(published, folder, kept)
    published.write(folder, x_train, y_train)
    return _published_bundle(published, folder, source, test=False)


def fetch(names: Iterable[str] | None = None) -> list[Fetched]:
    """Make sure that the sets (all, if none is named) are on this machine and whole; download what is not.

    Raises CourseError for an unknown name, a damaged file in COURSE_DATA_DIR, or a failed download.
    """
    report = []
    for published in [_published(name) for name in names or PUBLISHED]:
        try:
            folder, source, arrays = _fetch(published)
        except DownloadError as error:
            raise CourseError(
                f"{published.name} can't be downloaded ({error}): the lessons run on the stand-in `shapes` "
                f"until it can, or until COURSE_DATA_DIR holds its files in a folder {published.folder}."
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


def shard(
    data: Sequence[np.ndarray],
    rank: int,
    size: int,
    option: int = 1,
    *,
    batch_size: int,
    epoch: int = 0,
    seed: int = 0,
) -> tuple[np.ndarray, ...]:
    """The part of `data`, for example (x, y), that `rank` of `size` ranks trains on in this epoch.

    Option 1: all ranks shuffle the set alike and partition it, so that together they see each image at most
    once. Batch k of all ranks together holds the images of batch k of a single rank with `size` times the
    batch size. Option 2: each rank shuffles the whole set in its own way and reads the first 1/size of it.

    Either way every rank gets the same number of whole batches, for with unequal numbers training deadlocks;
    the few images left over have their chance in another epoch. Raises CourseError.
    """
    if size < 1 or not 0 <= rank < size:
        raise CourseError(f"There is no rank {rank} among {size} ranks: rank runs from 0 to size - 1.")
    if option not in (1, 2):
        raise CourseError(f"The partitioning option is 1 or 2, not {option!r}.")
    if batch_size < 1:
        raise CourseError(f"batch_size is {batch_size}: it must be at least 1.")
    images = len(data[0])
    if any(len(array) != images for array in data):
        raise CourseError(f"The arrays differ in length: {', '.join(str(len(array)) for array in data)}.")
    batches = images // (size * batch_size)
    if batches == 0:
        raise CourseError(
            f"{images} images are too few to give each of {size} ranks a batch of {batch_size}: "
            "take a smaller batch_size."
        )
    if option == 1:
        mine = np.random.default_rng([seed, epoch]).permutation(images)[rank::size]
    else:
        mine = np.random.default_rng([seed, epoch, rank]).permutation(images)
    mine = mine[: batches * batch_size]
    return tuple(array[mine] for array in data)


def _published(name: str) -> Published:
    if name not in PUBLISHED:
        raise CourseError(f"There is no data set {name!r}: the course has {' and '.join(PUBLISHED)}.")
    return PUBLISHED[name]


def images_limit() -> int | None:
    """The number of images in COURSE_SLICE; None where it is not set. Raises CourseError for a bad setting."""
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
            raise  # the user's own files are not ours to replace
        folder, source = sources.fetch(published, patient=True, replace=True)
        return folder, source, _read(published, folder, source)


def _published_bundle(published: Published, where: Path, source: str, test: bool) -> Bundle:
    """The set's files, which lie in the folder `where`."""
    files = {where / file: Path("/data") / published.folder / file for file in published.needed(test)}
    return Bundle(published.name, source, files, {variables.DATA_DIR: "/data"})


def _stand_in_bundle(published: Published, folder: Path, kept: Path) -> Bundle:
    """The stand-in in the file `kept`, if it is there, and a note, made in `folder`, that keeps `load` from waiting."""
    cache = Path("/data/cache")
    inside = cache / paths.cache().name
    note = sources.offline_note(published, folder)
    files = {note: inside / note.name, **({kept: inside / kept.name} if kept.exists() else {})}
    return Bundle("shapes", "stand-in", files, {"XDG_CACHE_HOME": str(cache)})


def _kept(published: Published) -> tuple[Path, str]:
    """Where the whole double of a set is kept once it is drawn, and how the names of all its versions begin."""
    kind = "shapes-{}x{}x{}".format(*published.image_shape)
    version = hashlib.sha256(Path(shapes.__file__).read_bytes()).hexdigest()[:12]
    return paths.cache() / f"{kind}-{version}.npz", kind


def _stand_in(published: Published, limit: int | None) -> Arrays:
    """Draw the set's double. A whole one takes seconds, so it is kept for other ranks and the next start."""
    kept, kind = _kept(published)
    if limit and not kept.exists():
        return _draw(published, limit, limit // 4)
    names = "x_train", "y_train", "x_test", "y_test"
    with locked(paths.cache() / f"{kind}.lock"):
        try:
            with np.load(kept) as arrays:
                return tuple(arrays[name] for name in names)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            arrays = _draw(published, *published.images)
        with contextlib.suppress(OSError):
            for old in (*kept.parent.glob(f"{kind}-*.npz"), *kept.parent.glob(f".{kind}-*.part")):
                old.unlink()
            with replacing(kept) as part, part.open("wb") as file:
                np.savez(file, **dict(zip(names, arrays)))
    return arrays


def _draw(published: Published, train_images: int, test_images: int) -> Arrays:
    most_train, most_test = published.images
    return (
        *shapes.draw(min(train_images, most_train), published.image_shape, split="train"),
        *shapes.draw(min(test_images, most_test), published.image_shape, split="test"),
    )
