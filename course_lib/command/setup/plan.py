"""The steps of the set-up that this machine needs, and the record of completed steps. Only the standard library."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

OLDEST_PYTHON, NEWEST_PYTHON = (3, 9), (3, 11)  # supported by TensorFlow 2.15
GIVEN_OLDEST_PYTHON, GIVEN_NEWEST_PYTHON = (3, 10), (3, 12)  # in NVIDIA's images
VENV = ROOT / ".venv"
NOTES = VENV / "course-setup.json"
STEPS = ("environment", "packages", "horovod", "course")
CONTROLLER_NAMES = {"gloo": "Gloo", "mpi": "MPI", "nccl": "NCCL"}
HOROVOD_VERSION = "0.28.1"


class Machine(NamedTuple):
    """The properties of a machine on which the set-up depends."""

    python: str  # "3.11.7"
    platform: str  # "linux_x86_64-glibc2.36"
    mpi: str = ""  # path of MPI's compiler wrapper, with links resolved; "" if there is none
    nvidia: bool = False  # whether the driver lists a GPU
    nvcc: str = ""  # path of CUDA's compiler; "" if there is none
    given: bool = False  # whether TensorFlow and Horovod are preinstalled


def detect() -> Machine:
    """The properties of this machine, from a few files, without a process.

    Raises CourseError for an invalid COURSE_TENSORFLOW.
    """
    system = os.uname()
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    platform = f"{system.sysname.lower()}_{system.machine}" + (f"-{libc.replace(' ', '')}" if libc else "")
    given = os.environ.get("COURSE_TENSORFLOW", "")
    if given not in ("", "given"):
        raise CourseError(f"COURSE_TENSORFLOW is '{given}': set it to given, or unset it.", code=2)
    mpi, nvcc = which("mpicxx"), which("nvcc", "/usr/local/cuda/bin") or which("nvcc")
    return Machine(
        python=".".join(map(str, sys.version_info[:3])),
        platform=platform,
        mpi=os.path.realpath(mpi) if mpi else "",
        nvidia=_has_entries("/proc/driver/nvidia/gpus") or os.path.exists("/usr/lib/wsl/lib/libcuda.so.1"),
        nvcc=os.path.realpath(nvcc) if nvcc else "",
        given=bool(given),
    )


def which(command: str, path: str | None = None) -> str:
    """The full path of a command; "" if there is none. (Importing shutil would take 10 ms.)"""
    folders = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    candidates = (os.path.join(folder, command) for folder in folders if folder)
    return next((c for c in candidates if os.access(c, os.X_OK) and os.path.isfile(c)), "")


def _has_entries(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def wanted(machine: Machine) -> dict[str, str]:
    """Step → a text with the inputs of the step. A step runs again when its text changes."""
    lock = lock_file(machine).read_bytes()
    return {
        "environment": f"{VENV} {machine.python} {machine.platform} {variant(machine)}",
        "packages": hashlib.sha256(lock).hexdigest(),
        "horovod": "given" if machine.given else wheel_key(machine, pinned("tensorflow", lock.decode())),
        "course": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
    }


def outdated(done: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """The steps to run, in order: those that are not complete, and those whose inputs have changed.

    If the step `packages` is not complete, all steps run: a partly installed package looks installed.
    """
    if done.get("environment") != wanted["environment"] or "packages" not in done:
        return list(STEPS)
    return [step for step in STEPS if done.get(step) != wanted[step]]


def variant(machine: Machine) -> str:
    """The variant of TensorFlow for this machine: "gpu" (with CUDA), "cpu", or "given" (preinstalled)."""
    return "given" if machine.given else "gpu" if machine.nvidia else "cpu"


def lock_file(machine: Machine) -> Path:
    """The file with the pinned packages for the machine's variant."""
    names = {"cpu": "requirements.lock", "gpu": "requirements-gpu.lock", "given": "requirements-given.lock"}
    return ROOT / names[variant(machine)]


def controllers(machine: Machine) -> list[str]:
    """The options of the Horovod build: Gloo; MPI if its compiler exists; NCCL with GPUs and nvcc."""
    return ["gloo"] + ["mpi"] * bool(machine.mpi) + ["nccl"] * (machine.nvidia and bool(machine.nvcc))


def wheel_key(machine: Machine, tensorflow: str) -> str:
    """The name of the cache folder of a Horovod wheel: everything on which the compiled library depends."""
    tag = "cp" + "".join(machine.python.split(".")[:2])
    which_mpi = [hashlib.sha256(machine.mpi.encode()).hexdigest()[:8]] * bool(machine.mpi)
    framework = f"tensorflow{tensorflow}-{variant(machine)}"
    return "-".join([f"horovod{HOROVOD_VERSION}", tag, machine.platform, framework, *controllers(machine), *which_mpi])


def build_environment(machine: Machine, environ: Mapping[str, str], nccl: Path) -> dict[str, str]:
    """The environment variables for compiling Horovod; `nccl` is the folder of NCCL."""
    env = {name: value for name, value in environ.items() if not name.startswith("HOROVOD_")}
    env.update(
        PATH=f"{VENV / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}",
        HOROVOD_WITH_TENSORFLOW="1",
        HOROVOD_WITHOUT_PYTORCH="1",
        HOROVOD_WITHOUT_MXNET="1",
        HOROVOD_WITH_GLOO="1",
        CMAKE_GENERATOR="Ninja",
        CMAKE_BUILD_PARALLEL_LEVEL=str(parallel_jobs()),
        MAKEFLAGS="-",  # if it is set, Horovod does not add make's options, which Ninja does not know
    )
    env["HOROVOD_WITH_MPI" if machine.mpi else "HOROVOD_WITHOUT_MPI"] = "1"
    if "nccl" in controllers(machine):
        env.update(
            HOROVOD_GPU_OPERATIONS="NCCL",
            HOROVOD_CUDA_HOME=str(Path(machine.nvcc).parent.parent),
            HOROVOD_NCCL_INCLUDE=str(nccl / "include"),
            HOROVOD_NCCL_LIB=str(nccl / "lib"),
            HOROVOD_NCCL_LINK="SHARED",
            # The wheel is used in other environments too, so the path of NCCL is relative to Horovod.
            LDFLAGS=f"{environ.get('LDFLAGS', '')} -Wl,-rpath,\\$ORIGIN/../../nvidia/nccl/lib",
        )
    return env


def parallel_jobs() -> int:
    """The number of parallel compilers: at most one for each core and for each 2 GiB of memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // 2**31))


def pinned(package: str, lock: str) -> str:
    """The version of `package` in a lock file's text (`tensorflow` also stands for `tensorflow-cpu`)."""
    return re.search(rf"^{package}(?:-cpu)?==([^\s;]+)", lock, re.MULTILINE).group(1)


def package_index(pip_config: str, environ: Mapping[str, str]) -> dict[str, str]:
    """pip's index and certificate, from the output of `pip config list`, as the variables that uv reads."""
    settings = dict(re.findall(r"^(?:\w+|:env:)\.([\w-]+)='(.*)'$", pip_config, re.MULTILINE))
    translated = {"UV_DEFAULT_INDEX": settings.get("index-url"), "SSL_CERT_FILE": settings.get("cert")}
    return {name: value for name, value in translated.items() if value and name not in environ}


def describe(machine: Machine) -> str:
    """A short description of the set-up."""
    if machine.given:
        return f"Python {machine.python}, with its own TensorFlow and Horovod"
    tensorflow = pinned("tensorflow", lock_file(machine).read_text())
    return f"Python {machine.python}, TensorFlow {tensorflow}, {describe_horovod(machine)}"


def describe_horovod(machine: Machine) -> str:
    """A short description of Horovod with its controllers."""
    *first, last = [CONTROLLER_NAMES[name] for name in controllers(machine)]
    return f"Horovod {HOROVOD_VERSION} with {', '.join(first)}{' and ' * bool(first)}{last}"


def about_gpus(machine: Machine) -> str:
    """A sentence on how the set-up uses the NVIDIA GPUs of this machine."""
    if machine.nvcc:
        return "NVIDIA GPUs: TensorFlow with CUDA, Horovod with NCCL (untested on hardware)."
    return (
        "NVIDIA GPUs, but no CUDA compiler (nvcc): Horovod will all-reduce through the CPU. To use NCCL, install "
        "the CUDA toolkit and start again (untested on hardware)."
    )


def read_notes() -> dict[str, str]:
    """The completed steps, each with the text of its inputs (see `wanted`)."""
    try:
        return json.loads(NOTES.read_text())
    except (OSError, ValueError):
        return {}


def write_notes(notes: Mapping[str, str]) -> None:
    """Replace the record of completed steps, atomically."""
    from course_lib.system.files import write  # not at the top, because `./course` must start fast

    write(NOTES, (json.dumps(notes, indent=2) + "\n").encode())
