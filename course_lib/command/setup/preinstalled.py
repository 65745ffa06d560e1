"""Preinstalled TensorFlow and Horovod, as in NVIDIA's images (COURSE_TENSORFLOW=given)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from course_lib.command.setup import legacy_keras
from course_lib.system.errors import CourseError, last_line

ALIAS = "course_legacy_keras"  # the name of `legacy_keras` in site-packages, and of the .pth file that calls it
OLDEST_TENSORFLOW = (2, 15)
DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-")  # a container has them only on a host with GPUs
ADVICE = "use an image that has it (nvcr.io/nvidia/tensorflow), or unset COURSE_TENSORFLOW"

_ASK = """
import importlib.util, json, tensorflow
there = {name: importlib.util.find_spec(name) is not None for name in ("horovod", "tf_keras")}
print(json.dumps({"tensorflow": tensorflow.__version__, **there}))
"""
_LOAD = """
import importlib, sys, tensorflow as tf, horovod.tensorflow.keras
keras = importlib.import_module(tf.keras.Model.__module__.partition(".")[0])
sys.exit(f"Keras is {keras.__version__}" if keras.__version__.startswith("3.") else 0)
"""


def version(python: str) -> str:
    """The version of TensorFlow in the environment of `python`.

    Raises CourseError if TensorFlow, Horovod or tf_keras (for Keras 3) is missing, or if TensorFlow is too old.
    """
    done = _run(python, _ASK)
    if done.returncode:
        raise CourseError(f"TensorFlow cannot be used in {python} ({_reason(done)}): {ADVICE}.")
    there = json.loads(done.stdout.splitlines()[-1])
    tensorflow = there["tensorflow"]
    major, minor = tensorflow.split(".")[:2]
    if (int(major), int(minor)) < OLDEST_TENSORFLOW:
        raise CourseError(f"The course needs TensorFlow 2.15 or later, but {python} has {tensorflow}: {ADVICE}.")
    if not there["horovod"]:
        raise CourseError(f"{python} has TensorFlow {tensorflow}, but no Horovod: {ADVICE}.")
    if legacy_keras.needed(tensorflow) and not there["tf_keras"]:
        raise CourseError(
            f"TensorFlow {tensorflow} uses Keras 3, with which Horovod does not average gradients, and {python} has no "
            f"tf_keras: install `tf_keras=={major}.{minor}.*` there, or {ADVICE}."
        )
    return tensorflow


def take(python: str, packages: Path) -> str:
    """Make an environment use the preinstalled TensorFlow and Horovod; return a description of them.

    Args:
        python: Python of the environment.
        packages: its site-packages.

    Raises CourseError as `version` and `load` do.
    """
    tensorflow = version(python)
    link, line = packages / f"{ALIAS}.py", packages / f"{ALIAS}.pth"
    for file in (line, link):
        file.unlink(missing_ok=True)
    if legacy_keras.needed(tensorflow):
        link.symlink_to(legacy_keras.__file__)
        line.write_text(f"import {ALIAS}; {ALIAS}.put()\n")
    load(python)
    return f"TensorFlow {tensorflow}" + ", with tf_keras instead of Keras 3" * legacy_keras.needed(tensorflow)


def load(python: str) -> None:
    """Load TensorFlow, Keras and Horovod in `python`.

    Raises CourseError if that fails for another reason than missing driver libraries.
    """
    done = _run(python, _LOAD)
    if done.returncode and not any(name in done.stderr for name in DRIVER_LIBRARIES):
        raise CourseError(
            f"Horovod does not work with this TensorFlow ({_reason(done)}): use another image, or unset "
            "COURSE_TENSORFLOW."
        )


def _run(python: str, code: str) -> subprocess.CompletedProcess:
    return subprocess.run([python, "-Ic", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _reason(done: subprocess.CompletedProcess) -> str:
    return last_line(done.stderr, f"exit code {done.returncode}")[:300].rstrip(".")
