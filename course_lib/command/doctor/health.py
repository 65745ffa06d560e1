"""Whether ranks train one network here; for the start and the health of images.

    python -m course_lib.command.doctor.health

The first time it examines all that decides this (`diagnosis.training`: half a minute and more) and prints the result.
A good result is kept, together with what it depends on; as long as that has not changed, the answer takes a tenth of
a second. Exit code 0, or 1 with a sentence for each problem.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from course_lib.command.doctor.diagnosis import CONTROLLERS, training
from course_lib.system import gpus, paths
from course_lib.system.errors import CourseError
from course_lib.system.files import locked, write


def main() -> int:
    """Print the result, if it is new, and the problems; return the exit code."""
    try:
        problems = check()
    except CourseError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"course: {problem}", file=sys.stderr)
    return 1 if problems else 0


def check() -> list[str]:
    """What is wrong, in sentences; from the last good result where that still holds."""
    # Images' start and their health check begin at the same time.
    with locked(_file().with_suffix(".lock")):
        last, basis, container = _last_good(), _basis(), _container()
        if last.get("basis") == basis:
            return []
        before, now = last.get("basis", {}).get("gpus", []), basis["gpus"]
        if last.get("container") == container and len(now) < len(before):
            return [
                f"This container had {len(before)} GPUs when it started, and has {len(now)} now: start it again; "
                "if they stay away, look at the driver on the host (`nvidia-smi`)."
            ]
        report = training()
        print(describe(report), flush=True)
        if not report["problems"]:
            with contextlib.suppress(OSError):  # without it the next answer takes longer
                write(_file(), json.dumps({"basis": basis, "container": container}).encode())
        return report["problems"]


def describe(report: Mapping) -> str:
    """The result of `course_lib.command.doctor.diagnosis.training`, in three lines."""
    built = [CONTROLLERS[name] for name in report["controllers"]] + ["NCCL"] * bool(report["nccl"])
    names = ", ".join(dict.fromkeys(report["gpus"]))
    versions = [f"{name} {report[name.lower()] or 'missing'}" for name in ("TensorFlow", "Keras", "Horovod")]
    return "\n".join(
        [
            f"Python {platform.python_version()}, {', '.join(versions)} with {', '.join(built) or 'no controller'}",
            f"{len(report['gpus'])} GPUs: {names}" if names else "No GPUs: everything runs on the CPU",
            f"{report['ranks']} ranks {'agree, bit by bit' if report['ranks_agree'] else 'do not agree'}",
        ]
    )


def _basis() -> dict:
    """All that the answer depends on, as far as it can be known without loading TensorFlow."""
    files = []
    for package, pattern in (("tensorflow", "__init__.py"), ("horovod", "tensorflow/mpi_lib*.so")):
        spec = find_spec(package)
        origins = sorted(Path(spec.origin).parent.glob(pattern)) if spec and spec.origin else []
        files += [[str(path), path.stat().st_mtime_ns, path.stat().st_size] for path in origins]
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


def _file() -> Path:
    return paths.cache() / "health.json"


def _last_good() -> dict:
    try:
        return json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    sys.exit(main())
