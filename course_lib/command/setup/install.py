"""The steps of the set-up; `course_lib.command.setup.plan` decides which ones are missing."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from course_lib.command.setup import plan, preinstalled
from course_lib.command.setup.commands import Failed, Steps, only_one
from course_lib.command.setup.plan import NEWEST_PYTHON, VENV, Machine
from course_lib.system import paths
from course_lib.system.errors import CourseError

PYTHON = str(VENV / "bin" / "python")
PIP = ("-Im", "pip", "--disable-pip-version-check")


def set_up(machine: Machine, wanted: Mapping[str, str], check: bool = False) -> None:
    """Run the missing steps. Only one set-up runs at a time; a second one waits.

    Args:
        wanted: from `plan.wanted`.
        check: also test a complete installation, and reinstall everything if it does not work.

    Raises CourseError with the reason, what to do, and the path of the log.
    """
    cache = paths.cache()
    with only_one(cache / "setup.lock"):
        done = plan.read_notes()
        missing = plan.outdated(done, wanted)
        if not missing and check and not _works(machine):
            missing = list(plan.STEPS)
        if not missing:
            return
        wheels = cache / "wheels" / wanted["horovod"]
        compile_horovod = "horovod" in missing and not machine.given and not any(wheels.glob("*.whl"))
        require(machine, compile_horovod=compile_horovod)
        done = {step: what for step, what in done.items() if step not in missing}
        steps = Steps(len(missing), cache / "setup.log")
        steps.say(f"Setting up the course in {VENV}.")
        if machine.nvidia and not machine.given:
            steps.say(plan.about_gpus(machine))
        for step in missing:
            if VENV.is_dir():
                plan.write_notes(done)  # without this step, in case it is interrupted
            _STEP_FUNCTIONS[step](machine, wheels, steps)
            done[step] = wanted[step]
            plan.write_notes(done)


def older_python(machine: Machine) -> str:
    """Download Python 3.11 with uv, which runs from a temporary environment; return the path of Python.

    Raises CourseError, which names alternatives, if the download fails.
    """
    require(machine, compile_horovod=False)
    newest = ".".join(map(str, NEWEST_PYTHON))
    steps = Steps(1, paths.cache() / "setup.log")
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            steps.step(f"Python {newest}, because TensorFlow 2.15 does not run on Python {machine.python}"),
        ):
            tools = Path(folder) / "bin"
            steps.run([os.path.realpath(sys.executable), "-Im", "venv", folder])
            steps.run([str(tools / "python"), *PIP, "install", _uv_pin(machine)])
            steps.run([str(tools / "uv"), "python", "install", newest])
            return steps.run([str(tools / "uv"), "python", "find", "--no-project", newest]).strip().splitlines()[-1]
    except Failed:
        raise CourseError(
            f"The course needs Python 3.9 to 3.11, but this is Python {machine.python}, and Python {newest} "
            f"could not be downloaded (log: {steps.log}): use conda (`conda env create -f environment.yml`) "
            f"or a container with Python {newest}."
        ) from None


def require(machine: Machine, compile_horovod: bool) -> None:
    """Raise CourseError, with the command for installation, if something is missing that pip can't install."""
    python = "python" + ".".join(machine.python.split(".")[:2])
    missing = {}  # Debian's package → what it is
    if not (find_spec("venv") and find_spec("ensurepip")):
        missing[f"{python}-venv"] = f"the venv module of {python}"
    if compile_horovod and not (plan.which("gcc") and plan.which("g++")):
        missing["g++"] = "a C++ compiler (gcc and g++)"
    if missing:
        install = f"on Debian or Ubuntu with `sudo apt install {' '.join(missing)}`"
        raise CourseError(f"The set-up needs {' and '.join(missing.values())}: install it, {install}, and start again.")


def _works(machine: Machine) -> bool:
    """Whether the packages have their pinned versions, after correcting those that do not, and Horovod loads."""
    steps = Steps(1, paths.cache() / "setup.log")
    try:
        with steps.step("Checking what is installed"):
            _uv(steps, "-r", str(plan.lock_file(machine)))
            _load(machine, steps)
    except (CourseError, OSError):
        steps.say("      something is broken: reinstalling everything")
        return False
    return True


def _load(machine: Machine, steps: Steps) -> None:
    """Load Horovod with its TensorFlow. Raises Failed; CourseError for given TensorFlow and Horovod."""
    if machine.given:
        preinstalled.load(PYTHON)
        return
    version = plan.pinned("tensorflow", plan.lock_file(machine).read_text())
    code = (
        "import sys, tensorflow, horovod.tensorflow as hvd; "
        "sys.exit(not hvd.gloo_built() or tensorflow.__version__ != sys.argv[1])"
    )
    steps.run([PYTHON, "-Ic", code, version])


def _make_environment(machine: Machine, wheels: Path, steps: Steps) -> None:
    base = os.path.realpath(sys.executable)  # not the link in the environment, which is deleted
    if machine.given:
        preinstalled.version(base)  # check before anything is deleted
    with steps.step(f"Environment with Python {machine.python}"):
        if VENV.exists():
            shutil.rmtree(VENV)
        steps.run([base, "-Im", "venv", *["--system-site-packages"] * machine.given, str(VENV)])
        steps.run([PYTHON, *PIP, "install", _uv_pin(machine)])


def _install_packages(machine: Machine, wheels: Path, steps: Steps) -> None:
    lock = plan.lock_file(machine)
    with steps.step(f"Packages of {lock.name}"):
        _uv(steps, "-r", str(lock))


def _install_horovod(machine: Machine, wheels: Path, steps: Steps) -> None:
    if machine.given:
        with steps.step("The TensorFlow and Horovod of python3"):
            steps.say(f"      {preinstalled.take(PYTHON, _site_packages())}")
        return
    with steps.step(plan.describe_horovod(machine)):
        if any(wheels.glob("*.whl")) and _install_wheel(machine, wheels, steps):
            return
        shutil.rmtree(wheels, ignore_errors=True)  # the wheel no longer fits this machine's libraries
        require(machine, compile_horovod=True)
        steps.say("      compiling; this takes a few minutes")
        _compile(machine, wheels, steps)
        if not _install_wheel(machine, wheels, steps):
            shutil.rmtree(wheels)
            raise CourseError(f"Horovod was compiled but does not load: read the reason at the end of {steps.log}.")


def _install_wheel(machine: Machine, wheels: Path, steps: Steps) -> bool:
    """Install the wheel in the folder `wheels`; return whether Horovod then loads."""
    try:
        _uv(steps, "--no-deps", "--reinstall", *map(str, wheels.glob("*.whl")))
        _load(machine, steps)
    except Failed:
        return False
    return True


def _compile(machine: Machine, wheels: Path, steps: Steps) -> None:
    """Compile Horovod in a temporary folder, then move the wheel to the cache."""
    cache = paths.cache()
    for leftover in cache.glob("build-*"):  # left by a set-up that was killed; only one runs at a time
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
        wheel = Path(folder) / "wheel"
        command = [PYTHON, *PIP, "wheel", "-v", "--no-cache-dir", "--no-deps", "--no-build-isolation"]
        command += ["--no-binary=horovod", f"horovod=={plan.HOROVOD_VERSION}", "--wheel-dir", str(wheel)]
        command += ["--config-settings=--global-option=--quiet"]  # without it, Horovod passes Ninja an option of make
        steps.run(command, {**plan.build_environment(machine, os.environ, _nccl()), "TMPDIR": folder})
        wheels.parent.mkdir(parents=True, exist_ok=True)
        wheel.rename(wheels)


def _install_course(machine: Machine, wheels: Path, steps: Steps) -> None:
    with steps.step("The course itself"):
        _uv(steps, "--no-deps", "--no-build-isolation", "--editable", str(paths.ROOT))


_STEP_FUNCTIONS = {
    "environment": _make_environment,
    "packages": _install_packages,
    "horovod": _install_horovod,
    "course": _install_course,
}


def _uv(steps: Steps, *arguments: str) -> None:
    env = {**os.environ, **plan.package_index(steps.run([PYTHON, *PIP, "config", "list"]), os.environ)}
    steps.run([str(VENV / "bin" / "uv"), "pip", "install", "--python", PYTHON, *arguments], env)


def _uv_pin(machine: Machine) -> str:
    return f"uv=={plan.pinned('uv', plan.lock_file(machine).read_text())}"


def _site_packages() -> Path:
    return next(VENV.glob("lib/python*/site-packages"))


def _nccl() -> Path:
    """The folder of TensorFlow's NCCL; creates the link libnccl.so, which the linker needs."""
    folder = _site_packages() / "nvidia" / "nccl"
    library, link = folder / "lib" / "libnccl.so.2", folder / "lib" / "libnccl.so"
    if library.exists() and not link.exists():
        link.symlink_to(library.name)
    return folder
