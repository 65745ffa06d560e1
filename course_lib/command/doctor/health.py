"""Whether ranks train one network here; for the start and the health of images.

    python -m course_lib.command.doctor.health

The first time it examines all that decides this (`doctor.training`: half a minute and more) and prints what it found.
A good result is kept, together with what it holds for; as long as that has not changed, the answer takes a tenth of a
second. Exit code 0, or 1 with a sentence for each problem.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from course_lib.command.doctor import CONTROLLERS, training
from course_lib.system import gpus, paths
from course_lib.system.errors import CourseError
from course_lib.system.files import write


def main() -> int:
    """Print what was found, if it is new, and the problems; return the exit code."""
    try:
        problems = check()
    except CourseError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"course: {problem}", file=sys.stderr)
    return 1 if problems else 0


def check() -> list[str]:
    """What is wrong, in sentences; from the kept result where that still holds."""
    with _alone():
        kept, ground, container = _kept(), _ground(), _container()
        if kept.get("ground") == ground:
            return []
        before, now = kept.get("ground", {}).get("gpus", []), ground["gpus"]
        if kept.get("container") == container and len(now) < len(before):
            return [
                f"This container had {len(before)} GPUs when it started, and has {len(now)} now: start it again; "
                "if they stay away, look at the driver on the host (`nvidia-smi`)."
            ]
        report = training()
        print(describe(report), flush=True)
        if not report["problems"]:
            with contextlib.suppress(OSError):  # without it the next answer takes longer
                write(_memory(), json.dumps({"ground": ground, "container": container}).encode())
        return report["problems"]


def describe(report: Mapping) -> str:
    """What `course_lib.command.doctor.training` found, in three lines."""
    built = [CONTROLLERS[name] for name in report["controllers"]] + ["NCCL"] * report["nccl"]
    names = ", ".join(dict.fromkeys(report["gpus"]))
    versions = [f"{name} {report[name.lower()] or 'missing'}" for name in ("TensorFlow", "Keras", "Horovod")]
    return "\n".join(
        [
            f"Python {platform.python_version()}, {', '.join(versions)} with {', '.join(built) or 'no controller'}",
            f"{len(report['gpus'])} GPUs: {names}" if names else "No GPUs: everything runs on the CPU",
            f"{report['ranks']} ranks {'agree, bit by bit' if report['ranks_agree'] else 'do not agree'}",
        ]
    )


def _ground() -> dict:
    """All that the answer depends on, as far as it can be told without loading TensorFlow."""
    files = []
    for package, pattern in (("tensorflow", "__init__.py"), ("horovod", "tensorflow/mpi_lib*.so")):
        spec = find_spec(package)
        folder = Path(spec.origin).parent if spec and spec.origin else None
        found = sorted(folder.glob(pattern)) if folder else []
        files += [package, *([str(path), path.stat().st_mtime_ns, path.stat().st_size] for path in found)]
    return {
        "python": platform.python_version(),
        "files": files,
        "legacy_keras": os.environ.get("TF_USE_LEGACY_KERAS", ""),
        "gpus": gpus.listing(),
        "driver": _read("/proc/driver/nvidia/version"),
    }


def _container() -> str:
    """Which start of this machine or container it is: its boot, and when its first process began."""
    first = _read("/proc/1/stat").rpartition(")")[2].split()
    return " ".join([_read("/proc/sys/kernel/random/boot_id").strip(), *first[19:20]])


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _memory() -> Path:
    return paths.cache() / "health.json"


def _kept() -> dict:
    try:
        return json.loads(_memory().read_text())
    except (OSError, ValueError):
        return {}


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait while another process examines: the images' start and their health check begin at the same time."""
    try:
        _memory().parent.mkdir(parents=True, exist_ok=True)
        lock = _memory().with_suffix(".lock").open("w")
    except OSError:
        yield
        return
    with lock:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
