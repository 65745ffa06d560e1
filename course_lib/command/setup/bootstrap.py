"""Set up the course for this machine: `.venv`, pinned packages, Horovod, the `course` command.

`./course` runs this file before each command, with the standard library only. After a complete set-up it compares a few
strings and executes `.venv/bin/course`. Otherwise it runs the missing steps (`course_lib.command.setup.install`):

    environment   `.venv`, with the `uv` that installs the rest
    packages      requirements.lock; requirements-gpu.lock on a host with NVIDIA GPUs
    horovod       compiled for this machine; the wheel is cached for the next environment
    course        this project, editable

With COURSE_TENSORFLOW=given (NVIDIA's TensorFlow images) the Python that runs this file already has TensorFlow and
Horovod. `.venv` then uses them, the other packages are from requirements-given.lock, and from TensorFlow 2.16 on
`tf_keras` replaces Keras 3 (`course_lib.command.setup.legacy_keras`).

`.venv/course-setup.json` records each completed step with the inputs that it depends on. To repair a set-up that was
interrupted, or whose inputs have changed, run it again.

The set-up of a host with GPUs is untested on hardware.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # `./course` runs this file before the project is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from course_lib.command.setup import plan
from course_lib.command.setup.plan import VENV
from course_lib.system import interrupt
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT


def main(argv: Sequence[str] = ()) -> int:
    """Complete the set-up, then replace this process by `course ARGV`.

    Without arguments, or with only `setup`, check the installation, print the result and return 0.

    Raises CourseError if the machine lacks something that the user must install.
    """
    machine = plan.detect()
    asked_for = list(argv) in ([], ["setup"])
    if asked_for and not (os.access(ROOT, os.W_OK) and plan.lock_file(machine).exists()):
        raise CourseError(
            f"The course in {ROOT} is already set up and cannot be changed here: to change it, build a new image with "
            "`containers/launch build`."
        )
    if machine.given:
        _check_given_python()
    elif not plan.OLDEST_PYTHON <= sys.version_info[:2] <= plan.NEWEST_PYTHON:
        from course_lib.command.setup import install

        python = install.older_python(machine)
        os.execv(python, [python, "-IS", __file__, *argv])
    wanted = plan.wanted(machine)
    if asked_for or plan.outdated(plan.read_notes(), wanted):
        from course_lib.command.setup import install

        install.set_up(machine, wanted, check=asked_for)
    if asked_for:
        print(f"The course is ready in {VENV}: {plan.describe(machine)}.")
        return 0
    command = VENV / "bin" / "course"
    os.execv(command, [str(command), *argv])


def _check_given_python() -> None:
    python = sys.version_info[:2]
    if not plan.GIVEN_OLDEST_PYTHON <= python <= plan.GIVEN_NEWEST_PYTHON:
        raise CourseError(
            f"COURSE_TENSORFLOW=given needs Python 3.10 to 3.12, but python3 is Python "
            f"{'.'.join(map(str, python))}: use another image, or unset COURSE_TENSORFLOW."
        )


def _start() -> int:
    """Entry point of `./course`: print one sentence, without a traceback, for problems that the user can fix."""
    interrupt.raise_on_signals()
    try:
        return main(sys.argv[1:] or ["--help"])
    except CourseError as error:
        print(f"course: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"course: The set-up failed: {error.strerror}{where}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncourse: Interrupted: run the command again to complete the set-up.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(_start())
