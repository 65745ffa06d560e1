"""Advice after an out-of-memory error of a GPU, with the processes that use its memory."""

from __future__ import annotations

import os
from collections.abc import Sequence

from course_lib.system import gpus

# Messages of TensorFlow 2.15, CUDA, cuDNN and cuBLAS when they can't allocate GPU memory.
SIGNS = (
    r"CUDA_ERROR_OUT_OF_MEMORY|Cuda failure .*out of memory|cudaSetDevice\(\) on GPU:\d+ failed\. Status: out of memory"
    r"|OOM when allocating (?!.*device:CPU)|Dst tensor is not initialized|Failed to get convolution algorithm"
    r"|Could not create cudnn handle|CUDNN_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED|ALLOC_FAILED)"
    r"|DNN library (?:is not found|initialization failed)"
    r"|CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|(?i:without BLAS support)"
)
MOSTLY = 0.5  # fraction of a GPU's memory: if more is still in use after the run, other processes are the cause
OR_ELSE = "use another GPU (CUDA_VISIBLE_DEVICES), or use a smaller batch"


def advice(numbers: Sequence[int] | None = None) -> str:
    """What to do after an out-of-memory error on the GPUs with these `numbers` (default: all visible)."""
    if not _known(numbers):
        return (
            "A GPU has too little free memory, and its driver does not report which processes use it: stop other "
            "programs on this GPU (for a notebook, restart its kernel), or use a smaller batch."
        )
    return taken(numbers) or (
        "A GPU has too little memory: give each rank its own GPU (tf.config.set_visible_devices with "
        "hvd.local_rank()), or use a smaller batch. If it has enough memory, run `course doctor --gpu` to find out why."
    )


def taken(numbers: Sequence[int] | None = None) -> str:
    """A sentence on the processes that use more than MOSTLY of a GPU's memory, for the fullest GPU; "" if none does.

    Call it after the run has ended, so that its own ranks are not among the processes.
    """
    gpu = max(_known(numbers), key=lambda gpu: gpu.used / gpu.total, default=None)
    if gpu is None or gpu.used < MOSTLY * gpu.total:
        return ""
    fact = f"The memory of GPU {gpu.gpu} is in use ({_gigabytes(gpu.used)} of {_gigabytes(gpu.total)} GB)"
    if not gpu.holders:
        return (
            f"{fact} by processes that the driver does not list here, as in a container: stop one that `nvidia-smi` "
            f"lists on the host, {OR_ELSE}."
        )
    notebook = any(holder.command == gpus.NOTEBOOK for holder in gpu.holders)
    one = "it" if len(gpu.holders) == 1 else "one"
    kernel = " (for a notebook, restart its kernel)" if notebook else ""
    return f"{fact} by {' and '.join(map(_described, gpu.holders))}: stop {one}{kernel}, {OR_ELSE}."


def _known(numbers: Sequence[int] | None) -> list[gpus.Memory]:
    known = [gpu for gpu in gpus.memory() if gpu.total]
    chosen = gpus.visible(len(known)) if numbers is None else numbers
    return [gpu for gpu in known if gpu.gpu in chosen]


def _described(holder: gpus.Holder) -> str:
    command = holder.command or "outside this container"
    if holder.pid == os.getpid():
        command = "this notebook" if command == gpus.NOTEBOOK else "this process"
    facts = [command, *([f"{_gigabytes(holder.memory)} GB"] if holder.memory else [])]
    return f"process {holder.pid} ({', '.join(facts)})"


def _gigabytes(mib: float) -> str:
    return f"{mib / 1024:.2g}" if mib < 10 * 1024 else f"{mib / 1024:.0f}"
