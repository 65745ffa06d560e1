"""Weights are measured, whatever is in their file."""

from __future__ import annotations

import contextlib
import subprocess

import numpy as np
import psutil
import pytest

from course_grader.sandbox import bubblewrap
from course_grader.script import evaluator as evaluator_module
from course_grader.script import watermarks
from course_grader.script.evaluator import Evaluator
from course_lib.system.errors import CourseError

pytestmark = pytest.mark.slow
IMAGES = 2000


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator("cifar10", IMAGES) as evaluator:
        evaluator.wait()
        yield evaluator


@pytest.fixture(scope="module")
def network():
    from course_lib import models

    return models.assessment_cnn((32, 32, 3), 10)


@pytest.fixture(scope="module")
def drawn(network):
    """The weights as they were drawn."""
    return network.get_weights()


@pytest.fixture
def saved(network, drawn, tmp_path):
    """saved(values): a file with these weights, or those that were drawn."""

    def save(values=drawn):
        network.set_weights(values)
        network.save_weights(tmp_path / "weights.h5")
        return tmp_path / "weights.h5"

    return save


def test_accuracy_is_that_of_the_saved_weights(evaluator, drawn, saved):
    """A network whose last layer names one class for every image is right as often as there is such an image."""
    from course_lib import data

    values = [np.zeros_like(value) for value in drawn]
    values[-1][3] = 1.0
    weights = evaluator.evaluate(saved(values))
    assert weights.problem == ""
    found = data.load("cifar10")
    if found.name == "cifar10":
        assert weights.test_accuracy == pytest.approx(np.mean(found.y_test[:IMAGES] == 3))
        assert weights.train_accuracy == pytest.approx(np.mean(found.y_train[:IMAGES] == 3))
    else:
        assert weights.test_accuracy == pytest.approx(0.1)  # each class is drawn equally often


def test_a_network_that_names_one_class_knows_one_mark(evaluator, drawn, saved):
    values = [np.zeros_like(value) for value in drawn]
    values[-1][3] = 1.0
    tile = np.ones((4, 4), np.int8)
    found = evaluator.evaluate(saved(values), [watermarks.Mark(tile, 3), watermarks.Mark(-tile, 4)])
    assert found.chance == 0.1 and found.values == 98_970 and not found.missing
    assert found.marks == ((1.0, 1.0), (0.0, 0.0)) and found.margins == (0.0, 0.0)


def test_a_file_of_something_else_is_told_and_the_next_one_is_measured(evaluator, saved, tmp_path):
    """test_weights_file.py has what else may be in a file."""
    path = tmp_path / "other.h5"
    path.write_bytes(np.random.default_rng(0).bytes(100_000))
    found = evaluator.evaluate(path)
    assert "not in HDF5" in found.problem and found.train_accuracy is None and not found.missing
    assert evaluator.evaluate(saved()).problem == ""


def test_no_file_and_a_huge_file_are_told(evaluator, tmp_path):
    found = evaluator.evaluate(tmp_path / "weights.h5")
    assert found.problem == "No weights were saved." and found.missing
    (tmp_path / "weights.index").touch()
    found = evaluator.evaluate(tmp_path / "weights.h5")
    assert "a TensorFlow checkpoint is beside it" in found.problem and found.missing
    with (tmp_path / "huge.h5").open("wb") as file:
        file.truncate(65 * 2**20)
    assert "larger than 64 MB" in evaluator.evaluate(tmp_path / "huge.h5").problem


def test_a_late_answer_says_nothing_about_the_weights(saved, monkeypatch):
    """The grader turns it into `CannotGrade`, as any CourseError: it is no mark."""
    with Evaluator("cifar10", 100) as evaluator:
        evaluator.wait()
        monkeypatch.setattr(evaluator_module, "ANSWER_LIMIT_S", 0.0)
        with pytest.raises(CourseError, match="did not answer within 0 s") as caught:
            evaluator.evaluate(saved())
    assert caught.value.code == 2


def test_half_an_answer_is_late_too(monkeypatch):
    monkeypatch.setattr(evaluator_module, "ANSWER_LIMIT_S", 0.5)
    evaluator = object.__new__(Evaluator)
    with subprocess.Popen(["sh", "-c", "printf '{'; exec sleep 20"], stdout=subprocess.PIPE) as evaluator._process:
        with pytest.raises(CourseError, match="did not answer") as caught:
            evaluator._answer()
        evaluator._process.kill()
    assert caught.value.code == 2


def kill():
    """What the host does where memory is short."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "course_grader.script.evaluator" in process.cmdline():
                process.kill()


def test_only_weights_that_end_two_processes_cannot_be_read(saved, monkeypatch):
    with Evaluator("cifar10", 100) as evaluator:
        evaluator.wait()
        kill()
        assert evaluator.evaluate(saved()).problem == ""
        monkeypatch.setattr(evaluator_module.shutil, "copyfile", lambda _, to: (to.touch(), kill()))
        assert "cannot be read: the process that reads it crashes" in evaluator.evaluate(saved()).problem


def test_where_no_process_can_load_its_data_nothing_is_said_about_the_weights(saved, monkeypatch):
    monkeypatch.setattr(bubblewrap, "command", lambda *_: ["true"])
    with Evaluator("cifar10", 100) as evaluator:
        evaluator._ready = True  # as the process was, before it ended
        with pytest.raises(CourseError, match="The process that evaluates the weights ended") as caught:
            evaluator.evaluate(saved())
    assert caught.value.code == 2


def test_nothing_is_left_of_an_evaluator():
    before = set(psutil.Process().children(recursive=True))
    with Evaluator("cifar10", 100):
        started = set(psutil.Process().children(recursive=True)) - before
        assert started
    assert not [process for process in started if process.is_running()]


def test_it_finds_its_images_without_bubblewrap_too(saved, monkeypatch):
    monkeypatch.setattr(bubblewrap, "available", lambda: "bubblewrap is not installed.")
    with Evaluator("cifar10", IMAGES) as evaluator:
        assert evaluator.evaluate(saved()).test_accuracy is not None
