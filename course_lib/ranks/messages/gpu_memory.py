"""Where a GPU's memory did not suffice: which processes hold it, as its driver lists them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from course_lib.system import gpus

# What TensorFlow 2.15, CUDA, cuDNN and cuBLAS say where they get too little memory, each in its own way.
SIGNS = (
    r"CUDA_ERROR_OUT_OF_MEMORY|Cuda failure .*out of memory|cudaSetDevice\(\) on GPU:\d+ failed\. Status: out of memory"
    r"|OOM when allocating (?!.*device:CPU)|Dst tensor is not initialized|Failed to get convolution algorithm"
    r"|Could not create cudnn handle|CUDNN_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED|ALLOC_FAILED)"
    r"|DNN library (?:is not found|initialization failed)"
    r"|CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|(?i:without BLAS support)"
)
MOSTLY = 0.5  # of a GPU's memory: if so much of it is still taken, it was too little because of who holds it
OR_ELSE = "use another GPU (CUDA_VISIBLE_DEVICES), or take a smaller batch"


def advice(numbers: Sequence[int] | None = None) -> str:
    """What to do where the memory of the GPUs with these `numbers` (default: all visible) did not suffice."""
    if not _known(numbers):
        return (
            "A GPU has too little memory, and its driver does not say which processes hold it: end other programs that "
            "use it (of a notebook, restart the kernel), or take a smaller batch."
        )
    return taken(numbers) or (
        "A GPU has too little memory: give each rank a GPU of its own (tf.config.set_visible_devices with "
        "hvd.local_rank()), or take a smaller batch. If it has enough, `course doctor --gpu` says what is wrong."
    )


def taken(numbers: Sequence[int] | None = None) -> str:
    """Which processes hold most of the memory of the fullest of these GPUs, in a sentence; "" where none is that full.

    To be asked once a run has ended: then none of its ranks is among them.
    """
    gpu = max(_known(numbers), key=lambda gpu: gpu.used / gpu.total, default=None)
    if gpu is None or gpu.used < MOSTLY * gpu.total:
        return ""
    fact = f"The memory of GPU {gpu.gpu} is taken, {_gigabytes(gpu.used)} of {_gigabytes(gpu.total)} GB,"
    if not gpu.holders:
        return (
            f"{fact} by processes that the driver does not name here, as in a container: end one of those that "
            f"`nvidia-smi` names on the host, {OR_ELSE}."
        )
    notebook = any(holder.command == gpus.NOTEBOOK for holder in gpu.holders)
    end = f"end {'it' if len(gpu.holders) == 1 else 'one'}{' (of a notebook, restart the kernel)' if notebook else ''}"
    return f"{fact} by {' and '.join(map(_described, gpu.holders))}: {end}, {OR_ELSE}."


def _known(numbers: Sequence[int] | None) -> list[gpus.Memory]:
    known = [gpu for gpu in gpus.memory() if gpu.total]
    chosen = gpus.visible(len(known)) if numbers is None else numbers
    return [gpu for gpu in known if gpu.gpu in chosen]


def _described(holder: gpus.Holder) -> str:
    command = holder.command or "not of this container"
    if holder.pid == os.getpid():
        command = "this notebook" if command == gpus.NOTEBOOK else "this process"
    facts = [command, *([f"{_gigabytes(holder.memory)} GB"] if holder.memory else [])]
    return f"process {holder.pid} ({', '.join(facts)})"


def _gigabytes(mib: float) -> str:
    return f"{mib / 1024:.2g}" if mib < 10 * 1024 else f"{mib / 1024:.0f}"
