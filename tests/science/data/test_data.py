"""Where data sets come from, what happens when files are missing or damaged, how ranks share the images."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import pickle
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib import data
from course_lib.data import download, published, shapes, sources
from course_lib.system.errors import CourseError

FASHION, CIFAR = published.PUBLISHED["fashion_mnist"], published.PUBLISHED["cifar10"]
BOTH = pytest.mark.parametrize("name", ["fashion_mnist", "cifar10"])
REAL_DATA = os.environ.get("COURSE_DATA_DIR")


# Small files in the published layouts


def idx(array):
    header = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)  # the same bytes each time


def python2_pickle(value):
    """As CIFAR-10 is published."""
    buffer = io.BytesIO()
    published._Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue()


def fashion_files(train=20, test=8):
    rng = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte.gz": idx(rng.integers(0, 256, (train, 28, 28))),
        "train-labels-idx1-ubyte.gz": idx(np.arange(train) % 10),
        "t10k-images-idx3-ubyte.gz": idx(rng.integers(0, 256, (test, 28, 28))),
        "t10k-labels-idx1-ubyte.gz": idx(np.arange(test) % 10),
    }


def cifar_batch(first, images=4):
    planes = np.arange(images * 3072).astype(np.uint8).reshape(images, 3072)
    return {b"batch_label": b"a batch", b"data": planes, b"labels": [(first + i) % 10 for i in range(images)]}


def cifar_files():
    return {file: python2_pickle(cifar_batch(i)) for i, file in enumerate(CIFAR.files)}


def files_of(name):
    return fashion_files() if name == "fashion_mnist" else cifar_files()


def put(folder, files):
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return folder


def cifar_archive(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for file, content in {**files, "../outside": b"!", "readme.html": b"hello"}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{file}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class Internet:
    """Stands in for urlopen: it serves `content` by URL and counts the requests."""

    def __init__(self):
        self.content = {}
        self.requests = []
        self.error: Exception | None = URLError(OSError(-2, "Name or service not known"))
        self.delay = 0.0

    def urlopen(self, request, timeout):
        self.requests.append(request.full_url)
        time.sleep(self.delay)
        if self.error:
            raise self.error
        body = io.BytesIO(self.content[request.full_url])
        body.headers = {"Content-Length": str(len(body.getvalue()))}
        return body

    def serve(self, monkeypatch, name, files):
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
def internet(monkeypatch, tmp_path):
    """Every test starts offline, with an empty home and no settings."""
    for variable in ("COURSE_DATA_DIR", "COURSE_SLICE", "KERAS_HOME", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    sources.say.cache_clear()
    internet = Internet()
    monkeypatch.setattr(download, "urlopen", internet.urlopen)
    return internet


@pytest.fixture
def small_stand_in(monkeypatch):
    """A whole stand-in of 60 and 20 images, so that drawing it takes no time."""
    for name, known in published.PUBLISHED.items():
        monkeypatch.setitem(published.PUBLISHED, name, replace(known, images=(60, 20)))


@pytest.fixture
def directory(monkeypatch, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("COURSE_DATA_DIR", str(folder))
    return folder


def keras_cache(tmp_path):
    return tmp_path / "home/.keras/datasets"


def everything_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} if folder.exists() else set()


# COURSE_DATA_DIR


def test_fashion_mnist_from_the_directory(directory):
    put(directory / "fashion-mnist", fashion_files(train=20, test=8))
    loaded = data.load("fashion_mnist")
    assert (loaded.name, loaded.source, data.locate("fashion_mnist")) == ("fashion_mnist", "directory", "directory")
    assert loaded.x_train.shape == (20, 28, 28, 1) and loaded.x_test.shape == (8, 28, 28, 1)
    assert loaded.x_train.dtype == np.uint8 and loaded.y_train.dtype == np.int64
    expected = np.random.default_rng(0).integers(0, 256, (20, 28, 28))
    np.testing.assert_array_equal(loaded.x_train[..., 0], expected)
    np.testing.assert_array_equal(loaded.y_test, np.arange(8))
    assert len(loaded.classes) == 10 and loaded.x_train.flags.writeable


def test_cifar10_from_the_directory(directory):
    put(directory / "cifar-10-batches-py", cifar_files())
    loaded = data.load("cifar10")
    assert (loaded.name, loaded.source) == ("cifar10", "directory")
    assert loaded.x_train.shape == (20, 32, 32, 3) and loaded.x_test.shape == (4, 32, 32, 3)
    assert loaded.x_train.dtype == np.uint8 and loaded.y_train.dtype == np.int64
    np.testing.assert_array_equal(loaded.y_train[:8], [0, 1, 2, 3, 1, 2, 3, 4])
    # Each row of the file holds all red values, then all green, then all blue.
    row = cifar_batch(0)[b"data"][1]
    np.testing.assert_array_equal(loaded.x_train[1, 0, 5], row[[5, 1024 + 5, 2048 + 5]])


def test_pickles_of_python_3_are_read_as_well(directory):
    files = {file: pickle.dumps(cifar_batch(i), protocol=3) for i, file in enumerate(CIFAR.files)}
    put(directory / "cifar-10-batches-py", files)
    assert len(data.load("cifar10").x_train) == 20


def test_a_directory_without_the_set_is_passed_over(directory, small_stand_in):
    assert data.load("cifar10").source == "stand-in"


def test_a_directory_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path / "no-such"))
    with pytest.raises(CourseError, match="no-such, which is not a folder"):
        data.load("cifar10")


@BOTH
def test_every_missing_file_is_named(directory, name):
    known = published.PUBLISHED[name]
    folder = put(directory / known.folder, files_of(name))
    for file in known.files:
        content = (folder / file).read_bytes()
        (folder / file).unlink()
        for call in (data.load, data.locate, lambda name: data.fetch([name])):
            with pytest.raises(CourseError, match=f"{file} is missing"):
                call(name)
        if file in known.test_files:
            with pytest.raises(CourseError, match=r"test=False. needs no test images"):
                data.load(name)
            assert len(data.load(name, test=False).x_test) == 0
        (folder / file).write_bytes(content)
    data.load(name)


@BOTH
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 5), where=st.floats(0, 1, exclude_max=True), change=st.integers(0, 255))
def test_a_damaged_file_is_named_and_nothing_half_read(directory, name, number, where, change):
    """Cut short (change 0), or with one byte changed: in a pickle, which has no checksum, that may be a pixel."""
    known = published.PUBLISHED[name]
    folder = directory / known.folder
    if not folder.exists():
        put(folder, files_of(name))
    file = known.files[number % len(known.files)]
    whole = (folder / file).read_bytes()
    place = int(where * len(whole))
    damaged = whole[:place] + (bytes([whole[place] ^ change]) + whole[place + 1 :] if change else b"")
    (folder / file).write_bytes(damaged)
    try:
        loaded = data.load(name)
    except CourseError as error:
        sentence = str(error)
        assert str(folder / file) in sentence and "\n" not in sentence and sentence.endswith(".")
    else:
        assert change  # a file that is cut short is never read
        assert len(loaded.x_train) == len(loaded.y_train) == 20 and loaded.y_train.max() <= 9
    finally:
        (folder / file).write_bytes(whole)


PLANES = np.zeros((4, 3072), np.uint8)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("train-images-idx3-ubyte.gz", idx(np.zeros((20, 27, 28)))),  # another size
        ("train-images-idx3-ubyte.gz", idx(np.zeros((19, 28, 28)))),  # fewer images than labels
        ("train-images-idx3-ubyte.gz", idx(np.zeros(20))),  # labels
        ("train-images-idx3-ubyte.gz", idx(np.zeros((0, 28, 28)))),
        ("t10k-labels-idx1-ubyte.gz", idx(np.full(8, 10))),  # no such class
        ("t10k-labels-idx1-ubyte.gz", b"<html>not found</html>"),
        ("data_batch_3", {b"labels": [0] * 4}),
        ("data_batch_3", {b"data": PLANES}),
        ("data_batch_3", {b"data": PLANES, b"labels": [0] * 3}),
        ("data_batch_3", {b"data": PLANES, b"labels": [0, 1, 2, 10]}),
        ("data_batch_3", {b"data": PLANES, b"labels": [0, 1, 2, "three"]}),
        ("data_batch_3", {b"data": PLANES[:, :1024], b"labels": [0] * 4}),
        ("data_batch_3", {b"data": PLANES.astype(float), b"labels": [0] * 4}),
        ("data_batch_3", {b"data": PLANES[:0], b"labels": []}),
        ("data_batch_3", [1, 2, 3]),
    ],
)
def test_a_file_of_another_content_is_named(directory, file, content):
    name = "cifar10" if file in CIFAR.files else "fashion_mnist"
    folder = put(directory / published.PUBLISHED[name].folder, files_of(name))
    (folder / file).write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=3))
    with pytest.raises(CourseError, match=file):
        data.load(name)


class Malicious:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("call", [(os.system, "touch {}"), (open, "{}", "w"), (eval, "open('{}', 'w')")])
def test_a_malicious_pickle_is_refused_and_nothing_of_it_runs(directory, tmp_path, call):
    trace = tmp_path / "trace"
    function, *args = call
    batch = {**cifar_batch(0), b"extra": Malicious(function, *(arg.format(trace) for arg in args))}
    folder = put(directory / "cifar-10-batches-py", cifar_files())
    (folder / "test_batch").write_bytes(pickle.dumps(batch, protocol=3))
    pickle.loads(pickle.dumps(batch))  # it does do harm where it is trusted
    assert trace.exists()
    trace.unlink()
    with pytest.raises(CourseError, match=r"test_batch can't be read \(it loads"):
        data.load("cifar10")
    assert not trace.exists()


@pytest.mark.skipif(not REAL_DATA, reason="COURSE_DATA_DIR does not name the real data sets")
@pytest.mark.parametrize(("name", "train"), [("fashion_mnist", 60_000), ("cifar10", 50_000)])
def test_the_real_set(monkeypatch, name, train):
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
def test_what_keras_has_unpacked_is_found(tmp_path, internet, name):
    put(keras_cache(tmp_path) / published.PUBLISHED[name].folder, files_of(name))
    loaded = data.load(name)
    assert (loaded.name, loaded.source, data.locate(name)) == (name, "cache", "cache")
    assert not internet.requests


def test_keras_home_comes_before_the_usual_cache(monkeypatch, tmp_path):
    put(keras_cache(tmp_path) / "fashion-mnist", fashion_files(train=20))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    assert len(data.load("fashion_mnist").x_train) == 20
    put(tmp_path / "keras/datasets/fashion-mnist", fashion_files(train=30))
    assert len(data.load("fashion_mnist").x_train) == 30


@pytest.mark.parametrize("unpacking_was_interrupted", [False, True])
def test_the_archive_alone_is_unpacked(tmp_path, internet, unpacking_was_interrupted):
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


def test_a_damaged_archive_is_named_and_leaves_nothing(tmp_path):
    cache = keras_cache(tmp_path)
    cache.mkdir(parents=True)
    whole = cifar_archive(cifar_files())
    for content in (whole[: len(whole) // 2], b"nonsense", cifar_archive({"data_batch_1": b""})):
        (cache / "cifar-10-batches-py.tar.gz").write_bytes(content)
        with pytest.raises(CourseError, match=r"cifar-10-batches-py\.tar\.gz is cut short or damaged"):
            data.load("cifar10")
        assert everything_in(cache) == {"cifar-10-batches-py.tar.gz"}


@BOTH
def test_a_damaged_file_in_the_cache_is_named_with_the_remedy(tmp_path, name):
    known = published.PUBLISHED[name]
    folder = put(keras_cache(tmp_path) / known.folder, files_of(name))
    (folder / known.files[0]).write_bytes(b"")
    with pytest.raises(CourseError, match=f"{known.files[0]} .*`course data {name}` downloads it again"):
        data.load(name)


# Download


@BOTH
def test_a_download_is_verified_kept_and_used_again(monkeypatch, tmp_path, internet, name):
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


def test_only_the_missing_files_are_downloaded(monkeypatch, tmp_path, internet):
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    folder = put(keras_cache(tmp_path) / "fashion-mnist", fashion_files())
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    assert data.load("fashion_mnist").source == "download"
    assert [url.rsplit("/", 1)[1] for url in internet.requests] == ["t10k-labels-idx1-ubyte.gz"]


def cut(body):
    """The server hangs up half-way."""
    half = io.BytesIO(body.getvalue()[: len(body.getvalue()) // 2])
    half.headers = body.headers
    return half


@BOTH
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("checksum", "wrong checksum"),
        ("interrupted", "stopped after"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (URLError(OSError(-2, "Name or service not known")), "Name or service not known"),
    ],
    ids=["checksum", "interrupted", "dropped", "offline"],
)
def test_a_failed_download_leaves_nothing_and_the_stand_in_is_used(
    monkeypatch, capsys, tmp_path, internet, small_stand_in, name, fault, reason
):
    internet.serve(monkeypatch, name, files_of(name))
    last, serve = list(internet.content)[-1], internet.urlopen
    if fault == "checksum":
        internet.content[last] += b"!"
    elif fault == "interrupted":

        def urlopen(request, timeout):
            body = serve(request, timeout)
            return cut(body) if request.full_url == last else body

        monkeypatch.setattr(download, "urlopen", urlopen)
    else:
        internet.error = fault
    loaded = data.load(name)
    assert (loaded.name, loaded.source) == ("shapes", "stand-in")
    left = everything_in(tmp_path / "home")
    assert not [path for path in left if path.endswith((".part", ".tar.gz", last.rsplit("/", 1)[1]))]
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Downloading ")]
    assert len(said) == 1 and "`shapes`" in said[0] and reason in said[0]


def test_ctrl_c_leaves_no_half_file(monkeypatch, tmp_path, internet):
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())

    def interrupted(response, title, total):
        yield b"first piece"
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "_with_progress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.load("fashion_mnist")
    assert everything_in(keras_cache(tmp_path)) == {"fashion-mnist"}


def test_what_a_killed_process_left_is_cleared(monkeypatch, tmp_path, internet):
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    put(keras_cache(tmp_path) / "fashion-mnist", {".train-images-idx3-ubyte.gz.0123.part": b"half"})
    data.load("fashion_mnist")
    assert not [path for path in everything_in(tmp_path / "home") if path.endswith(".part")]


def test_a_server_that_does_not_answer_is_given_up(monkeypatch, internet, small_stand_in):
    answer = threading.Event()
    monkeypatch.setattr(download, "urlopen", lambda request, timeout: answer.wait())
    monkeypatch.setattr(sources, "TIMEOUT_S", 0.05)
    assert data.load("fashion_mnist").source == "stand-in"  # and the test does not hang
    assert data.locate("cifar10") == "stand-in"
    answer.set()


def test_a_failure_is_remembered_for_a_while(monkeypatch, tmp_path, internet, small_stand_in):
    for _ in range(3):
        assert data.load("fashion_mnist").source == "stand-in"
        assert data.locate("fashion_mnist") == "stand-in"
    assert len(internet.requests) == 1
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    note = tmp_path / "xdg/one-model-many-gpus/fashion_mnist.offline"
    os.utime(note, (0, time.time() - sources.RETRY_AFTER - 1))
    assert data.load("fashion_mnist").source == "download"
    assert not note.exists()


def test_ranks_that_load_at_once_download_once(monkeypatch, tmp_path, internet):
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    internet.delay = 0.05
    found = []
    # Threads stand in for ranks: each opens the lock's file by itself, so flock keeps them apart as well.
    ranks = [threading.Thread(target=lambda: found.append(data.load("fashion_mnist").source)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert sorted(found) == ["cache", "cache", "cache", "download"]
    assert len(internet.requests) == len(FASHION.downloads)


def test_an_unwritable_home_means_the_stand_in(monkeypatch, tmp_path, internet, small_stand_in):
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))  # no folder can be made in a file, not even by root
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert data.load("fashion_mnist").source == "stand-in"


# course data


def test_fetch_reports_where_each_set_is(monkeypatch, capsys, directory, tmp_path, internet):
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


@pytest.mark.parametrize(
    ("name", "damaged"),
    [("fashion_mnist", FASHION.files[1]), ("cifar10", CIFAR.files[1]), ("cifar10", None)],
    ids=["gzip", "pickle", "archive"],
)
def test_fetch_replaces_a_damaged_file_in_the_cache(monkeypatch, tmp_path, internet, name, damaged):
    internet.serve(monkeypatch, name, files_of(name))
    known, cache = published.PUBLISHED[name], keras_cache(tmp_path)
    folder = put(cache / known.folder, files_of(name) if damaged else {})
    ((folder / damaged) if damaged else (cache / known.archive)).write_bytes(b"damaged")
    assert data.fetch([name])[0].source == "download"
    assert data.load(name).source == "cache"


def test_fetch_does_not_touch_the_users_own_files(monkeypatch, directory, internet):
    internet.serve(monkeypatch, "fashion_mnist", fashion_files())
    folder = put(directory / "fashion-mnist", fashion_files())
    (folder / FASHION.files[0]).write_bytes(b"damaged")
    with pytest.raises(CourseError, match=FASHION.files[0]):
        data.fetch(["fashion_mnist"])
    assert (folder / FASHION.files[0]).read_bytes() == b"damaged" and not internet.requests


def test_fetch_offline_says_what_to_do(internet):
    for attempt in (1, 2):  # the user has asked for it: a failure just before is no reason not to try
        with pytest.raises(CourseError, match=r"`shapes`.*COURSE_DATA_DIR") as error:
            data.fetch(["cifar10"])
        assert len(internet.requests) == attempt and error.value.code == 1


@pytest.mark.parametrize("call", [data.load, data.locate, lambda name: data.fetch([name])])
def test_an_unknown_name_is_answered_with_the_known_ones(call):
    with pytest.raises(CourseError, match=r"'mnist'.*fashion_mnist and cifar10"):
        call("mnist")


# The stand-in


@BOTH
def test_the_stand_in_has_the_form_of_the_set_but_its_own_name(small_stand_in, name):
    loaded = data.load(name)
    assert (loaded.name, loaded.source, loaded.classes) == ("shapes", "stand-in", shapes.CLASSES)
    assert loaded.x_train.shape == (60, *published.PUBLISHED[name].image_shape) and len(loaded.x_test) == 20
    assert loaded.x_train.dtype == np.uint8 and loaded.y_train.dtype == np.int64


def test_the_whole_stand_in_has_the_size_of_the_set(monkeypatch):
    asked = []

    def draw(count, image_shape, split):
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


def test_the_stand_in_is_drawn_once_and_kept(monkeypatch, small_stand_in):
    first = data.load("cifar10")
    monkeypatch.setattr(shapes, "draw", lambda *args, **options: pytest.fail("drawn again"))
    again = data.load("cifar10")
    for array in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(again, array), getattr(first, array))


def test_a_damaged_copy_of_the_stand_in_is_drawn_again(small_stand_in, tmp_path):
    first = data.load("cifar10")
    (kept,) = (tmp_path / "xdg").rglob("shapes-*.npz")
    kept.write_bytes(kept.read_bytes()[:1000])
    np.testing.assert_array_equal(data.load("cifar10").x_train, first.x_train)
    assert kept.stat().st_size > 1000


def test_of_a_stand_in_that_cannot_be_kept_nothing_stays(monkeypatch, small_stand_in, tmp_path):
    def full(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert len(data.load("cifar10").x_train) == 60
    assert [path.name for path in (tmp_path / "xdg").rglob("*shapes*")] == ["shapes-32x32x3.lock"]


def test_a_copy_of_an_older_stand_in_is_not_used(small_stand_in, tmp_path):
    old = tmp_path / "xdg/one-model-many-gpus/shapes-32x32x3-000000000000.npz"
    old.parent.mkdir(parents=True)
    np.savez(old, x_train=np.zeros(1), y_train=np.zeros(1), x_test=np.zeros(1), y_test=np.zeros(1))
    assert len(data.load("cifar10").x_train) == 60
    assert not old.exists()


@pytest.mark.parametrize(
    ("environment", "lines"),
    [({}, 1), ({"HOROVOD_RANK": "0"}, 1), ({"HOROVOD_RANK": "1"}, 0), ({"OMPI_COMM_WORLD_RANK": "2"}, 0)],
)
def test_rank_0_says_once_that_the_stand_in_is_used(monkeypatch, capsys, small_stand_in, environment, lines):
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    data.load("cifar10")
    data.load("cifar10")
    said = capsys.readouterr()
    assert said.err.count("`shapes`") == said.err.count("\n") == lines and not said.out


# COURSE_SLICE


def test_a_slice_is_the_beginning_of_the_set(monkeypatch, directory):
    put(directory / "fashion-mnist", fashion_files(train=20, test=8))
    whole = data.load("fashion_mnist")
    monkeypatch.setenv("COURSE_SLICE", "13")
    part = data.load("fashion_mnist")
    assert (len(part.x_train), len(part.y_train), len(part.x_test), len(part.y_test)) == (13, 13, 3, 3)
    np.testing.assert_array_equal(part.x_train, whole.x_train[:13])
    np.testing.assert_array_equal(part.y_test, whole.y_test[:3])
    monkeypatch.setenv("COURSE_SLICE", "1000")
    assert len(data.load("fashion_mnist").x_train) == 20


def test_a_slice_of_the_stand_in_draws_no_more_than_it_needs(monkeypatch, small_stand_in):
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
def test_a_bad_slice_is_refused(monkeypatch, small_stand_in, setting):
    monkeypatch.setenv("COURSE_SLICE", setting)
    with pytest.raises(CourseError, match="COURSE_SLICE is"):
        data.load("fashion_mnist")


def test_a_folder_that_this_account_cannot_read_is_said(directory, monkeypatch):
    folder = put(directory / "fashion-mnist", fashion_files())

    def is_file(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", is_file)  # root, which may run the tests, can read everything
    with pytest.raises(CourseError, match=f"{folder} can't be read \\(Permission denied\\)"):
        data.load("fashion_mnist")
