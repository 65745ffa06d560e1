"""The stand-in for a data set: drawn once (see `shapes`), then read from the course's cache."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from pathlib import Path

import numpy as np

from course_lib.data import shapes
from course_lib.data.published import Arrays, Published
from course_lib.system import paths
from course_lib.system.files import locked, replacing

_NAMES = "x_train", "y_train", "x_test", "y_test"


def file(published: Published) -> Path:
    """The file in the cache for the whole stand-in of a set. Its name depends on the version of `shapes`."""
    version = hashlib.sha256(Path(shapes.__file__).read_bytes()).hexdigest()[:12]
    return paths.cache() / f"{_name_prefix(published)}-{version}.npz"


def load(published: Published, limit: int | None = None) -> Arrays:
    """Load the stand-in for a set; draw it if it is not in the cache.

    Drawing the whole stand-in takes seconds, so it is cached for other ranks and later runs.

    Args:
        limit: with a limit and no cached file, draw only `limit` training and `limit` // 4 test images.

    Returns:
        x_train, y_train, x_test, y_test: images uint8 [n, h, w, c], labels int64 [n].
    """
    cached = file(published)
    if limit and not cached.exists():
        return _draw(published, limit, limit // 4)
    with locked(cached.parent / f"{_name_prefix(published)}.lock"):
        try:
            with np.load(cached) as arrays:
                return tuple(arrays[name] for name in _NAMES)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            arrays = _draw(published, *published.images)
        with contextlib.suppress(OSError):
            for old in (
                *cached.parent.glob(f"{_name_prefix(published)}-*.npz"),
                *cached.parent.glob(f".{_name_prefix(published)}-*.part"),
            ):
                old.unlink()
            with replacing(cached) as part, part.open("wb") as stream:
                np.savez(stream, **dict(zip(_NAMES, arrays)))
    return arrays


def _name_prefix(published: Published) -> str:
    """The beginning of the file names of all versions."""
    return "shapes-{}x{}x{}".format(*published.image_shape)


def _draw(published: Published, train_images: int, test_images: int) -> Arrays:
    most_train, most_test = published.images
    return (
        *shapes.draw(min(train_images, most_train), published.image_shape, split="train"),
        *shapes.draw(min(test_images, most_test), published.image_shape, split="test"),
    )
