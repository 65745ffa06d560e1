"""TensorFlow and Horovod that are there before the set-up, as in NVIDIA's images (COURSE_TENSORFLOW=given)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from course_lib.command.setup import legacy_keras
from course_lib.system.errors import CourseError, last_line

ALIAS = "course_legacy_keras"  # the name of `legacy_keras` in site-packages, and of the .pth file that calls it
OLDEST_TENSORFLOW = (2, 15)
DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-")  # an image has them only where it runs on a host with GPUs
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
    """The version of the TensorFlow that `python` has.

    Raises CourseError where it has none, an older one than the course needs, no Horovod, or Keras 3 alone.
    """
    done = _run(python, _ASK)
    if done.returncode:
        raise CourseError(f"TensorFlow cannot be used in {python} ({_reason(done)}): {ADVICE}.")
    there = json.loads(done.stdout.splitlines()[-1])
    tensorflow = there["tensorflow"]
    major, minor = tensorflow.split(".")[:2]
    if (int(major), int(minor)) < OLDEST_TENSORFLOW:
        raise CourseError(f"The course needs TensorFlow 2.15 or later, and {python} has {tensorflow}: {ADVICE}.")
    if not there["horovod"]:
        raise CourseError(f"{python} has TensorFlow {tensorflow} and no Horovod: {ADVICE}.")
    if legacy_keras.needed(tensorflow) and not there["tf_keras"]:
        raise CourseError(
            f"TensorFlow {tensorflow} takes Keras 3, with which Horovod never averages gradients, and {python} has no "
            f"tf_keras: install `tf_keras=={major}.{minor}.*` there, or {ADVICE}."
        )
    return tensorflow


def take(python: str, packages: Path) -> str:
    """Make the environment of `python` use what is given; `packages` is its site-packages. Return what that is.

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
    return f"TensorFlow {tensorflow}" + ", with tf_keras in the place of Keras 3" * legacy_keras.needed(tensorflow)


def load(python: str) -> None:
    """Load TensorFlow, Keras and Horovod in `python`. Raises CourseError where they can't be used on any machine."""
    done = _run(python, _LOAD)
    if done.returncode and not any(name in done.stderr for name in DRIVER_LIBRARIES):
        raise CourseError(
            f"Horovod cannot be used with the TensorFlow that is here ({_reason(done)}): use another image, or unset "
            "COURSE_TENSORFLOW."
        )


def _run(python: str, code: str) -> subprocess.CompletedProcess:
    return subprocess.run([python, "-Ic", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _reason(done: subprocess.CompletedProcess) -> str:
    return last_line(done.stderr, f"exit code {done.returncode}")[:300].rstrip(".")
