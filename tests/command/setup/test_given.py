"""COURSE_TENSORFLOW=given: what of an image is used, how, and what is said where it won't do.

`keras` leads to `tf_keras`: a small package of that name here, the real one in `containers/test_second_line.py`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.command.setup import bootstrap, install, legacy_keras, plan, preinstalled
from course_lib.command.setup.commands import Steps
from course_lib.command.setup.plan import Machine
from course_lib.system.errors import CourseError

IMAGE = Machine(python="3.12.3", platform="linux_x86_64-glibc2.39", nvidia=True, given=True)


@pytest.fixture
def python(tmp_path):
    """Makes a Python that answers as one with these packages would; "" for TensorFlow: it has none."""
    path = tmp_path / "python3"

    def make(tensorflow: str = "2.17.0+nv25.2", horovod: bool = True, tf_keras: bool = True, fault: str = "") -> str:
        answer = json.dumps({"tensorflow": tensorflow, "horovod": horovod, "tf_keras": tf_keras})
        asked = f"echo 'a banner'; echo '{answer}'" if tensorflow else fails("No module named 'tensorflow'")
        loaded = fails(fault) if fault else ":"
        path.write_text(f'#!/bin/sh\ncase "$2" in *"import importlib.util"*) {asked};; *) {loaded};; esac\n')
        path.chmod(0o755)
        return str(path)

    return make


def fails(reason: str) -> str:
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
        ({"fault": "mpi_lib.so: undefined symbol: x."}, ["undefined symbol: x): use another image"]),
    ],
)
def test_an_image_that_will_not_do_is_refused_in_a_sentence(python, packages, image, words):
    with pytest.raises(CourseError) as refused:
        preinstalled.take(python(**image), packages)
    for word in words:
        assert word in str(refused.value)


def test_tf_keras_takes_the_place_of_keras_3_and_keras_2_stays(python, packages):
    assert "TensorFlow 2.17.0+nv25.2, with tf_keras" in preinstalled.take(python(), packages)
    assert (packages / "course_legacy_keras.py").resolve() == Path(legacy_keras.__file__).resolve()
    line = (packages / "course_legacy_keras.pth").read_text()
    assert line == "import course_legacy_keras; course_legacy_keras.put()\n"
    assert preinstalled.take(python("2.15.0+nv24.3", tf_keras=False), packages) == "TensorFlow 2.15.0+nv24.3"
    assert list(packages.iterdir()) == []


def test_without_the_driver_alone_horovod_is_taken(python):
    preinstalled.load(python(fault="libcuda.so.1: cannot open shared object file"))


def test_an_image_without_tensorflow_is_left_as_it_was(python, tmp_path, monkeypatch):
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(install.sys, "executable", python(""))
    with pytest.raises(CourseError, match="TensorFlow cannot be used"):
        install._make_environment(IMAGE, tmp_path, None)
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("given", [True, False])
def test_the_environment_of_an_image_sees_its_packages(python, tmp_path, monkeypatch, given):
    commands = []
    monkeypatch.setattr(Steps, "run", lambda self, command, env=None: commands.append(command))
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(install.sys, "executable", python())
    install._make_environment(IMAGE._replace(given=given), tmp_path, Steps(1, tmp_path / "log"))
    assert ("--system-site-packages" in commands[0]) == given


def test_the_set_up_of_an_image_compiles_nothing_and_brings_no_tensorflow():
    wanted = plan.wanted(IMAGE)
    assert wanted["horovod"] == "given"
    assert plan.lock_file(IMAGE).name == "requirements-given.lock"
    assert plan.outdated(plan.wanted(IMAGE._replace(given=False)), wanted) == list(plan.STEPS)


def test_the_variable_decides(monkeypatch):
    for value, given in (("", False), ("given", True)):
        monkeypatch.setenv("COURSE_TENSORFLOW", value)
        assert plan.detect().given is given
    monkeypatch.setenv("COURSE_TENSORFLOW", "2.17")
    with pytest.raises(CourseError, match="set it to given, or unset it") as refused:
        plan.detect()
    assert refused.value.code == 2


@pytest.mark.parametrize(("version", "fits"), [((3, 9), False), ((3, 10), True), ((3, 12), True), ((3, 13), False)])
def test_the_pythons_of_images(version, fits, monkeypatch):
    monkeypatch.setattr(bootstrap.sys, "version_info", (*version, 1, "final", 0))
    if fits:
        bootstrap._check_given_python()
    else:
        with pytest.raises(CourseError, match=r"Python 3\.10 to 3\.12"):
            bootstrap._check_given_python()


# --- `keras` leads to `tf_keras`


FILES = {
    "__init__.py": "from tf_keras import layers\n__version__ = '2.17.0'",
    "layers/__init__.py": "class Dense: pass",
    "backend.py": "print('backend runs')",
    "src/__init__.py": "",
    "src/utils/__init__.py": "",
    "src/utils/tf_utils.py": "import random\n\ndef both(seed):\n"
    "    random.seed(seed)\n    return random.Random(seed).randint(1, 1e9), random.randint(1, 1e9)\n",
}


@pytest.fixture
def legacy(tmp_path):
    """Runs code in a Python that has `tf_keras` and a `keras` that must not be taken, after `put`."""
    for name, text in FILES.items():
        path = tmp_path / "tf_keras" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "keras.py").write_text("raise SystemExit('this is Keras 3')")
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    start += "from course_lib.command.setup import legacy_keras as legacy; "

    def run(code: str) -> str:
        command = [sys.executable, "-c", f"{start}legacy.put()\n{code}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return run


@pytest.mark.parametrize(
    ("version", "needed"),
    [("2.15.0", False), ("2.15.0+nv24.3", False), ("2.16.1", True), ("2.17.0+nv25.2", True), ("3.0.0", True)],
)
def test_tf_keras_is_needed_from_tensorflow_2_16_on(version, needed):
    assert legacy_keras.needed(version) is needed


def test_keras_and_its_parts_are_those_of_tf_keras_whichever_comes_first(legacy):
    same = (
        "assert keras is tf_keras and keras.layers is tf_keras.layers and keras.backend is tf_keras.backend\n"
        "assert keras.layers.Dense is Dense\n"
        "assert (keras.__spec__.name, keras.backend.__spec__.name) == ('tf_keras', 'tf_keras.backend')\n"
        "try: import keras.nothing\nexcept ModuleNotFoundError as error: print(error.name)"
    )
    names = "from keras.layers import Dense"
    for first, second in (("keras", "tf_keras"), ("tf_keras", "keras")):
        code = f"import {first}.backend, {second}.backend; {names}\n{same}"
        assert legacy(code) == "backend runs\nkeras.nothing\n"


def test_putting_it_imports_nothing_and_counts_once(legacy):
    code = (
        "import os; legacy.put()\nassert os.environ['TF_USE_LEGACY_KERAS'] == '1'\n"
        "assert not {'keras', 'tf_keras'} & set(sys.modules)\n"
        "print(sum(type(finder).__module__ == 'course_lib.command.setup.legacy_keras' for finder in sys.meta_path))"
    )
    assert legacy(code) == "1\n"


def test_seeds_are_drawn_on_python_3_12_as_before(legacy):
    drawn = "from keras.src.utils import tf_utils; print(*tf_utils.both(7), tf_utils.random.Random.__qualname__)"
    first, second, name = legacy(f"sys.version_info = (3, 12, 1)\n{drawn}").split()
    random.seed(7)
    assert [int(first), int(second)] == [random.Random(7).randint(1, 10**9), random.randint(1, 10**9)]
    assert name != "Random", "a class of our own, which takes 1e9 on every Python"
