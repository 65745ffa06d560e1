"""Check that distributed training works here; for the start and the health check of images.

    python -m course_lib.command.doctor.health

The first check (`diagnosis.training`) takes at least half a minute and prints its result. A good result is cached with
everything that it depends on; until this changes, a check takes a tenth of a second. The exit code is 0, or 1 with a
sentence for each problem.
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
    """Print the result, if it is not from the cache, and the problems; return the exit code."""
    try:
        problems = check()
    except CourseError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"course: {problem}", file=sys.stderr)
    return 1 if problems else 0


def check() -> list[str]:
    """The problems, as sentences; none if the cached result is still valid."""
    # An image's entry point and its health check start at the same time.
    with locked(_file().with_suffix(".lock")):
        last, basis, container = _last_good(), _basis(), _container()
        if last.get("basis") == basis:
            return []
        before, now = last.get("basis", {}).get("gpus", []), basis["gpus"]
        if last.get("container") == container and len(now) < len(before):
            return [
                f"This container had {len(before)} GPUs when it started and has {len(now)} now: restart it. "
                "If GPUs are still missing, check the driver on the host with `nvidia-smi`."
            ]
        report = training()
        print(describe(report), flush=True)
        if not report["problems"]:
            with contextlib.suppress(OSError):  # without the cache, the next check takes longer
                write(_file(), json.dumps({"basis": basis, "container": container}).encode())
        return report["problems"]


def describe(report: Mapping) -> str:
    """The report of `course_lib.command.doctor.diagnosis.training` as a text of three lines."""
    built = [CONTROLLERS[name] for name in report["controllers"]] + ["NCCL"] * bool(report["nccl"])
    names = ", ".join(dict.fromkeys(report["gpus"]))
    versions = [f"{name} {report[name.lower()] or 'missing'}" for name in ("TensorFlow", "Keras", "Horovod")]
    return "\n".join(
        [
            f"Python {platform.python_version()}, {', '.join(versions)} with {', '.join(built) or 'no controller'}",
            f"{len(report['gpus'])} GPUs: {names}" if names else "No GPUs: everything runs on the CPU",
            f"{report['ranks']} ranks {'agree bit for bit' if report['ranks_agree'] else 'do not agree'}",
        ]
    )


def _basis() -> dict:
    """Everything that the result depends on and that is available without loading TensorFlow."""
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
    """An id of this start of the machine or container: its boot id, and the start time of its first process."""
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
