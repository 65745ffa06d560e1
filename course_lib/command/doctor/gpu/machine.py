"""Tests of the machine: driver, GPUs and shared memory; TensorFlow and Horovod; kernels compiled at the first use.

Each step is a function of the host that yields lines; `runner.STEPS` lists them. Only `first_step` imports TensorFlow,
so that `stack` can report a broken one.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from course_lib.command.doctor import diagnosis
from course_lib.command.doctor.gpu import devices
from course_lib.command.doctor.gpu.devices import Host, missing
from course_lib.command.doctor.gpu.report import Line, failed, passed, tested, untested

SHARED_MEMORY = Path("/dev/shm")
ENOUGH_SHARED = 2**30 * 0.99  # bytes: NVIDIA asks for --shm-size=1g (NCCL's troubleshooting, "Shared memory")
NEWER_IMAGE = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"


def driver(host: Host) -> Iterator[Line]:
    """The driver and its GPUs, and the shared memory that NCCL uses."""
    if reason := missing(host):
        yield (failed if host.problem else untested)("Driver", reason)
    else:
        names = [gpu.name for gpu in host.gpus]
        counts = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
        yield passed(
            "Driver",
            f"Driver {host.driver}, for CUDA up to {host.cuda or 'an unknown version'}: {counts}.",
            **{"driver": host.driver, "CUDA of the driver": host.cuda},
            **{"compute capability": ", ".join(dict.fromkeys(gpu.capability or "unknown" for gpu in host.gpus))},
            **{"memory MiB": min(gpu.memory for gpu in host.gpus), "GPUs that can be used": host.visible},
        )
    size = shutil.disk_usage(SHARED_MEMORY).total if SHARED_MEMORY.exists() else 0
    yield tested(
        "Shared memory",
        size >= ENOUGH_SHARED,
        f"{SHARED_MEMORY} has {size / 2**30:.1f} GB.",
        f"{SHARED_MEMORY} has {size / 2**20:.0f} MB, and NCCL needs more: start the container with --shm-size 1g.",
        bytes=size,
    )


def stack(host: Host) -> Iterator[Line]:
    """The versions, and whether they are compatible with each other, the driver and the GPUs."""
    report = diagnosis.ask_stack()
    python = platform.python_version()
    titles = ("TensorFlow", "Keras", "Horovod", "CUDA", "cuDNN", "NCCL")
    versions = {"Python": python, **{title: report[title.lower()] for title in titles if report[title.lower()]}}
    problems = diagnosis.stack_problems(python, report, host.visible)
    if host.visible and report["tensorflow"] and report["horovod"]:
        problems += misfits(host, report)
    for problem in problems:
        yield failed("Versions", problem, **versions)
    if not problems:
        yield passed("Versions", f"{', '.join(f'{name} {version}' for name, version in versions.items())}.", **versions)
    if report["horovod"]:
        parts = [diagnosis.CONTROLLERS[name] for name in report["controllers"]] + ["NCCL"] * bool(report["nccl"])
        yield passed("What Horovod was built with", f"{', '.join(parts)}.", NCCL=report["nccl"] or None)


def misfits(host: Host, build: Mapping[str, Any]) -> list[str]:
    """Sentences on incompatibilities of TensorFlow's build with the driver and the GPUs, with the fix."""
    cuda, targets = build["cuda"], build["targets"]
    if not cuda:
        return ["This TensorFlow was built without CUDA: run `./course setup`, or use the image for GPUs."]
    problems = []
    if host.cuda and int(host.cuda.split(".")[0]) < int(cuda.split(".")[0]):
        problems.append(
            f"TensorFlow was built for CUDA {cuda}, but driver {host.driver} supports CUDA {host.cuda} at most: update "
            "the driver."
        )
    for capability in _capabilities(host) if targets else ():
        kind, _ = devices.kernels(capability, targets)
        newer = f"use an image that has them (`containers/launch build --base {NEWER_IMAGE}`)"
        none = f"TensorFlow has no kernels for compute capability {capability}"
        if kind == "none":
            problems.append(f"{none} ({', '.join(targets)}): {newer}.")
        elif kind == "ptx" and host.cuda and not devices.at_least(host.cuda, cuda):
            problems.append(
                f"{none}, and a driver for CUDA {host.cuda} cannot compile them from code of CUDA {cuda}: "
                f"update the driver, or {newer}."
            )
    return problems


def _capabilities(host: Host) -> list[str]:
    return sorted({gpu.capability for gpu in host.gpus if gpu.capability})


def first_use(host: Host) -> Iterator[Line]:
    """Seconds of the first training step in a new process, with an empty and a filled cache of compiled kernels."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        first, second = (_in_new_process(folder) for _ in range(2))
        compiled = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    values = {"first process s": first["seconds"], "second process s": second["seconds"], "compiled bytes": compiled}
    where = "" if host.visible else "On the CPU: "
    seconds = f"{where}{first['seconds']:.1f} s, in a second process {second['seconds']:.1f} s."
    yield passed("First training step", seconds, **values)
    if not host.visible:
        yield untested("Kernels", missing(host))
        return
    libraries = ", ".join(first["libraries"]) or "its libraries"
    yield tested(
        "Where it ran",
        "GPU" in first["device"],
        f"On the GPU, with {libraries}.",
        "It ran on the CPU although there is a GPU: use an image for this driver.",
        libraries=libraries,
    )
    for capability in _capabilities(host):
        yield _kernels(capability, first["targets"], compiled, first["seconds"] - second["seconds"])


def _kernels(capability: str, targets: list[str], compiled: int, seconds: float) -> Line:
    title = f"Kernels for compute capability {capability}"
    if not targets:
        return untested(title, "TensorFlow does not report its target GPUs.", **{"compiled bytes": compiled})
    kind, target = devices.kernels(capability, targets)
    values = {"kind": kind, "target": target, "saved by the cache s": seconds}
    if kind == "none":
        return failed(title, f"TensorFlow has none: use an image that has them ({NEWER_IMAGE}).", **values)
    if kind == "cubin":
        return passed(title, f"TensorFlow has them ({target}): nothing has to be compiled.", **values)
    return tested(
        title,
        compiled > 0,
        f"The driver compiles them from {target}; the cache of compiled kernels saves {seconds:.1f} s.",
        "The driver compiles them, but keeps none: make ~/.nv/ComputeCache writable, or each start compiles again.",
        **values,
    )


def _in_new_process(cuda_cache: str) -> dict[str, Any]:
    """Run `first_step` in a new process, because libraries are loaded and kernels compiled once per process."""
    os.environ["CUDA_CACHE_PATH"] = cuda_cache
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(first_step).result()


def first_step() -> dict[str, Any]:
    """Make one training step of the assessment's network; return seconds, device, TensorFlow's targets, libraries."""
    import tensorflow as tf

    from course_lib import models

    began = time.perf_counter()
    model = models.assessment_cnn((32, 32, 3), 10)
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    model.train_on_batch(tf.zeros((128, 32, 32, 3)), tf.zeros((128,)))
    seconds = time.perf_counter() - began
    loaded = re.findall(r"/(lib(?:cudnn|nccl|cublas)\.so[.\d]*)", Path("/proc/self/maps").read_text(errors="replace"))
    return {
        "seconds": seconds,
        "device": model.trainable_variables[0].device,
        "targets": list(tf.sysconfig.get_build_info().get("cuda_compute_capabilities") or ()),
        "libraries": list(dict.fromkeys(loaded)),
    }
