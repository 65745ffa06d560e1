"""The second line of versions: the set-up on a Python that has TensorFlow 2.17 and Horovod, as NVIDIA's last image.

Such a Python is made of a Python 3.12 of this machine: a copy of it, TensorFlow for the CPU, and Horovod compiled for
both, which is kept beside the other wheels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.command.setup import install, plan
from course_lib.command.setup.commands import Steps
from course_lib.system import paths

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.ranks, pytest.mark.long, pytest.mark.alone]

TENSORFLOW, TF_KERAS = "2.17.1", "2.17.0"
TOUCH_KERAS = (
    *(f"science/test_{name}" for name in ("optimizers", "layers", "schedules", "models", "landscape")),
    *("labs/lab3/test_gradient_noise", "labs/lab3/test_short_runs", "labs/lab1/test_timed_fit"),
)
PATIENCE = 900  # seconds for a step on a busy machine

# What Keras 3 gets wrong without a word: equal ranks train with a DistributedOptimizer, each on its own images.
REDUCES = """
import horovod.tensorflow.keras as hvd, tensorflow as tf
from course_lib.command.doctor import agreement

hvd.init()
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.Input([8]), tf.keras.layers.Dense(3)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), agreement.loss())
model.fit(*agreement.examples(), batch_size=16, verbose=0)
agreement.report(model)
"""


class Line:
    """The course in a folder of its own, set up on the Python that has TensorFlow."""

    def __init__(self, root: Path, given: Path, cache: Path) -> None:
        self.root, self.given = root, given
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
            "PATH": f"{given / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(given / "lib"),  # a Python that is linked to its library looks where it was built
            "COURSE_TENSORFLOW": "given",
            "XDG_CACHE_HOME": str(cache),  # what is known of Horovod and of this host's speed is of another Python
        }

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess:
        """Run a command in the course's folder."""
        env = {**self.env, **more}
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, timeout=PATIENCE)

    def course(self, *arguments: str) -> subprocess.CompletedProcess:
        """Run the `course` command of its environment."""
        return self.run(str(self.root / ".venv" / "bin" / "course"), *arguments)


def python_312() -> Path | None:
    """The folder of a Python 3.12 that can be copied: one that was built into a folder of its own."""
    versions = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    found = [shutil.which("python3.12"), *map(str, sorted(versions.glob("3.12.*/bin/python3.12")))]
    for python in filter(None, found):
        asked = subprocess.run([python, "-Ic", "import sys; print(sys.base_prefix)"], capture_output=True, text=True)
        prefix = Path(asked.stdout.strip() or "/usr")
        if asked.returncode == 0 and prefix not in (Path("/usr"), Path("/usr/local"), Path("/")):
            return prefix
    return None


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> Path:
    """A Python with TensorFlow 2.17, Keras 3, tf_keras and Horovod."""
    prefix = python_312()
    if prefix is None:
        pytest.skip("there is no Python 3.12 that can be copied")
    if not (shutil.which("g++") and Path(sys.prefix, "bin", "uv").exists()):
        pytest.skip("the set-up's uv and a C++ compiler are needed")
    folder = tmp_path_factory.mktemp("image") / "python"
    shutil.copytree(prefix, folder, symlinks=True, ignore=shutil.ignore_patterns("test", "__pycache__"))
    python = str(folder / "bin" / "python3.12")
    add(python, f"tensorflow-cpu=={TENSORFLOW}", "cloudpickle", "psutil", "pyyaml", "packaging", "cffi")
    add(python, "--no-deps", f"tf-keras=={TF_KERAS}")  # which asks for the TensorFlow with CUDA
    add(python, "pip", "wheel", "setuptools", "cmake", "ninja")
    add(python, "--no-deps", str(horovod(folder)))
    return folder


def add(python: str, *packages: str) -> None:
    """Install packages, in the versions of the lock where it has them."""
    config = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    env = {**os.environ, **plan.package_index(config, os.environ)}
    lock = str(paths.ROOT / "requirements-given.lock")
    command = [f"{sys.prefix}/bin/uv", "pip", "install", "--python", python, "--break-system-packages", "-c", lock]
    done = subprocess.run([*command, *packages], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def horovod(folder: Path) -> Path:
    """The wheel of Horovod for the Python in `folder`; compiled as the set-up does it, if it is not kept."""
    version = subprocess.run([folder / "bin" / "python3.12", "-V"], capture_output=True, text=True).stdout.split()[1]
    machine = plan.detect()._replace(python=version, nvidia=False, given=False)
    wheels = paths.cache() / "wheels" / plan.wheel_key(machine, TENSORFLOW)
    if not any(wheels.glob("*.whl")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(install, "PYTHON", str(folder / "bin" / "python3.12"))
            patch.setattr(install, "VENV", folder)
            patch.setattr(plan, "VENV", folder)
            install._compile(machine, wheels, Steps(1, folder.parent / "build.log"))
    return next(wheels.glob("*.whl"))


@pytest.fixture(scope="module")
def line(given, tmp_path_factory) -> Line:
    """The course, set up on that Python by its own command."""
    root = tmp_path_factory.mktemp("second line") / "course"
    skip = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "workspace", "artefacts")
    shutil.copytree(paths.ROOT, root, ignore=skip)
    line = Line(root, given, tmp_path_factory.mktemp("cache"))
    done = line.run("./course", "setup", UV_CACHE_DIR=os.environ.get("UV_CACHE_DIR") or uv_cache())
    assert done.returncode == 0, done.stderr
    assert f"TensorFlow {TENSORFLOW}, with tf_keras instead of Keras 3" in done.stderr
    return line


def uv_cache() -> str:
    """Where packages are kept that have been downloaded."""
    return subprocess.run([f"{sys.prefix}/bin/uv", "cache", "dir"], capture_output=True, text=True).stdout.strip()


def test_the_set_up_brings_neither_tensorflow_nor_horovod(line):
    packages = next(line.root.glob(".venv/lib/python*/site-packages"))
    assert not [name for name in ("tensorflow", "horovod", "keras", "tf_keras") if (packages / name).exists()]
    code = "import keras, tensorflow, horovod; print(keras.__name__, *(m.__file__ for m in (tensorflow, horovod)))"
    name, *files = line.run(str(line.root / ".venv" / "bin" / "python"), "-c", code).stdout.split()
    assert name == "tf_keras"
    assert all(file.startswith(str(line.given)) for file in files)
    done = line.run("./course", "setup")
    assert "The course is ready" in done.stdout
    assert "[3/4]" not in done.stderr, "nothing is set up twice"


def test_the_doctor_finds_it_healthy(line):
    done = line.course("doctor", "--json")
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert (report["tensorflow"], report["keras"], report["ranks_agree"]) == (TENSORFLOW, TF_KERAS, True)
    assert "gloo" in report["controllers"]


@pytest.mark.parametrize(("python", "words"), [("line", "''"), ("given", "weights of two ranks differ")])
def test_gradients_are_averaged_and_without_tf_keras_are_not(line, tmp_path, python, words):
    script = tmp_path / "train.py"
    script.write_text(REDUCES)
    ask = (
        "from pathlib import Path; from course_lib.command.doctor import diagnosis; "
        f"print(repr(diagnosis.disagreement('gloo', Path({str(script)!r}))))"
    )
    folder = line.root / ".venv" if python == "line" else line.given
    done = line.run(str(folder / "bin" / "python3.12"), "-c", ask, PYTHONPATH=f"{line.root}:{line.root / 'assessment'}")
    assert words in done.stdout, done.stderr


def test_what_touches_keras_passes_its_tests(line):
    files = [f"tests/{name}.py" for name in TOUCH_KERAS]
    pytest_ = (str(line.root / ".venv" / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = line.run(*pytest_, "-m", "not ranks", *files)
    assert done.returncode == 0, done.stdout[-5000:]


def test_the_reference_passes_the_assessment(line, tmp_path):
    outcome = tmp_path / "outcome.json"
    done = line.course("assess", "assessment/reference/assessment.py", "--profile", "short", "--json", str(outcome))
    assert outcome.exists(), done.stderr
    said = json.loads(outcome.read_text())
    reasons = {one["id"]: one["reason"] for one in said["criteria"] if one["points"] != one["max_points"]}
    assert reasons == {}
    assert (done.returncode, said["ranks"]) == (0, 2)
