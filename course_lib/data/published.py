"""The published data sets: addresses, checksums, file formats, and functions that read and write the files."""

from __future__ import annotations

import gzip
import io
import pickle
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, ClassVar

import numpy as np

from course_lib.system.errors import CourseError

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # x_train, y_train, x_test, y_test


@dataclass(frozen=True)
class Published:
    """One data set as its authors and Keras publish it.

    `read(folder, test)` reads the training images and, unless `test` is False, the test images; it raises Damaged or
    OSError. `write(folder, images, labels)` writes training images into files of the published names and format.
    """

    name: str
    folder: str  # the same in COURSE_DATA_DIR and in Keras's cache
    files: tuple[str, ...]  # what the folder must hold
    test_files: tuple[str, ...]  # the files among them with the test images
    downloads: dict[str, str]  # URL -> SHA-256
    archive: str | None  # the name that Keras gives the downloaded archive
    images: tuple[int, int]  # numbers of training and test images
    image_shape: tuple[int, int, int]
    classes: tuple[str, ...]
    read: Callable[[Path, bool], Arrays]
    write: Callable[[Path, np.ndarray, np.ndarray], None]

    def needed(self, test: bool) -> tuple[str, ...]:
        """The files to read, with or without the test images."""
        return tuple(file for file in self.files if test or file not in self.test_files)


class Damaged(Exception):
    """A file has the wrong content: Damaged(path, fault)."""


def _read_fashion_mnist(folder: Path, test: bool) -> Arrays:
    x_train, y_train = _read_pair(folder, "train")
    x_test, y_test = _read_pair(folder, "t10k") if test else (x_train[:0], y_train[:0])
    return x_train, y_train, x_test, y_test


def _read_pair(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Fashion-MNIST's images and labels of one part: uint8 [n, 28, 28, 1], int64 [n]."""
    labels = _read_idx(folder / f"{part}-labels-idx1-ubyte.gz", ())
    path = folder / f"{part}-images-idx3-ubyte.gz"
    images = _read_idx(path, (28, 28))
    if len(images) != len(labels):
        raise Damaged(path, f"holds {len(images)} images for {len(labels)} labels")
    return images[..., None], labels.astype(np.int64)


def _read_idx(path: Path, item_shape: tuple[int, ...]) -> np.ndarray:
    """A file in the IDX format of MNIST: uint8 [n, *item_shape]; labels are checked to lie below 10."""
    try:
        raw = gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(path, "is cut short or damaged") from error
    start = 8 + 4 * len(item_shape)
    header = np.frombuffer(raw[:start].ljust(start, b"\0"), ">u4")
    values = np.frombuffer(raw, np.uint8, offset=min(start, len(raw)))
    count = int(header[1])
    if header[0] != 0x801 + len(item_shape) or tuple(header[2:]) != item_shape or count == 0:
        raise Damaged(path, "is not the file that its name says")
    if values.size != count * int(np.prod(item_shape)):
        raise Damaged(path, "is cut short or damaged")
    if not item_shape and values.max() > 9:
        raise Damaged(path, "has labels above 9")
    return values.reshape(count, *item_shape).copy()  # an array from `frombuffer` is read-only


def _write_fashion_mnist(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    for name, array in zip(FASHION_MNIST_FILES, (images[..., 0], labels)):
        header = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
        (folder / name).write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), compresslevel=1))


def _read_cifar10(folder: Path, test: bool) -> Arrays:
    images, labels = zip(*(_read_batch(folder / name) for name in CIFAR10_FILES[:-1]))
    x_test, y_test = _read_batch(folder / CIFAR10_FILES[-1]) if test else (images[0][:0], labels[0][:0])
    return np.concatenate(images), np.concatenate(labels), x_test, y_test


def _read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """One of CIFAR-10's pickled files: uint8 [n, 32, 32, 3], int64 [n]."""
    raw = path.read_bytes()
    try:
        batch = _NumPyUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except pickle.UnpicklingError as error:
        raise Damaged(path, f"can't be read ({error})") from error
    except Exception as error:  # a damaged pickle can raise anything, in NumPy or in the unpickler
        raise Damaged(path, "is cut short or damaged") from error
    planes, labels = (batch.get(b"data"), batch.get(b"labels")) if isinstance(batch, dict) else (None, None)
    if not (
        isinstance(planes, np.ndarray)
        and planes.dtype == np.uint8
        and planes.ndim == 2
        and planes.shape[1] == 3072
        and isinstance(labels, list)
        and len(labels) == len(planes) > 0
        and all(type(label) is int and 0 <= label <= 9 for label in labels)
    ):
        raise Damaged(path, "does not hold images of 32 x 32 with labels from 0 to 9")
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.array(labels, np.int64)


def _write_cifar10(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    names = CIFAR10_FILES[:-1]
    if len(images) < len(names):
        raise ValueError(f"{len(images)} images are too few for {len(names)} files.")
    for name, some, their in zip(names, np.array_split(images, len(names)), np.array_split(labels, len(names))):
        planes = np.ascontiguousarray(some.transpose(0, 3, 1, 2)).reshape(len(some), -1)
        with (folder / name).open("wb") as file:
            _Python2Pickler(file, protocol=2).dump({b"data": planes, b"labels": their.tolist()})


class _Python2Pickler(pickle._Pickler):
    """Writes bytes in the format of Python 2, as in the published CIFAR-10: any `encoding` can read them."""

    dispatch: ClassVar[dict] = dict(pickle._Pickler.dispatch)
    write: Callable[[bytes], object]  # set by pickle, undocumented

    def save_bytes(self, raw: bytes) -> None:
        self.write(pickle.BINSTRING + len(raw).to_bytes(4, "little") + raw)

    dispatch[bytes] = save_bytes


class _NumPyUnpickler(pickle.Unpickler):
    """Reads only plain containers, numbers, bytes and NumPy arrays, since a pickle can run any code.

    Raises UnpicklingError for any other class or function, before it is called.
    """

    ALLOWED = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),  # the name in NumPy 2
        }
    )

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it loads {module}.{name}, which no data set needs")
        return super().find_class(module.replace("_core", "core"), name)


FASHION_MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}  # name -> SHA-256
CIFAR10_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
KERAS_MIRROR = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"

PUBLISHED = {
    "fashion_mnist": Published(
        name="fashion_mnist",
        folder="fashion-mnist",
        files=tuple(FASHION_MNIST_FILES),
        test_files=tuple(file for file in FASHION_MNIST_FILES if file.startswith("t10k")),
        downloads={KERAS_MIRROR + file: sha256 for file, sha256 in FASHION_MNIST_FILES.items()},
        archive=None,
        images=(60_000, 10_000),
        image_shape=(28, 28, 1),
        classes=(
            *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
            *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
        ),
        read=_read_fashion_mnist,
        write=_write_fashion_mnist,
    ),
    "cifar10": Published(
        name="cifar10",
        folder="cifar-10-batches-py",
        files=CIFAR10_FILES,
        test_files=CIFAR10_FILES[-1:],
        downloads={
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz": (
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
            )
        },
        archive="cifar-10-batches-py.tar.gz",
        images=(50_000, 10_000),
        image_shape=(32, 32, 3),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        read=_read_cifar10,
        write=_write_cifar10,
    ),
}


def find(name: str) -> Published:
    """The data set of this name. Raises CourseError for an unknown name."""
    if name not in PUBLISHED:
        raise CourseError(f"There is no data set {name!r}: the course has {' and '.join(PUBLISHED)}.")
    return PUBLISHED[name]
