"""Where data sets come from, what happens when files are missing or damaged, how ranks share the images."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, ClassVar
from urllib.error import URLError

import numpy as np
import pytest

from course_lib import data
from course_lib.data import download, published, shapes, sources
from course_lib.system.errors import CourseError

FASHION, CIFAR = published.PUBLISHED["fashion_mnist"], published.PUBLISHED["cifar10"]
BOTH = pytest.mark.parametrize("name", ["fashion_mnist", "cifar10"])
REAL_DATA = os.environ.get("COURSE_DATA_DIR")


# Small files in the published layouts


def idx(array: np.ndarray) -> bytes:
    header = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)  # the same bytes each time


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2 did, in whose format CIFAR-10 is published."""

    dispatch: ClassVar[dict] = dict(pickle._Pickler.dispatch)

    def save_py2(self, text: str | bytes) -> None:
        raw = text.encode("latin1") if isinstance(text, str) else text
        self.write(pickle.BINSTRING + len(raw).to_bytes(4, "little") + raw)

    dispatch[str] = dispatch[bytes] = save_py2


def python2_pickle(value: object) -> bytes:
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue()


def fashion_files(train: int = 20, test: int = 8) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte.gz": idx(rng.integers(0, 256, (train, 28, 28))),
        "train-labels-idx1-ubyte.gz": idx(np.arange(train) % 10),
        "t10k-images-idx3-ubyte.gz": idx(rng.integers(0, 256, (test, 28, 28))),
        "t10k-labels-idx1-ubyte.gz": idx(np.arange(test) % 10),
    }


def cifar_batch(first: int, images: int = 4) -> dict[str, object]:
    planes = np.arange(images * 3072).astype(np.uint8).reshape(images, 3072)
    return {b"batch_label": b"a batch", b"data": planes, b"labels": [(first + i) % 10 for i in range(images)]}


def cifar_files() -> dict[str, bytes]:
    return {file: python2_pickle(cifar_batch(i)) for i, file in enumerate(CIFAR.files)}


def files_of(name: str) -> dict[str, bytes]:
    return fashion_files() if name == "fashion_mnist" else cifar_files()


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return folder


def cifar_archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for file, content in {**files, "../outside": b"!", "readme.html": b"hello"}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{file}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class Internet:
    """Stands in for urlopen: it serves `content` by URL and counts the requests."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.error: Exception | None = URLError(OSError(-2, "Name or service not known"))
        self.delay = 0.0

    def urlopen(self, request: object, timeout: float) -> object:
        self.requests.append(request.full_url)
        time.sleep(self.delay)
        if self.error:
            raise self.error
        body = io.BytesIO(self.content[request.full_url])
        body.headers = {"Content-Length": str(len(body.getvalue()))}
        return body

    def serve(self, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes]) -> None:
        """Publish `files` under the set's URLs, with checksums to match."""
        known = published.PUBLISHED[name]
        if known.archive:
            bodies = {url: cifar_archive(files) for url in known.downloads}
        else:
            bodies = {url: files[url.rsplit("/", 1)[1]] for url in known.downloads}
        sums = {url: hashlib.sha256(body).hexdigest() for url, body in bodies.items()}
        monkeypatch.setitem(published.PUBLISHED, name, replace(known, downloads=sums))
        self.content, self.error = bodies, None


@pytest.fixture(autouse=True)
def internet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Internet:
    """Every test starts offline, with an empty home and no settings."""
    for variable in ("COURSE_DATA_DIR", "COURSE_SLICE", "KERAS_HOME", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sources, "_said", set())
    internet = Internet()
    monkeypatch.setattr(download, "urlopen", internet.urlopen)
    return internet


@pytest.fixture
def small_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole stand-in of 60 and 20 images, so that drawing it takes no time."""
    for name, known in published.PUBLISHED.items():
        monkeypatch.setitem(published.PUBLISHED, name, replace(known, images=(60, 20)))


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("COURSE_DATA_DIR", str(folder))
    return folder


def keras_cache(tmp_path: Path) -> Path:
    return tmp_path / "home/.keras/datasets"


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} if folder.exists() else set()


# COURSE_DATA_DIR


def test_fashion_mnist_from_the_directory(directory: Path) -> None:
    put(directory / "fashion-mnist", fashion_files(train=20, test=8))
    loaded = data.load("fashion_mnist")
    assert (loaded.name, loaded.source, data.locate("fashion_mnist")) == (
        "fashion_mnist",
        "directory",
        "directory",
    )
    assert loaded.x_train.shape == (20, 28, 28, 1) and loaded.x_test.shape == (8, 28, 28, 1)
    assert loaded.x_train.dtype == np.uint8 and loaded.y_train.dtype == np.int64
    expected = np.random.default_rng(0).integers(0, 256, (20, 28, 28))
    np.testing.assert_array_equal(loaded.x_train[..., 0], expected)
    np.testing.assert_array_equal(loaded.y_test, np.arange(8))
    assert len(loaded.classes) == 10


def test_cifar10_from_the_directory(directory: Path) -> None:
    put(directory / "cifar-10-batches-py", cifar_files())
    loaded = data.load("cifar10")
    assert (loaded.name, loaded.source) == ("cifar10", "directory")
    assert loaded.x_train.shape == (20, 32, 32, 3) and loaded.x_test.shape == (4, 32, 32, 3)
    assert loaded.x_train.dtype == np.uint8 and loaded.y_train.dtype == np.int64
    np.testing.assert_array_equal(loaded.y_train[:8], [0, 1, 2, 3, 1, 2, 3, 4])
    # Each row of the file holds all red values, then all green, then all blue.
    row = cifar_batch(0)[b"data"][1]
    np.testing.assert_array_equal(loaded.x_train[1, 0, 5], row[[5, 1024 + 5, 2048 + 5]])


def test_pickles_of_python_3_are_read_as_well(directory: Path) -> None:
    files = {file: pickle.dumps(cifar_batch(i), protocol=3) for i, file in enumerate(CIFAR.files)}
    put(directory / "cifar-10-batches-py", files)
    assert len(data.load("cifar10").x_train) == 20


def test_the_arrays_can_be_written_to(directory: Path) -> None:
    put(directory / "fashion-mnist", fashion_files())
    loaded = data.load("fashion_mnist")
    loaded.x_train[0] = 7
    assert (loaded.x_train[0] == 7).all()


def test_a_directory_without_the_set_is_passed_over(directory: Path, small_stand_in: None) -> None:
    assert data.load("cifar10").source == "stand-in"


def test_a_directory_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path / "no-such"))
    with pytest.raises(CourseError, match="no-such, which is not a folder"):
        data.load("cifar10")


@BOTH
def test_every_missing_file_is_named(directory: Path, name: str) -> None:
    known = published.PUBLISHED[name]
    folder = put(directory / known.folder, files_of(name))
    for file in known.files:
        content = (folder / file).read_bytes()
        (folder / file).unlink()
        for call in (data.load, data.locate, lambda name: data.fetch([name])):
            with pytest.raises(CourseError, match=f"{file} is missing"):
                call(name)
        if file in known.test_files:
            with pytest.raises(CourseError, match=r"test=False. does without the test images"):
                data.load(name)
            assert len(data.load(name, test=False).x_test) == 0
        (folder / file).write_bytes(content)
    data.load(name)


@BOTH
@pytest.mark.parametrize("keep", [0.0, 0.02, 0.5, 0.999])
def test_every_truncated_file_is_named(directory: Path, name: str, keep: float) -> None:
    known = published.PUBLISHED[name]
    folder = put(directory / known.folder, files_of(name))
    for file in known.files:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: int(keep * len(content))])
        with pytest.raises(CourseError) as error:
            data.load(name)
        sentence = str(error.value)
        assert str(folder / file) in sentence and "\n" not in sentence and sentence.endswith(".")
        (folder / file).write_bytes(content)


def test_damage_inside_a_gzip_file_is_noticed(directory: Path) -> None:
    folder = put(directory / "fashion-mnist", fashion_files())
    path = folder / "train-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(CourseError, match="train-images-idx3-ubyte"):
        data.load("fashion_mnist")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("train-images-idx3-ubyte.gz", idx(np.zeros((20, 27, 28)))),  # another size
        ("train-images-idx3-ubyte.gz", idx(np.zeros((19, 28, 28)))),  # fewer images than labels
        ("train-images-idx3-ubyte.gz", idx(np.zeros(20))),  # labels
        ("train-images-idx3-ubyte.gz", idx(np.zeros((0, 28, 28)))),
        ("t10k-labels-idx1-ubyte.gz", idx(np.full(8, 10))),  # no such class
        ("t10k-labels-idx1-ubyte.gz", idx(np.zeros(0))),
        ("t10k-labels-idx1-ubyte.gz", gzip.compress(b"")),
        ("t10k-labels-idx1-ubyte.gz", b"<html>not found</html>"),
    ],
    ids=["size", "number", "labels", "none", "class", "no-labels", "empty", "page"],
)
def test_a_fashion_mnist_file_of_another_content_is_named(directory: Path, file: str, content: bytes) -> None:
    folder = put(directory / "fashion-mnist", fashion_files())
    (folder / file).write_bytes(content)
    with pytest.raises(CourseError, match=file):
        data.load("fashion_mnist")


@pytest.mark.parametrize(
    "batch",
    [
        {b"labels": [0] * 4},
        {b"data": np.zeros((4, 3072), np.uint8)},
        {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0] * 3},
        {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 10]},
        {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, "three"]},
        {b"data": np.zeros((4, 1024), np.uint8), b"labels": [0] * 4},
        {b"data": np.zeros((4, 3072)), b"labels": [0] * 4},
        {b"data": np.zeros((0, 3072), np.uint8), b"labels": []},
        [1, 2, 3],
    ],
)
def test_a_cifar10_file_of_another_content_is_named(directory: Path, batch: object) -> None:
    folder = put(directory / "cifar-10-batches-py", cifar_files())
    (folder / "data_batch_3").write_bytes(pickle.dumps(batch, protocol=3))
    with pytest.raises(CourseError, match="data_batch_3"):
        data.load("cifar10")


class Malicious:
    def __init__(self, function: object, *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize("call", [(os.system, "touch {}"), (open, "{}", "w"), (eval, "open('{}', 'w')")])
def test_a_malicious_pickle_is_refused_and_nothing_of_it_runs(directory: Path, tmp_path: Path, call: tuple) -> None:
    trace = tmp_path / "trace"
    function, *args = call
    batch = {**cifar_batch(0), b"extra": Malicious(function, *(arg.format(trace) for arg in args))}
    folder = put(directory / "cifar-10-batches-py", cifar_files())
    (folder / "test_batch").write_bytes(pickle.dumps(batch, protocol=3))
    pickle.loads(pickle.dumps(batch))  # it does do harm where it is trusted
    assert trace.exists()
    trace.unlink()
    with pytest.raises(CourseError, match=r"test_batch can't be read \(it asks for"):
        data.load("cifar10")
    assert not trace.exists()


@pytest.mark.skipif(not REAL_DATA, reason="COURSE_DATA_DIR does not name the real data sets")
@pytest.mark.parametrize(("name", "train"), [("fashion_mnist", 60_000), ("cifar10", 50_000)])
def test_the_real_set(monkeypatch: pytest.MonkeyPatch, name: str, train: int) -> None:
    monkeypatch.setenv("COURSE_DATA_DIR", REAL_DATA)
    loaded = data.load(name)
    assert (loaded.name, loaded.source) == (name, "directory")
    assert loaded.x_train.shape == (train, *published.PUBLISHED[name].image_shape)
    assert set(np.bincount(loaded.y_train)) == {train // 10}
    assert len(loaded.x_test) == len(loaded.y_test) >= 5_000
    # Images, and not planes or rows mixed up: neighbours resemble each other.
    image = loaded.x_train[:500].astype(float)
    assert np.abs(np.diff(image, axis=1)).mean() < 0.6 * np.abs(image - image[::-1]).mean()
    assert np.abs(np.diff(image, axis=2)).mean() < 0.6 * np.abs(image - image[::-1]).mean()


# Keras's cache


@BOTH
def test_what_keras_has_unpacked_is_found(tmp_path: Path, internet: Internet, name: str) -> None:
    put(keras_cache(tmp_path) / published.PUBLISHED[name].folder, files_of(name))
    loaded = data.load(name)
    assert (loaded.name, loaded.source, data.locate(name)) == (name, "cache", "cache")
    assert not internet.requests


def test_keras_home_comes_before_the_usual_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put(keras_cache(tmp_path) / "fashion-mnist", fashion_files(train=20))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    assert len(data.load("fashion_mnist").x_train) == 20
    put(tmp_path / "keras/datasets/fashion-mnist", fashion_files(train=30))
    assert len(data.load("fashion_mnist").x_train) == 30


@pytest.mark.parametrize("unpacking_was_interrupted", [False, True])
def test_the_archive_alone_is_unpacked(tmp_path: Path, internet: Internet, unpacking_was_interrupted: bool) -> None:
    cache = keras_cache(tmp_path)
    cache.mkdir(parents=True)
    (cache / "cifar-10-batches-py.tar.gz").write_bytes(cifar_archive(cifar_files()))
    if unpacking_was_interrupted:
        put(cache / "cifar-10-batches-py", {"data_batch_1": b"half"})
    assert data.locate("cifar10") == "cache"
    loaded = data.load("cifar10")
    assert (loaded.source, len(loaded.x_train)) == ("cache", 20)
    unpacked = {f"cifar-10-batches-py/{file}" for file in CIFAR.files}
    assert everything_in(cache) == {"cifar-10-batches-py.tar.gz", "cifar-10-batches-py", *unpacked}
    assert everything_in(tmp_path / "home") == {".keras", ".keras/datasets"} | {
        f".keras/datasets/{path}" for path in everything_in(cache)
    }
    assert not internet.requests


def test_a_damaged_archive_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    cache = keras_cache(tmp_path)
    cache.mkdir(parents=True)
    whole = cifar_archive(cifar_files())
    for content in (whole[: len(whole) // 2], b"nonsense", cifar_archive({"data_batch_1": b""})):
        (cache / "cifar-10-batches-py.tar.gz").write_bytes(content)
        with pytest.raises(CourseError, match=r"cifar-10-batches-py\.tar\.gz is cut short or damaged"):
            data.load("cifar10")
        assert everything_in(cache) == {"cifar-10-batches-py.tar.gz"}


@BOTH
def test_a_damaged_file_in_the_cache_is_named_with_the_remedy(tmp_path: Path, name: str) -> None:
    known = published.PUBLISHED[name]
    folder = put(keras_cache(tmp_path) / known.folder, files_of(name))
    (folder / known.files[0]).write_bytes(b"")
    with pytest.raises(CourseError, match=f"{known.files[0]} .*`course data {name}` downloads it again"):
        data.load(name)


# Download


@BOTH
def test_a_download_is_verified_kept_and_used_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet, name: str
) -> None:
    internet.serve(monkeypatch, name, files_of(name))
    known = published.PUBLISHED[name]
    assert data.locate(name) == "download"
    assert not everything_in(keras_cache(tmp_path))
    internet.requests.clear()
    loaded = data.load(name)
    assert (loaded.name, loaded.source, len(loaded.x_train)) == (name, "download", 20)
    assert internet.requests == list(known.downloads)
    kept = {known.folder, *(f"{known.folder}/{file}" for file in known.files)}
    assert everything_in(keras_cache(tmp_path)) == kept | ({known.archive} if known.archive else set())
    assert data.load(name).source == "cache"
    assert len(internet.requests) == len(known.downloads)


def test_only_the_missing_files_are_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet
) -> None:
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    folder = put(keras_cache(tmp_path) / "fashion-mnist", fashion_files())
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    assert data.load("fashion_mnist").source == "download"
    assert [url.rsplit("/", 1)[1] for url in internet.requests] == ["t10k-labels-idx1-ubyte.gz"]


@BOTH
@pytest.mark.parametrize("fault", ["checksum", "interrupted", "dropped", "offline"])
def test_a_failed_download_leaves_nothing_and_the_stand_in_is_used(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    internet: Internet,
    small_stand_in: None,
    name: str,
    fault: str,
) -> None:
    internet.serve(monkeypatch, name, files_of(name))
    last = list(internet.content)[-1]
    if fault == "checksum":
        internet.content[last] += b"!"
    elif fault == "interrupted":
        whole = internet.urlopen

        def urlopen(request: object, timeout: float) -> object:
            body = whole(request, timeout)
            return body if request.full_url != last else _cut(body)

        monkeypatch.setattr(download, "urlopen", urlopen)
    elif fault == "dropped":
        internet.error = ConnectionResetError(104, "Connection reset by peer")
    else:
        internet.error = URLError(OSError(-2, "Name or service not known"))
    loaded = data.load(name)
    assert (loaded.name, loaded.source) == ("shapes", "stand-in")
    assert not [path for path in everything_in(tmp_path / "home") if path.endswith((".part", ".tar.gz"))]
    assert last.rsplit("/", 1)[1] not in {path.rsplit("/", 1)[-1] for path in everything_in(tmp_path / "home")}
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Downloading ")]
    reason = {
        "checksum": "wrong checksum",
        "interrupted": "stopped after",
        "dropped": "Connection reset by peer",
        "offline": "Name or service not known",
    }
    assert len(said) == 1 and "`shapes`" in said[0] and reason[fault] in said[0]


def _cut(body: io.BytesIO) -> io.BytesIO:
    """The server hangs up half-way."""
    cut = io.BytesIO(body.getvalue()[: len(body.getvalue()) // 2])
    cut.headers = body.headers
    return cut


def test_ctrl_c_leaves_no_half_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet) -> None:
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())

    def interrupted(response: object, title: str, total: int) -> object:
        yield b"first piece"
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "_with_progress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.load("fashion_mnist")
    assert everything_in(keras_cache(tmp_path)) == {"fashion-mnist"}


def test_what_a_killed_process_left_is_cleared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet
) -> None:
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    put(keras_cache(tmp_path) / "fashion-mnist", {".train-images-idx3-ubyte.gz.0123.part": b"half"})
    data.load("fashion_mnist")
    assert not [path for path in everything_in(tmp_path / "home") if path.endswith(".part")]


def test_a_server_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, internet: Internet, small_stand_in: None
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(download, "urlopen", lambda request, timeout: answer.wait())
    monkeypatch.setattr(sources, "PATIENCE", 0.05)
    assert data.load("fashion_mnist").source == "stand-in"  # and the test does not hang
    assert data.locate("cifar10") == "stand-in"
    answer.set()


def test_a_failure_is_remembered_for_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet, small_stand_in: None
) -> None:
    for _ in range(3):
        assert data.load("fashion_mnist").source == "stand-in"
        assert data.locate("fashion_mnist") == "stand-in"
    assert len(internet.requests) == 1
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    note = tmp_path / "xdg/one-model-many-gpus/fashion_mnist.offline"
    os.utime(note, (0, time.time() - sources.RETRY_AFTER - 1))
    assert data.load("fashion_mnist").source == "download"
    assert not note.exists()


def test_ranks_that_load_at_once_download_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet
) -> None:
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    internet.delay = 0.05
    found: list[str] = []
    # Threads stand in for ranks: each opens the lock's file by itself, so flock keeps them apart as well.
    ranks = [threading.Thread(target=lambda: found.append(data.load("fashion_mnist").source)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert sorted(found) == ["cache", "cache", "cache", "download"]
    assert len(internet.requests) == len(FASHION.downloads)


def test_an_unwritable_home_means_the_stand_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet, small_stand_in: None
) -> None:
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))  # no folder can be made in a file, not even by root
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert data.load("fashion_mnist").source == "stand-in"


# course data


def test_fetch_reports_where_each_set_is(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    directory: Path,
    tmp_path: Path,
    internet: Internet,
) -> None:
    put(directory / "cifar-10-batches-py", cifar_files())
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    report = data.fetch()
    assert {row.name: (row.source, row.train_images, row.test_images) for row in report} == {
        "fashion_mnist": ("download", 20, 8),
        "cifar10": ("directory", 20, 4),
    }
    assert report[0].folder == keras_cache(tmp_path) / "fashion-mnist"
    assert [row.source for row in data.fetch(["fashion_mnist"])] == ["cache"]
    data.show(report)
    table = capsys.readouterr().out
    assert all(word in table for word in ("fashion_mnist", "download", "cifar10", "directory"))


@BOTH
def test_fetch_mends_a_damaged_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet, name: str
) -> None:
    internet.serve(monkeypatch, name, files_of(name))
    known = published.PUBLISHED[name]
    folder = put(keras_cache(tmp_path) / known.folder, files_of(name))
    (folder / known.files[1]).write_bytes(b"damaged")
    assert data.fetch([name])[0].source == "download"
    assert data.load(name).source == "cache"


def test_fetch_mends_a_damaged_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, internet: Internet) -> None:
    internet.serve(monkeypatch, "cifar10", cifar_files())
    keras_cache(tmp_path).mkdir(parents=True)
    (keras_cache(tmp_path) / CIFAR.archive).write_bytes(b"damaged")
    assert data.fetch(["cifar10"])[0].source == "download"


def test_fetch_does_not_touch_the_users_own_files(
    monkeypatch: pytest.MonkeyPatch, directory: Path, internet: Internet
) -> None:
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    folder = put(directory / "fashion-mnist", fashion_files())
    (folder / FASHION.files[0]).write_bytes(b"damaged")
    with pytest.raises(CourseError, match=FASHION.files[0]):
        data.fetch(["fashion_mnist"])
    assert (folder / FASHION.files[0]).read_bytes() == b"damaged" and not internet.requests


def test_fetch_offline_says_what_to_do(internet: Internet) -> None:
    for attempt in (1, 2):  # the user has asked for it: a failure just before is no reason not to try
        with pytest.raises(CourseError, match=r"`shapes`.*COURSE_DATA_DIR") as error:
            data.fetch(["cifar10"])
        assert len(internet.requests) == attempt and error.value.code == 1


@pytest.mark.parametrize("call", [data.load, data.locate, lambda name: data.fetch([name])])
def test_an_unknown_name_is_answered_with_the_known_ones(call: object) -> None:
    with pytest.raises(CourseError, match=r"'mnist'.*fashion_mnist and cifar10"):
        call("mnist")


# The stand-in


@BOTH
def test_the_stand_in_has_the_form_of_the_set_but_its_own_name(small_stand_in: None, name: str) -> None:
    loaded = data.load(name)
    assert (loaded.name, loaded.source, loaded.classes) == ("shapes", "stand-in", shapes.CLASSES)
    assert loaded.x_train.shape == (60, *published.PUBLISHED[name].image_shape) and len(loaded.x_test) == 20
    assert loaded.x_train.dtype == np.uint8 and loaded.y_train.dtype == np.int64


def test_the_whole_stand_in_has_the_size_of_the_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def draw(count: int, image_shape: tuple, split: str) -> tuple:
        asked.append((count, image_shape, split))
        return np.zeros((1, *image_shape), np.uint8), np.zeros(1, np.int64)

    monkeypatch.setattr(shapes, "draw", draw)
    data.load("fashion_mnist")
    data.load("cifar10")
    assert asked == [
        (60_000, (28, 28, 1), "train"),
        (10_000, (28, 28, 1), "test"),
        (50_000, (32, 32, 3), "train"),
        (10_000, (32, 32, 3), "test"),
    ]


def test_the_stand_in_is_drawn_once_and_kept(monkeypatch: pytest.MonkeyPatch, small_stand_in: None) -> None:
    first = data.load("cifar10")
    monkeypatch.setattr(shapes, "draw", lambda *args, **options: pytest.fail("drawn again"))
    again = data.load("cifar10")
    for array in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(again, array), getattr(first, array))


def test_a_damaged_copy_of_the_stand_in_is_drawn_again(small_stand_in: None, tmp_path: Path) -> None:
    first = data.load("cifar10")
    (kept,) = (tmp_path / "xdg").rglob("shapes-*.npz")
    kept.write_bytes(kept.read_bytes()[:1000])
    np.testing.assert_array_equal(data.load("cifar10").x_train, first.x_train)
    assert kept.stat().st_size > 1000


def test_of_a_stand_in_that_cannot_be_kept_nothing_stays(
    monkeypatch: pytest.MonkeyPatch, small_stand_in: None, tmp_path: Path
) -> None:
    def full(file: IO[bytes], **arrays: np.ndarray) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert len(data.load("cifar10").x_train) == 60
    assert [path.name for path in (tmp_path / "xdg").rglob("*shapes*")] == ["shapes-32x32x3.lock"]


def test_a_copy_of_an_older_stand_in_is_not_used(small_stand_in: None, tmp_path: Path) -> None:
    old = tmp_path / "xdg/one-model-many-gpus/shapes-32x32x3-000000000000.npz"
    old.parent.mkdir(parents=True)
    np.savez(old, x_train=np.zeros(1), y_train=np.zeros(1), x_test=np.zeros(1), y_test=np.zeros(1))
    assert len(data.load("cifar10").x_train) == 60
    assert not old.exists()


@pytest.mark.parametrize(
    ("environment", "lines"),
    [({}, 1), ({"HOROVOD_RANK": "0"}, 1), ({"HOROVOD_RANK": "1"}, 0), ({"OMPI_COMM_WORLD_RANK": "2"}, 0)],
)
def test_rank_0_says_once_that_the_stand_in_is_used(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    small_stand_in: None,
    environment: dict,
    lines: int,
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    data.load("cifar10")
    data.load("cifar10")
    said = capsys.readouterr()
    assert said.err.count("`shapes`") == said.err.count("\n") == lines and not said.out


# COURSE_SLICE


def test_a_slice_is_the_beginning_of_the_set(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    put(directory / "fashion-mnist", fashion_files(train=20, test=8))
    whole = data.load("fashion_mnist")
    monkeypatch.setenv("COURSE_SLICE", "13")
    part = data.load("fashion_mnist")
    assert (len(part.x_train), len(part.y_train), len(part.x_test), len(part.y_test)) == (13, 13, 3, 3)
    np.testing.assert_array_equal(part.x_train, whole.x_train[:13])
    np.testing.assert_array_equal(part.y_test, whole.y_test[:3])
    monkeypatch.setenv("COURSE_SLICE", "1000")
    assert len(data.load("fashion_mnist").x_train) == 20


def test_a_slice_of_the_stand_in_draws_no_more_than_it_needs(
    monkeypatch: pytest.MonkeyPatch, small_stand_in: None
) -> None:
    drawn = []
    draw = shapes.draw
    monkeypatch.setattr(
        shapes, "draw", lambda count, *args, **options: drawn.append(count) or draw(count, *args, **options)
    )
    monkeypatch.setenv("COURSE_SLICE", "12")
    part = data.load("cifar10")
    assert drawn == [12, 3]
    monkeypatch.delenv("COURSE_SLICE")
    whole = data.load("cifar10")
    np.testing.assert_array_equal(part.x_train, whole.x_train[:12])
    monkeypatch.setenv("COURSE_SLICE", "16")
    assert len(data.load("cifar10").x_train) == 16
    assert drawn == [12, 3, 60, 20]  # the last one came from the copy that was kept


@pytest.mark.parametrize("setting", ["0", "3", "-5", "many", "1.5", "1e3", "²"])
def test_a_bad_slice_is_refused(monkeypatch: pytest.MonkeyPatch, small_stand_in: None, setting: str) -> None:
    monkeypatch.setenv("COURSE_SLICE", setting)
    with pytest.raises(CourseError, match="COURSE_SLICE is"):
        data.load("fashion_mnist")


# Sharding


NUMBERED = np.arange(103) * 10, np.arange(103)


def shards(size: int, option: int, **options: int) -> list[tuple[np.ndarray, ...]]:
    return [data.shard(NUMBERED, rank, size, option, **{"batch_size": 5, **options}) for rank in range(size)]


@pytest.mark.parametrize("option", [1, 2])
@pytest.mark.parametrize(("size", "batch_size"), [(1, 103), (1, 5), (2, 5), (3, 7), (4, 25), (7, 3), (100, 1)])
def test_every_rank_gets_the_same_number_of_whole_batches(option: int, size: int, batch_size: int) -> None:
    lengths = {len(x) for x, _ in shards(size, option, batch_size=batch_size)}
    assert lengths == {103 // (size * batch_size) * batch_size}


@pytest.mark.parametrize("option", [1, 2])
def test_images_keep_their_labels_and_come_once(option: int) -> None:
    for x, y in shards(4, option):
        np.testing.assert_array_equal(x, y * 10)
        assert len(set(y)) == len(y)


def test_option_1_partitions_the_set() -> None:
    seen = np.concatenate([y for _, y in shards(4, option=1)])
    assert len(set(seen)) == len(seen) == 100


def test_option_2_lets_each_rank_choose_from_the_whole_set() -> None:
    parts = [y for _, y in shards(4, option=2)]
    assert len(set(np.concatenate(parts))) < 100  # independent choices overlap
    assert all(part.max() > 75 and part.min() < 25 for part in parts)
    assert len({tuple(part) for part in parts}) == 4


def test_the_ranks_together_see_the_batches_of_one_rank_with_a_larger_batch() -> None:
    alone = data.shard(NUMBERED, 0, 1, batch_size=20)[1].reshape(-1, 20)
    together = np.concatenate([y.reshape(-1, 5) for _, y in shards(4, option=1)], axis=1)
    np.testing.assert_array_equal(np.sort(together, axis=1), np.sort(alone, axis=1))


@pytest.mark.parametrize("option", [1, 2])
def test_epochs_and_seeds_reshuffle_and_both_repeat(option: int) -> None:
    orders = {
        tuple(data.shard(NUMBERED, 1, 2, option, batch_size=5, epoch=epoch, seed=seed)[1])
        for epoch in range(3)
        for seed in range(3)
        for _ in range(2)
    }
    assert len(orders) == 9


def test_images_left_out_of_one_epoch_come_in_another() -> None:
    seen = {y for epoch in range(10) for _, part in shards(4, option=1, epoch=epoch) for y in part}
    assert len(seen) == 103


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rank": 2}, "no rank 2 among 2 ranks"),
        ({"rank": -1}, "no rank -1 among 2 ranks"),
        ({"rank": 0, "size": 0}, "no rank 0 among 0 ranks"),
        ({"option": 3}, "option is 1 or 2, not 3"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 52}, "103 images are too few to give each of 2 ranks a batch of 52"),
        ({"data": (np.arange(5), np.arange(6))}, "differ in length: 5, 6"),
    ],
)
def test_impossible_shards_are_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(CourseError, match=sentence):
        data.shard(**{"data": NUMBERED, "rank": 0, "size": 2, "batch_size": 5, **arguments})


def test_loading_needs_no_tensorflow() -> None:
    code = "import sys, course_lib.data; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_folder_that_this_account_cannot_read_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(directory / "fashion-mnist", fashion_files())

    def is_file(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", is_file)  # root, which may run the tests, can read everything
    with pytest.raises(CourseError, match=f"{folder} can't be read \\(Permission denied\\)"):
        data.load("fashion_mnist")
