"""COURSE_TENSORFLOW=given: what of an image is used, how, and what is said where it won't do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib.command.setup import bootstrap, install, legacy_keras, plan, preinstalled
from course_lib.command.setup.plan import Machine
from course_lib.system.errors import CourseError

IMAGE = Machine(python="3.12.3", platform="linux_x86_64-glibc2.39", nvidia=True, given=True)


@pytest.fixture
def python(tmp_path):
    """Makes a Python that answers as one with these packages would; "" for TensorFlow: it has none."""
    path = tmp_path / "python3"

    def make(tensorflow: str = "2.17.0+nv25.2", horovod: bool = True, tf_keras: bool = True, fault: str = "") -> str:
        answer = json.dumps({"tensorflow": tensorflow, "horovod": horovod, "tf_keras": tf_keras})
        asked = f"echo 'a banner'; echo '{answer}'" if tensorflow else _fails("No module named 'tensorflow'")
        loaded = _fails(fault) if fault else ":"
        path.write_text(f'#!/bin/sh\ncase "$2" in *"import importlib.util"*) {asked};; *) {loaded};; esac\n')
        path.chmod(0o755)
        return str(path)

    return make


def _fails(reason: str) -> str:
    return f"echo {json.dumps('ImportError: ' + reason)} >&2; exit 1"


@pytest.fixture
def packages(tmp_path):
    """An empty site-packages."""
    path = tmp_path / "site-packages"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ({"tensorflow": ""}, ["TensorFlow cannot be used", "No module named 'tensorflow'", "nvcr.io", "unset"]),
        ({"tensorflow": "2.14.0"}, ["TensorFlow 2.15 or later", "2.14.0"]),
        ({"horovod": False}, ["no Horovod"]),
        ({"tf_keras": False}, ["no tf_keras", "`tf_keras==2.17.*`"]),
    ],
)
def test_an_image_that_will_not_do_is_refused_in_a_sentence(python, packages, image, words):
    with pytest.raises(CourseError) as refused:
        preinstalled.take(python(**image), packages)
    for word in words:
        assert word in str(refused.value)
    assert list(packages.iterdir()) == []


def test_tf_keras_takes_the_place_of_keras_3(python, packages):
    assert "TensorFlow 2.17.0+nv25.2, with tf_keras" in preinstalled.take(python(), packages)
    assert (packages / "course_legacy_keras.py").resolve() == Path(legacy_keras.__file__).resolve()
    assert (
        packages / "course_legacy_keras.pth"
    ).read_text() == "import course_legacy_keras; course_legacy_keras.put()\n"


def test_keras_2_stays_as_it_is(python, packages):
    preinstalled.take(python(), packages)
    assert preinstalled.take(python("2.15.0+nv24.3", tf_keras=False), packages) == "TensorFlow 2.15.0+nv24.3"
    assert list(packages.iterdir()) == []


def test_a_horovod_that_does_not_load_is_refused_unless_the_driver_alone_is_missing(python):
    with pytest.raises(CourseError, match=r"undefined symbol: x\): use another image"):
        preinstalled.load(python(fault="mpi_lib.so: undefined symbol: x."))
    preinstalled.load(python(fault="libcuda.so.1: cannot open shared object file"))


def test_an_image_without_tensorflow_is_left_as_it_was(python, tmp_path, monkeypatch):
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(install.sys, "executable", python(""))
    with pytest.raises(CourseError, match="TensorFlow cannot be used"):
        install._make_environment(IMAGE, tmp_path, None)
    assert not (tmp_path / ".venv").exists()


def test_the_environment_of_an_image_sees_its_packages(python, tmp_path, monkeypatch):
    commands = []

    class Show:
        def step(self, title):
            import contextlib

            return contextlib.nullcontext()

        def run(self, command, env=None):
            commands.append(" ".join(command))

    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(install.sys, "executable", python())
    install._make_environment(IMAGE, tmp_path, Show())
    assert commands[0].endswith(f"-Im venv --system-site-packages {tmp_path / '.venv'}")
    commands.clear()
    install._make_environment(IMAGE._replace(given=False), tmp_path, Show())
    assert "--system-site-packages" not in commands[0]


def test_the_set_up_of_an_image_compiles_nothing_and_brings_no_tensorflow():
    wanted = plan.wanted(IMAGE)
    assert wanted["horovod"] == "given"
    assert plan.lock_file(IMAGE).name == "requirements-given.lock"
    assert plan.outdated(plan.wanted(IMAGE._replace(given=False)), wanted) == list(plan.STEPS)
    assert "as they were there" in plan.describe(IMAGE)


@pytest.mark.parametrize(("value", "found"), [("", False), ("given", True)])
def test_the_variable_decides(value, found, monkeypatch):
    monkeypatch.setenv("COURSE_TENSORFLOW", value)
    assert plan.look().given is found


def test_another_value_is_refused(monkeypatch):
    monkeypatch.setenv("COURSE_TENSORFLOW", "2.17")
    with pytest.raises(CourseError, match="set it to given, or unset it") as refused:
        plan.look()
    assert refused.value.code == 2


@pytest.mark.parametrize(("version", "fits"), [((3, 9), False), ((3, 10), True), ((3, 12), True), ((3, 13), False)])
def test_the_pythons_of_images(version, fits, monkeypatch):
    monkeypatch.setattr(bootstrap.sys, "version_info", (*version, 1, "final", 0))
    if fits:
        bootstrap._check_given_python()
    else:
        with pytest.raises(CourseError, match=r"Python 3\.10 to 3\.12"):
            bootstrap._check_given_python()
