"""A data set of given images, as a sandbox sees it: whatever way it is read, they are these images."""

from __future__ import annotations

import contextlib
import gzip
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import data
from course_lib.data import sources
from course_lib.data.download import DownloadError
from course_lib.data.published import PUBLISHED

BOTH = pytest.mark.parametrize("name", list(PUBLISHED))


@contextlib.contextmanager
def sandbox(bundle):
    """Set the bundle's environment, with its files below a folder instead of the root."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        for file, place in bundle.files.items():
            seen = Path(root) / place.relative_to("/")
            seen.parent.mkdir(parents=True, exist_ok=True)
            seen.symlink_to(file)
        patch.setenv("KERAS_HOME", f"{root}/none")
        patch.setenv("HOME", f"{root}/none")
        patch.delenv("COURSE_DATA_DIR", raising=False)
        for variable, value in bundle.env.items():
            patch.setenv(variable, root + value)
        yield Path(root)


def drawn(name, images, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (images, *PUBLISHED[name].image_shape), dtype=np.uint8)
    return x, rng.integers(0, 10, images)


@BOTH
@pytest.mark.parametrize("offline", [False, True])
@settings(max_examples=20)
@given(images=st.integers(5, 40), seed=st.integers(0, 99))
def test_load_gets_exactly_these_images(name, offline, images, seed):
    def find(*_, **__):
        if offline:
            raise DownloadError("offline")
        return Path("/somewhere"), "cache"

    x, y = drawn(name, images, seed)
    with tempfile.TemporaryDirectory() as folder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sources, "find", find)
            bundle = data.bundle_of(name, Path(folder), x, y)
        assert (bundle.name, bundle.source) == (("shapes", "stand-in") if offline else (name, "cache"))
        with sandbox(bundle):
            loaded = data.load(name, test=False)
    assert loaded.name == bundle.name and len(loaded.x_test) == len(loaded.y_test) == 0
    assert np.array_equal(loaded.x_train, x) and loaded.x_train.dtype == np.uint8
    assert np.array_equal(loaded.y_train, y) and loaded.y_train.dtype == np.int64


@pytest.fixture
def online(monkeypatch):
    monkeypatch.setattr(sources, "find", lambda *_, **__: (Path("/somewhere"), "directory"))


@pytest.mark.parametrize("encoding", ["bytes", "latin1"])
def test_who_unpickles_cifar10_without_the_course_gets_them_too(online, tmp_path, encoding):
    """As Keras does, and as the page of the data set says."""
    x, y = drawn("cifar10", 13, 0)
    found = []
    with sandbox(data.bundle_of("cifar10", tmp_path, x, y)) as root:
        for path in sorted((root / "data" / "cifar-10-batches-py").iterdir()):
            batch = pickle.loads(path.read_bytes(), encoding=encoding)
            pixels, labels = ("data", "labels") if encoding == "latin1" else (b"data", b"labels")
            found.append((batch[pixels].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), batch[labels]))
    assert len(found) == 5
    assert np.array_equal(np.concatenate([images for images, _ in found]), x)
    assert [label for _, labels in found for label in labels] == y.tolist()


def test_who_unpacks_fashion_mnist_without_the_course_gets_them_too(online, tmp_path):
    x, y = drawn("fashion_mnist", 7, 0)
    with sandbox(data.bundle_of("fashion_mnist", tmp_path, x, y)) as root:
        folder = root / "data" / "fashion-mnist"
        with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
            assert np.array_equal(np.frombuffer(file.read(), np.uint8, offset=8), y)
        with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
            assert np.array_equal(np.frombuffer(file.read(), np.uint8, offset=16).reshape(7, 28, 28, 1), x)


def test_four_images_are_too_few_for_five_files(online, tmp_path):
    with pytest.raises(ValueError, match="4 images are too few for 5 files"):
        data.bundle_of("cifar10", tmp_path, *drawn("cifar10", 4, 0))
