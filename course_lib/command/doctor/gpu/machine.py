"""What stands here: driver, GPUs and shared memory; TensorFlow and Horovod; what is compiled at the first use."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from course_lib.command import doctor
from course_lib.command.doctor.gpu import peaks
from course_lib.command.doctor.gpu.host import Host, missing
from course_lib.command.doctor.gpu.lines import Line, failed, judged, passed, untested
from course_lib.system.errors import CourseError, last_line

SHARED_MEMORY = Path("/dev/shm")
ENOUGH_SHARED = 2**30 * 0.99  # bytes: NVIDIA asks for --shm-size=1g (NCCL's troubleshooting, "Shared memory")
FIRST_USE = Path(__file__).with_name("first_use.py")
FIRST_USE_S = 80.0
NEWER_IMAGE = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"


def driver(host: Host) -> Iterator[Line]:
    """The driver and its GPUs; the shared memory that NCCL exchanges gradients through."""
    if reason := missing(host):
        yield (failed if host.problem else untested)("Driver", reason)
    else:
        names = ", ".join(f"{_count(host, gpu.name)} {gpu.name}" for gpu in dict.fromkeys(host.gpus))
        capabilities = ", ".join(dict.fromkeys(gpu.capability or "unknown" for gpu in host.gpus))
        yield passed(
            "Driver",
            f"Driver {host.driver}, for CUDA up to {host.cuda or 'an unknown version'}: {names}.",
            **{"driver": host.driver, "CUDA of the driver": host.cuda, "compute capability": capabilities},
            **{"memory MiB": min(gpu.memory for gpu in host.gpus), "GPUs that can be used": host.visible},
        )
    size = shutil.disk_usage(SHARED_MEMORY).total if SHARED_MEMORY.exists() else 0
    yield judged(
        "Shared memory",
        size >= ENOUGH_SHARED,
        f"{SHARED_MEMORY} has {size / 2**30:.1f} GB.",
        f"{SHARED_MEMORY} has {size / 2**20:.0f} MB, and NCCL needs more: start the container with --shm-size 1g.",
        bytes=size,
    )


def _count(host: Host, name: str) -> str:
    return f"{sum(gpu.name == name for gpu in host.gpus)} ×"


def stack(host: Host) -> Iterator[Line]:
    """Versions, and whether they fit each other, the driver and the GPUs."""
    report = doctor.ask_stack()
    loads = report["tensorflow"] and report["horovod"]
    built = _asked("build") if loads else {}
    python = platform.python_version()
    versions = {"Python": python, **{name: report[name.lower()] for name in ("TensorFlow", "Keras", "Horovod")}}
    versions |= {name: built.get(key) for name, key in VERSIONS.items() if built.get(key)}
    problems = doctor.stack_problems(python, report, host.visible)
    problems += misfits(host, built) if host.visible and loads else []
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    for problem in problems:
        yield failed("Versions", problem, **versions)
    if not problems:
        yield passed("Versions", f"{told}.", **versions)
    if report["horovod"]:
        parts = [doctor.CONTROLLERS[name] for name in report["controllers"]] + ["NCCL"] * report["nccl"]
        yield passed("What Horovod was built with", f"{', '.join(parts)}.", NCCL=built.get("nccl"))


VERSIONS = {"CUDA": "cuda", "cuDNN": "cudnn", "NCCL": "nccl"}


def misfits(host: Host, built: Mapping[str, Any]) -> list[str]:
    """What of TensorFlow's build does not fit driver and GPUs, in sentences with the remedy."""
    found = []
    cuda, targets = built.get("cuda"), built.get("targets") or []
    if not cuda:
        return ["This TensorFlow was built without CUDA: run `./course setup`, or use the image for GPUs."]
    if host.cuda and int(host.cuda.split(".")[0]) < int(cuda.split(".")[0]):
        found.append(
            f"TensorFlow was built for CUDA {cuda}, and driver {host.driver} runs CUDA {host.cuda} at most: update the "
            "driver."
        )
    for capability in sorted({gpu.capability for gpu in host.gpus if gpu.capability}):
        kernels = peaks.kernels(capability, targets) if targets else peaks.Kernels("cubin")
        newer = f"use an image that has them (`containers/launch build --base {NEWER_IMAGE}`)"
        if kernels.kind == "none":
            found.append(
                f"TensorFlow has no kernels for compute capability {capability} ({', '.join(targets)}): {newer}."
            )
        elif kernels.kind == "ptx" and host.cuda and not peaks.at_least(host.cuda, cuda):
            found.append(
                f"TensorFlow has no kernels for compute capability {capability} and would compile them, which a driver "
                f"for CUDA {host.cuda} cannot do with code of CUDA {cuda}: update the driver, or {newer}."
            )
    return found


def first_use(host: Host) -> Iterator[Line]:
    """Seconds of the first training step in a new process, with an empty cache of compiled kernels and a filled one."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        first, second = (_asked("use", CUDA_CACHE_PATH=folder) for _ in range(2))
        compiled = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    values = {"first process s": first["seconds"], "second process s": second["seconds"], "compiled bytes": compiled}
    told = f"{first['seconds']:.1f} s, in a second process {second['seconds']:.1f} s"
    if not host.visible:
        yield passed("First training step", f"On the CPU it takes {told}.", **values)
        yield untested("Kernels", missing(host))
        return
    yield passed("First training step", f"It takes {told}.", **values)
    loaded = {name: first[name] for name in ("cuDNN", "NCCL", "cuBLAS") if first.get(name)}
    yield judged(
        "Where it ran",
        "GPU" in first["device"],
        f"On the GPU, with {', '.join(f'{name} {version}' for name, version in loaded.items()) or 'its libraries'}.",
        "It ran on the processor though there is a GPU: use an image for this driver.",
        **loaded,
    )
    for capability in sorted({gpu.capability for gpu in host.gpus if gpu.capability}):
        yield _kernels(capability, first, compiled, first["seconds"] - second["seconds"])


def _kernels(capability: str, first: Mapping[str, Any], compiled: int, seconds: float) -> Line:
    title, targets = f"Kernels for compute capability {capability}", first.get("targets") or []
    if not targets:
        return untested(title, "TensorFlow does not say what it was built for.", **{"compiled bytes": compiled})
    kernels = peaks.kernels(capability, targets)
    values = {"kind": kernels.kind, "target": kernels.target, "saved by the cache s": seconds}
    if kernels.kind == "cubin":
        return passed(
            title, f"TensorFlow has them ({kernels.target}): nothing of its own has to be compiled.", **values
        )
    if kernels.kind == "ptx":
        told = f"The driver compiles them from {kernels.target}; the cache of what was compiled saves {seconds:.1f} s."
        return judged(
            title,
            compiled > 0,
            told,
            "They have to be compiled, and nothing was kept: let ~/.nv/ComputeCache be written, or each start waits.",
            **values,
        )
    return failed(title, f"TensorFlow has none: use an image that has them ({NEWER_IMAGE}).", **values)


def _asked(what: str, **env: str) -> dict[str, Any]:
    """What `first_use.py` says, in a process of its own. Raises CourseError."""
    try:
        done = subprocess.run(
            [sys.executable, str(FIRST_USE), what],
            capture_output=True,
            text=True,
            timeout=FIRST_USE_S,
            env={**os.environ, **env},
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise CourseError(
            f"{_ASKED[what]} was not done within {FIRST_USE_S:g} s and was ended: TensorFlow compiles for this GPU, or "
            f"hangs; use an image with kernels for it ({NEWER_IMAGE})."
        ) from None
    except (IndexError, ValueError):
        raise CourseError(
            f"{_ASKED[what]} ended with exit code {done.returncode} ({last_line(done.stderr)}): install the course "
            "again, or use another image."
        ) from None


_ASKED = {"build": "Loading TensorFlow", "use": "A first training step"}
